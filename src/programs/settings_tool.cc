// overdrive-settings: prints as JSON what the library itself would see in this environment.
//
// The `overdrive` command builds `info` and the manual's tables from it, so that they can never say
// anything else than the library does. Options: --defaults leaves out environment and files;
// --counters adds the table of counters; --machine adds the topology, whether XPMEM is there and
// which way messages take;
// --issues prints, instead of everything else, what is wrong, a line each.
// Exit status 0, or 2 for a wrong option, or 3 if the settings would end a job (strict).
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>

#include "base/json_text.h"
#include "config/settings.h"
#include "memory/space_calls.h"
#include "observe/counters.h"
#include "p2p/copy_plan.h"
#include "p2p/path/path.h"
#include "topology/cpu_share.h"
#include "topology/fingerprint.h"
#include "topology/machine.h"

namespace od {
namespace {

const char* kind_name(config::Issue::Kind kind) {
  switch (kind) {
    case config::Issue::Kind::kBadValue:
      return "bad value";
    case config::Issue::Kind::kUnknownName:
      return "unknown name";
    case config::Issue::Kind::kBadFile:
      return "bad file";
    case config::Issue::Kind::kAdjusted:
      return "adjusted";
    case config::Issue::Kind::kStale:
      return "stale";
  }
  return "";
}

void write_settings(JsonWriter& json, const config::LoadResult& loaded) {
  const config::Settings defaults;
  json.key("settings");
  json.open_array();
  for (std::size_t i = 0; i < config::kSettingCount; ++i) {
    const config::SettingInfo& info = config::setting_infos()[i];
    json.open_object();
    json.member("name", info.name);
    json.member("variable", config::variable_name(info.name));
    json.member("type", info.type);
    json.member("choices", info.choices());
    json.member("default", info.value_text(defaults));
    json.member("min", info.min_text());
    json.member("max", info.max_text());
    json.member("value", info.value_text(loaded.settings));
    json.member("source", config::source_name(loaded.origins[i].source));
    json.member("place", loaded.origins[i].place);
    json.member("group", info.group);
    json.member("doc", info.doc);
    json.member("agreed", info.agreed);
    json.close_object();
  }
  json.close_array();
  json.key("issues");
  json.open_array();
  for (const config::Issue& issue : loaded.issues) {
    json.open_object();
    json.member("kind", kind_name(issue.kind));
    json.member("message", issue.message);
    json.close_object();
  }
  json.close_array();
  json.member("must_stop", loaded.must_stop);
}

void write_files(JsonWriter& json, const config::Paths& paths) {
  json.key("files");
  json.open_array();
  for (const std::string& path : {paths.project_file, paths.user_file}) {
    if (path.empty()) continue;
    json.open_object();
    json.member("path", path);
    json.member("exists", access(path.c_str(), F_OK) == 0);
    json.close_object();
  }
  json.close_array();
}

void write_calibration(JsonWriter& json, const config::CalibrationUse& use) {
  const char* state = "none";
  switch (use.state) {
    case config::CalibrationUse::State::kNone:
      break;
    case config::CalibrationUse::State::kUsed:
      state = "used";
      break;
    case config::CalibrationUse::State::kOff:
      state = "off";
      break;
    case config::CalibrationUse::State::kIgnored:
      state = "ignored";
      break;
  }
  json.key("calibration");
  json.open_object();
  json.member("path", use.file);
  json.member("state", state);
  json.member("why", use.why);
  json.member("date", use.date);
  json.close_object();
}

void write_counters(JsonWriter& json) {
  json.key("counters");
  json.open_array();
  for (const observe::CounterInfo& info : observe::kCounterInfos) {
    json.open_object();
    json.member("name", info.name);
    json.member("kind", info.kind == observe::CounterKind::kSum ? "sum" : "peak");
    json.member("group", info.group);
    json.member("doc", info.doc);
    json.close_object();
  }
  json.close_array();
}

const char* counter_name(std::uint64_t observe::Counters::*field) {
  for (const observe::CounterInfo& info : observe::kCounterInfos) {
    if (info.field == field) return info.name;
  }
  return "";
}

using SizeField = std::uint64_t config::Settings::*;

template <typename Value>
bool same_field(SizeField one, Value config::Settings::*other) {
  if constexpr (std::is_same_v<Value, std::uint64_t>) return one == other;
  return false;
}

// Of a setting that the table of copy paths names.
const char* setting_name(SizeField field) {
#define OD_NAME_OF(own, type, name, ...) \
  if (same_field(field, &config::Settings::own)) return name;
  OD_SETTINGS(OD_NAME_OF, OD_NAME_OF)
#undef OD_NAME_OF
  return "";
}

void write_path(JsonWriter& json, const p2p::PathWords& words, const p2p::PathRow* row) {
  json.open_object();
  json.member("name", words.name);
  json.member("forced", row != nullptr);
  json.member("doc", words.doc);
  json.member("who", words.who);
  json.member("needs", words.needs);
  json.member("good_for", words.good_for);
  json.member("option", words.option);
  json.key("settings");
  json.open_array();
  if (row != nullptr) {
    for (const auto field : {row->min_bytes[0], row->rewritten_min_bytes[0], row->min_bytes[1],
                             row->rewritten_min_bytes[1]}) {
      if (field != nullptr) json.value(setting_name(field));
    }
  }
  json.close_array();
  json.key("counters");
  json.open_array();
  for (const auto field : {words.sends, words.receives, words.bytes}) {
    json.value(counter_name(field));
  }
  json.close_array();
  json.close_object();
}

// The paths of messages: those of short ones, then those that `copy_path` can force.
void write_paths(JsonWriter& json) {
  json.key("paths");
  json.open_array();
  for (const p2p::PathWords& words : p2p::short_paths()) write_path(json, words, nullptr);
  for (const p2p::PathRow& row : p2p::kPathRows) write_path(json, row.words, &row);
  json.close_array();
}

// From which size on messages take which way, as the engine asks the same plan.
void write_routes(JsonWriter& json, const config::Settings& s) {
  const p2p::CopyPlan plan(s);
  std::set<std::uint64_t> sizes = {0, plan.floor_bytes()};
  for (const p2p::PathRow& row : p2p::kPathRows) {
    for (const bool far : {false, true}) {
      for (const auto field : {row.min_bytes[far ? 1 : 0], row.rewritten_min_bytes[far ? 1 : 0]}) {
        if (field != nullptr) sizes.insert(s.*field);
      }
    }
  }
  json.key("routes");
  json.open_array();
  for (const bool far : {false, true}) {
    for (const auto& [buffer, reachable, use] :
         {std::tuple{"unchanged", true, memory::BufferUse::unchanged},
          std::tuple{"rewritten", true, memory::BufferUse::rewritten},
          std::tuple{"elsewhere", false, memory::BufferUse::rewritten}}) {
      json.open_object();
      json.member("distance", far ? "far" : "near");
      json.member("buffer", buffer);
      json.key("from");
      json.open_array();
      std::string last;
      for (const std::uint64_t bytes : sizes) {
        // Messages of a tebibyte stand for "never" in the settings.
        if (bytes >= config::kTiB) continue;
        const bool below = bytes < plan.floor_bytes();
        const std::string way =
            p2p::name_of(below ? p2p::Path::cells : plan.choose(bytes, far, reachable, use));
        if (way == last) continue;
        last = way;
        json.open_object();
        json.member("bytes", bytes);
        json.member("way", way);
        json.close_object();
      }
      json.close_array();
      json.close_object();
    }
  }
  json.close_array();
}

void write_caches(JsonWriter& json, const std::vector<topology::Cpu>& cpus) {
  json.key("caches");
  json.open_array();
  std::set<std::string> seen;
  for (const topology::Cpu& cpu : cpus) {
    for (const topology::Cache& cache : cpu.caches) {
      const std::string shared_by = topology::format_cpu_list(cache.shared_by);
      if (!seen.insert(std::to_string(cache.level) + ' ' + shared_by).second) continue;
      json.open_object();
      json.member("level", cache.level);
      json.member("size_bytes", cache.size_bytes);
      json.member("line_bytes", cache.line_bytes);
      json.member("shared_by", shared_by);
      json.close_object();
    }
  }
  json.close_array();
}

// Why XPMEM is not there; "": it is.
void write_xpmem(JsonWriter& json) {
  std::string why;
  if (memory::xpmem_calls(&why) != nullptr) why.clear();
  json.member("xpmem", why);
}

void write_machine(JsonWriter& json) {
  const topology::CpuShare share = topology::own_cpu_share();
  const topology::CpuSet online = topology::online_cpus();
  const std::vector<topology::Cpu> cpus = topology::read_online_cpus();
  json.key("machine");
  json.open_object();
  json.member("online_cpus", topology::format_cpu_list(online));
  json.member("affinity", topology::format_cpu_list(share.affinity));
  json.member("quota_milli_cpus", share.quota.milli_cpus);
  json.member("usable_cpus", topology::node_load({&share, 1}, online.count()).usable_cpus);
  json.key("cpus");
  json.open_array();
  for (const topology::Cpu& cpu : cpus) {
    json.open_object();
    json.member("id", cpu.id);
    json.member("core", cpu.core);
    json.member("package", cpu.package);
    json.member("numa_node", cpu.numa_node);
    json.close_object();
  }
  json.close_array();
  write_caches(json, cpus);
  json.close_object();
}

int run(int argc, char** argv) {
  bool defaults = false;
  bool counters = false;
  bool machine = false;
  bool only_issues = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--defaults") == 0) {
      defaults = true;
    } else if (std::strcmp(argv[i], "--counters") == 0) {
      counters = true;
    } else if (std::strcmp(argv[i], "--machine") == 0) {
      machine = true;
    } else if (std::strcmp(argv[i], "--issues") == 0) {
      only_issues = true;
    } else {
      std::fprintf(stderr,
                   "usage: overdrive-settings [--defaults] [--counters] [--machine] | --issues\n");
      return 2;
    }
  }
  config::Paths paths = config::standard_paths(environ);
  paths.fingerprint = [] { return topology::fingerprint(); };
  const config::LoadResult loaded =
      defaults ? config::load({}, {}) : config::load(config::overdrive_environment(environ), paths);
  if (only_issues) {
    for (const config::Issue& issue : loaded.issues) std::printf("%s\n", issue.message.c_str());
    return loaded.must_stop ? 3 : 0;
  }
  JsonWriter json;
  json.open_object();
  json.member("version", OVERDRIVE_VERSION);
  json.member("fingerprint", topology::fingerprint());
  if (!defaults) {
    write_files(json, paths);
    write_calibration(json, loaded.calibration);
  }
  write_settings(json, loaded);
  if (counters) write_counters(json);
  write_paths(json);
  if (machine) {
    write_machine(json);
    write_xpmem(json);
    write_routes(json, loaded.settings);
  }
  json.close_object();
  std::fputs(json.take().c_str(), stdout);
  return loaded.must_stop ? 3 : 0;
}

}  // namespace
}  // namespace od

int main(int argc, char** argv) { return od::run(argc, argv); }
