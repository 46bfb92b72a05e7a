// Writes the state of the fabric.
#include "switch/status.h"

#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "switch/compute.h"
#include "switch/units.h"

namespace od::fabric {
namespace {

using nlohmann::ordered_json;

[[gnu::format(printf, 2, 3)]] void append(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

unsigned long long number(std::uint64_t value) { return value; }

std::uint64_t all_drops(const PortCounters& counters) {
  std::uint64_t sum = 0;
  for (const std::uint64_t drops : counters.drops) sum += drops;
  return sum;
}

std::string port_notes(const Port& port) {
  const LinkSettings& link = port.link.settings();
  std::string notes = rate_text(link.rate_bits);
  if (link.latency_ns > 0) notes += ", " + duration_text(link.latency_ns);
  const auto share = [&notes](const char* what, double value) {
    if (value > 0) append(notes, ", %s %g%%", what, value * 100);
  };
  share("loss", link.loss);
  share("loss on arrival", link.receive_loss);
  share("duplication", link.duplication);
  share("reordering", link.reordering);
  share("corruption", link.corruption);
  if (!port.up) notes += ", DOWN";
  return notes;
}

std::string drop_notes(const PortCounters& counters) {
  std::string notes;
  for (std::size_t i = 0; i < kDrops; ++i) {
    if (counters.drops[i] == 0) continue;
    append(notes, "%s%s %llu", notes.empty() ? "" : ", ", drop_name(static_cast<Drop>(i)),
           number(counters.drops[i]));
  }
  return notes;
}

std::string label(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// What counts packets for computing, by name.
struct Counted {
  const char* name;
  std::uint64_t ComputeCounters::*value;
};
constexpr Counted kCounted[] = {{"queries", &ComputeCounters::queries},
                                {"notifies", &ComputeCounters::notifies},
                                {"kills", &ComputeCounters::kills},
                                {"contributions", &ComputeCounters::contributions},
                                {"combined", &ComputeCounters::combined},
                                {"results", &ComputeCounters::results},
                                {"repeated", &ComputeCounters::repeated},
                                {"stale", &ComputeCounters::stale},
                                {"mismatches", &ComputeCounters::mismatches},
                                {"bad_checks", &ComputeCounters::bad_checks},
                                {"malformed", &ComputeCounters::malformed},
                                {"bad_versions", &ComputeCounters::bad_versions},
                                {"strangers", &ComputeCounters::strangers},
                                {"refusals", &ComputeCounters::refusals},
                                {"expired", &ComputeCounters::expired}};

const Compute* compute_of(const Switch& own) {
  return dynamic_cast<const Compute*>(own.compute.get());
}

void append_compute(std::string& text, const Compute& compute) {
  append(text, "  computes as %s: %zu groups, %zu slots in use, %.1f of %.1f MiB\n",
         compute.settings().spine ? "spine" : "tor", compute.groups(), compute.slots_in_use(),
         static_cast<double>(compute.memory_bytes()) / (1 << 20),
         static_cast<double>(compute.settings().memory_bytes) / (1 << 20));
  std::string counted;
  for (const Counted& one : kCounted) {
    const std::uint64_t value = compute.counters().*one.value;
    if (value > 0)
      append(counted, "%s%llu %s", counted.empty() ? "" : ", ", number(value), one.name);
  }
  if (!counted.empty()) text += "    " + counted + "\n";
  if (compute.waits().count() > 0) {
    append(text, "    from the first contribution to the last: median %.1f us, 99 %% %.1f us\n",
           static_cast<double>(compute.waits().quantile(0.5)) * 1e-3,
           static_cast<double>(compute.waits().quantile(0.99)) * 1e-3);
  }
}

}  // namespace

std::string status_text(const Fabric& fabric, std::uint64_t uptime_ns) {
  std::string text;
  append(text, "up %.0f s, %zu frames waiting, %.1f of %.1f MiB for frames in use\n",
         static_cast<double>(uptime_ns) * 1e-9, fabric.waiting(),
         static_cast<double>(fabric.pool().allocated_bytes()) / (1 << 20),
         static_cast<double>(fabric.pool().limit_bytes()) / (1 << 20));
  const Histogram& late = fabric.lateness();
  if (late.count() > 0) {
    append(text, "frames left late by: median %.1f us, 99 %% %.1f us, most %.1f us\n",
           static_cast<double>(late.quantile(0.5)) * 1e-3,
           static_cast<double>(late.quantile(0.99)) * 1e-3,
           static_cast<double>(late.largest()) * 1e-3);
  }
  for (const Switch& own : fabric.switches()) {
    append(text, "\n%s: latency %s, %zu addresses, %llu frames forwarded, %llu to all\n",
           own.name.c_str(), duration_text(own.latency_ns).c_str(), own.table.size(),
           number(own.forwarded), number(own.flooded));
    if (const Compute* compute = compute_of(own)) append_compute(text, *compute);
    append(text, "  %-16s %12s %14s %12s %14s %9s\n", "port", "received", "bytes", "sent", "bytes",
           "dropped");
    for (const std::uint32_t index : own.ports) {
      const Port& port = fabric.ports()[index];
      const PortCounters& counters = port.counters;
      append(text, "  %-16s %12llu %14llu %12llu %14llu %9llu  %s\n", port.name.c_str(),
             number(counters.received_frames), number(counters.received_bytes),
             number(counters.sent_frames), number(counters.sent_bytes), number(all_drops(counters)),
             port_notes(port).c_str());
      const std::string drops = drop_notes(counters);
      if (!drops.empty()) append(text, "  %-16s dropped: %s\n", "", drops.c_str());
    }
  }
  return text;
}

std::string status_json(const Fabric& fabric, std::uint64_t uptime_ns) {
  ordered_json top;
  top["version"] = OVERDRIVE_VERSION;
  top["uptime_seconds"] = static_cast<double>(uptime_ns) * 1e-9;
  top["frames_waiting"] = fabric.waiting();
  const FramePool& pool = fabric.pool();
  top["memory"] = {{"limit_bytes", pool.limit_bytes()},
                   {"allocated_bytes", pool.allocated_bytes()},
                   {"frames_in_use", pool.in_use()},
                   {"refused", pool.refused()}};
  const Histogram& late = fabric.lateness();
  top["lateness_ns"] = {{"count", late.count()},
                        {"median", late.quantile(0.5)},
                        {"p99", late.quantile(0.99)},
                        {"most", late.largest()}};
  top["switches"] = ordered_json::array();
  for (const Switch& own : fabric.switches()) {
    ordered_json shown;
    shown["name"] = own.name;
    shown["latency_ns"] = own.latency_ns;
    shown["addresses"] = own.table.size();
    shown["forwarded"] = own.forwarded;
    shown["flooded"] = own.flooded;
    if (const Compute* compute = compute_of(own)) {
      ordered_json& inside = shown["compute"];
      inside["role"] = compute->settings().spine ? "spine" : "tor";
      inside["groups"] = compute->groups();
      inside["slots_in_use"] = compute->slots_in_use();
      inside["memory_bytes"] = compute->memory_bytes();
      for (const Counted& one : kCounted) inside[one.name] = compute->counters().*one.value;
      inside["wait_ns"] = {{"count", compute->waits().count()},
                           {"median", compute->waits().quantile(0.5)},
                           {"p99", compute->waits().quantile(0.99)},
                           {"most", compute->waits().largest()}};
    }
    shown["ports"] = ordered_json::array();
    for (const std::uint32_t index : own.ports) {
      const Port& port = fabric.ports()[index];
      const LinkSettings& link = port.link.settings();
      const PortCounters& counters = port.counters;
      ordered_json drops;
      for (std::size_t i = 0; i < kDrops; ++i) {
        drops[drop_name(static_cast<Drop>(i))] = counters.drops[i];
      }
      shown["ports"].push_back({{"name", port.name},
                                {"up", port.up},
                                {"outside", port.peer == kNoPort},
                                {"rate_bits", link.rate_bits},
                                {"latency_ns", link.latency_ns},
                                {"loss", link.loss},
                                {"duplication", link.duplication},
                                {"reordering", link.reordering},
                                {"corruption", link.corruption},
                                {"received_frames", counters.received_frames},
                                {"received_bytes", counters.received_bytes},
                                {"sent_frames", counters.sent_frames},
                                {"sent_bytes", counters.sent_bytes},
                                {"duplicated", counters.duplicated},
                                {"reordered", counters.reordered},
                                {"corrupted", counters.corrupted},
                                {"drops", drops}});
    }
    top["switches"].push_back(shown);
  }
  return top.dump(1) + "\n";
}

std::string status_metrics(const Fabric& fabric, std::uint64_t uptime_ns) {
  std::string text;
  append(text,
         "# HELP overdrive_switch_uptime_seconds Time since the start.\n"
         "# TYPE overdrive_switch_uptime_seconds gauge\noverdrive_switch_uptime_seconds %.3f\n",
         static_cast<double>(uptime_ns) * 1e-9);
  append(text,
         "# HELP overdrive_switch_frames_waiting Frames that wait for their time.\n"
         "# TYPE overdrive_switch_frames_waiting gauge\noverdrive_switch_frames_waiting %zu\n",
         fabric.waiting());
  const FramePool& pool = fabric.pool();
  append(text,
         "# HELP overdrive_switch_memory_bytes Memory for frames.\n"
         "# TYPE overdrive_switch_memory_bytes gauge\noverdrive_switch_memory_bytes %zu\n",
         pool.allocated_bytes());
  const auto each_port = [&](const char* name, const char* help, auto&& value) {
    append(text, "# HELP overdrive_switch_%s %s\n# TYPE overdrive_switch_%s counter\n", name, help,
           name);
    for (const Port& port : fabric.ports()) {
      append(text, "overdrive_switch_%s{switch=\"%s\",port=\"%s\"} %llu\n", name,
             label(fabric.switches()[port.owner].name).c_str(), label(port.name).c_str(),
             number(value(port.counters)));
    }
  };
  each_port("received_frames_total", "Frames received.",
            [](const PortCounters& c) { return c.received_frames; });
  each_port("received_bytes_total", "Bytes received.",
            [](const PortCounters& c) { return c.received_bytes; });
  each_port("sent_frames_total", "Frames sent.",
            [](const PortCounters& c) { return c.sent_frames; });
  each_port("sent_bytes_total", "Bytes sent.", [](const PortCounters& c) { return c.sent_bytes; });
  append(text,
         "# HELP overdrive_switch_dropped_frames_total Frames dropped, by cause.\n"
         "# TYPE overdrive_switch_dropped_frames_total counter\n");
  for (const Port& port : fabric.ports()) {
    for (std::size_t i = 0; i < kDrops; ++i) {
      append(text, "overdrive_switch_dropped_frames_total{switch=\"%s\",port=\"%s\",cause=\"%s\"}",
             label(fabric.switches()[port.owner].name).c_str(), label(port.name).c_str(),
             drop_name(static_cast<Drop>(i)));
      append(text, " %llu\n", number(port.counters.drops[i]));
    }
  }
  for (const Counted& one : kCounted) {
    append(text, "# TYPE overdrive_switch_compute_%s_total counter\n", one.name);
    for (const Switch& own : fabric.switches()) {
      const Compute* const compute = compute_of(own);
      if (compute == nullptr) continue;
      append(text, "overdrive_switch_compute_%s_total{switch=\"%s\"} %llu\n", one.name,
             label(own.name).c_str(), number(compute->counters().*one.value));
    }
  }
  return text;
}

}  // namespace od::fabric
