// Formats counters and writes them where the user asked.
#include "observe/stats.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/json_text.h"
#include "config/settings_types.h"
#include "config/trusted_file.h"

namespace od::observe {
namespace {

// All bytes or an errno value.
int write_fully(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

struct Summary {
  std::uint64_t total = 0;  // sum, or largest value of a peak
  std::uint64_t smallest = 0;
  std::uint64_t largest = 0;
};

Summary summarise(std::span<const Counters> ranks, const CounterInfo& info) {
  Summary summary;
  bool first = true;
  for (const Counters& counters : ranks) {
    const std::uint64_t value = counters.*info.field;
    summary.total =
        info.kind == CounterKind::kSum ? summary.total + value : std::max(summary.total, value);
    summary.smallest = first ? value : std::min(summary.smallest, value);
    summary.largest = std::max(summary.largest, value);
    first = false;
  }
  return summary;
}

}  // namespace

StatsOutput stats_output(std::string_view setting) {
  if (config::OutputType::names_output(setting)) return StatsOutput::kFile;
  bool truth = false;
  std::string reason;
  config::BoolType::parse(setting, truth, reason);
  return truth ? StatsOutput::kTable : StatsOutput::kNone;
}

std::string stats_table(std::span<const Counters> ranks, const JobFacts& facts) {
  char line[256];
  std::string table = "overdrive " + facts.version + " statistics: " + std::to_string(facts.size) +
                      (facts.size == 1 ? " rank" : " ranks");
  std::snprintf(line, sizeof line, ", %.3f s", static_cast<double>(facts.elapsed_ns) * 1e-9);
  table += line;
  if (!facts.host_library.empty()) table += ", over " + facts.host_library;
  table += '\n';
  std::snprintf(line, sizeof line, "  %-22s %20s %18s %18s\n", "", "all ranks", "smallest",
                "largest");
  table += line;
  std::string_view group;
  bool any = false;
  for (const CounterInfo& info : kCounterInfos) {
    const Summary summary = summarise(ranks, info);
    if (summary.largest == 0) continue;
    any = true;
    if (group != info.group) {
      group = info.group;
      table += ' ';
      table += group;
      table += '\n';
    }
    std::snprintf(line, sizeof line, "  %-22s %20llu %18llu %18llu  %s\n", info.name,
                  static_cast<unsigned long long>(summary.total),
                  static_cast<unsigned long long>(summary.smallest),
                  static_cast<unsigned long long>(summary.largest), info.doc);
    table += line;
  }
  if (!any) table += "  nothing was counted\n";
  table += facts.collectives;
  table += facts.overlap;
  table += facts.calls;
  table += facts.arrivals;
  return table;
}

std::string stats_json(const Counters& counters, const JobFacts& facts) {
  JsonWriter json;
  json.open_object();
  json.member("overdrive", facts.version);
  json.member("rank", facts.rank);
  json.member("size", facts.size);
  json.member("node", facts.host_name);
  json.member("host_library", facts.host_library);
  json.member("elapsed_ns", facts.elapsed_ns);
  json.key("counters");
  json.open_object();
  for (const CounterInfo& info : kCounterInfos) json.member(info.name, counters.*info.field);
  json.close_object();
  if (!facts.collectives.empty()) {
    json.key("collectives");
    json.document(facts.collectives);
  }
  if (!facts.overlap.empty()) {
    json.key("overlap");
    json.document(facts.overlap);
  }
  if (!facts.calls.empty()) {
    json.key("call_sites");
    json.document(facts.calls);
  }
  if (!facts.arrivals.empty()) {
    json.key("arrivals");
    json.document(facts.arrivals);
  }
  if (!facts.recording.empty()) {
    json.member("cpus", facts.cpus);
    json.member("peak_memory_bytes", facts.peak_memory_bytes);
    json.member("why_not_shared", facts.why_not_shared);
    json.key("crowding");
    json.open_array();
    for (const std::string& sentence : facts.crowding) json.value(sentence);
    json.close_array();
    json.key("recording");
    json.document(facts.recording);
  }
  json.close_object();
  return json.take();
}

std::string title_of(std::string_view version) {
  std::string title;
  bool gap = false;
  for (const char c : version.substr(0, version.find('\n'))) {
    if (c == ' ' || c == '\t' || c == '\r') {
      gap = !title.empty();
      continue;
    }
    if (gap) title += ' ';
    gap = false;
    title += c;
  }
  return title;
}

std::string stats_path(std::string_view setting, int rank) {
  std::string path;
  bool has_rank = false;
  for (std::size_t i = 0; i < setting.size(); ++i) {
    const char next = setting[i] == '%' && i + 1 < setting.size() ? setting[i + 1] : '\0';
    if (next == 'r') {
      path += std::to_string(rank);
      has_rank = true;
      ++i;
    } else if (next == '%') {
      path += '%';
      ++i;
    } else {
      path += setting[i];
    }
  }
  return has_rank ? path : path + '.' + std::to_string(rank);
}

void write_to_stderr(std::string_view text) { write_fully(STDERR_FILENO, text); }

std::string write_rank_file(std::string_view setting, int rank, std::string_view what,
                            const std::string& text) {
  const std::string path = stats_path(setting, rank);
  const std::string failure = "cannot write " + std::string(what) + " to " + path + ": ";
  std::string reason;
  const int fd = config::open_trusted_output(path, reason);
  if (fd < 0) return failure + reason;
  int error = write_fully(fd, text);
  if (close(fd) != 0 && error == 0) error = errno;
  return error == 0 ? std::string{} : failure + std::strerror(error);
}

}  // namespace od::observe
