// Applies the sources of settings in ascending precedence and checks the result.
#include "config/settings.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/nearest_name.h"
#include "config/calibration.h"
#include "config/settings_file.h"

namespace od::config {
namespace {

constexpr std::string_view kPrefix = "OVERDRIVE_";

// Rules that choose algorithms of collectives are checked where they are understood
// (coll/plan/select).
constexpr std::string_view kRulePrefix = "OVERDRIVE_ADJUST_";

// Set by the `overdrive` command: the names, separated by commas, that were given on its command
// line. Only tells where values come from.
constexpr std::string_view kCommandLineVariable = "OVERDRIVE_COMMAND_LINE";

// Variables with our prefix that are not settings: read by the loader or the command, set by
// modulefiles, or meant for the build and the test suite of a checkout, whose jobs inherit them.
constexpr std::string_view kOtherVariables[] = {
    kCommandLineVariable,     "OVERDRIVE_LIBRARY",    "OVERDRIVE_FACE_DIR",
    "OVERDRIVE_ROOT",         "OVERDRIVE_HOME",       "OVERDRIVE_VERSION",
    "OVERDRIVE_HOSTS_DIR",    "OVERDRIVE_VENV_DIR",   "OVERDRIVE_WERROR",
    "OVERDRIVE_TEST_LIBRARY", "OVERDRIVE_TEST_SEED",  "OVERDRIVE_TEST_TIME_SCALE",
    "OVERDRIVE_TEST_JOB_ID",  "OVERDRIVE_TESTS_BUILD"};

template <class Type>
bool assign_checked(std::string_view text, typename Type::Bound min, typename Type::Bound max,
                    typename Type::Value& target, std::string& reason) {
  typename Type::Value value{};
  if (!Type::parse(text, value, reason)) return false;
  if (!Type::in_range(value, min, max)) {
    reason = "is out of range: " + Type::format_bound(min) + " to " + Type::format_bound(max);
    return false;
  }
  target = std::move(value);
  return true;
}

// State of one load(): the result under construction and the helpers that fill it.
class Loading {
 public:
  explicit Loading(LoadResult& result) : result_(result) {}

  void apply_file(const std::string& path, const FileContent& content, Source source) {
    if (!content.error.empty()) {
      std::string place = path;
      if (content.error_line != 0) place += ':' + std::to_string(content.error_line);
      add(Issue::Kind::kBadFile, place + ": " + content.error + "; the whole file is ignored");
      return;
    }
    for (const FileEntry& entry : content.entries) {
      apply_entry(entry, source, path + ':' + std::to_string(entry.line));
    }
  }

  void apply_environment(const Env& environment) {
    std::string command_line;
    for (const auto& [variable, value] : environment) {
      if (variable == kCommandLineVariable) command_line = ',' + value + ',';
    }
    for (const auto& [variable, value] : environment) {
      if (std::find(std::begin(kOtherVariables), std::end(kOtherVariables), variable) !=
          std::end(kOtherVariables)) {
        continue;
      }
      if (variable.compare(0, kRulePrefix.size(), kRulePrefix) == 0) continue;
      const std::optional<std::size_t> index = index_of_variable(variable);
      if (!index) {
        report_unknown_variable(variable);
        continue;
      }
      if (value.empty()) continue;  // an empty variable counts as not set
      const std::string name = setting_infos()[*index].name;
      const bool from_command = command_line.find(',' + name + ',') != std::string::npos;
      if (from_command) {
        assign(*index, value, Source::kCommandLine, "--set " + name);
      } else {
        assign(*index, value, Source::kEnvironment, variable);
      }
    }
  }

  // `chosen` is the value of the setting `calibration`.
  void apply_calibration(const std::string& chosen, const Paths& paths) {
    CalibrationUse& use = result_.calibration;
    const bool automatic = chosen == "auto" || chosen.empty();
    use.file = automatic || chosen == "off" ? paths.calibration_file : chosen;
    if (chosen == "off") {
      use.state = CalibrationUse::State::kOff;
      return;
    }
    if (use.file.empty()) return;
    const FileContent content = read_settings_file(use.file, LastLink::kFollowed);
    if (!content.exists && automatic) return;
    Calibration found;
    if (content.exists) {
      found = judge_calibration(content, paths.fingerprint);
    } else {
      found.why = "there is no such file";
    }
    use.date = found.date;
    if (!found.valid) {
      use.state = CalibrationUse::State::kIgnored;
      use.why = found.why;
      add(found.stale ? Issue::Kind::kStale : Issue::Kind::kBadFile,
          "calibration " + use.file + " is ignored: " + found.why +
              "; using built-in thresholds, `overdrive calibrate` measures this machine");
      return;
    }
    use.state = CalibrationUse::State::kUsed;
    for (const FileEntry& entry : found.thresholds) {
      apply_entry(entry, Source::kCalibration, use.file + ':' + std::to_string(entry.line));
    }
  }

  // Settings that are right one by one may still not fit together.
  void reconcile() {
    Settings& s = result_.settings;
    if (!std::has_single_bit(s.cell_bytes)) {
      adjust("cell_bytes", s.cell_bytes, std::bit_floor(s.cell_bytes), "is not a power of two");
    }
    if (s.cell_bytes > s.pool_bytes / 4) {
      adjust("cell_bytes", s.cell_bytes, std::bit_floor(s.pool_bytes / 4),
             "is more than a quarter of pool_bytes");
    }
    // Two messages must fit into a box, or sender and receiver work in lock step.
    if (s.inline_max_bytes > s.fastbox_bytes / 2) {
      adjust("inline_max", s.inline_max_bytes, s.fastbox_bytes / 2,
             "is more than half of fastbox_bytes");
    }
  }

 private:
  void add(Issue::Kind kind, std::string message) {
    result_.issues.push_back(Issue{kind, std::move(message)});
  }

  static std::optional<std::size_t> index_of_name(std::string_view name) {
    const auto& infos = setting_infos();
    for (std::size_t i = 0; i < infos.size(); ++i) {
      if (name == infos[i].name) return i;
    }
    return std::nullopt;
  }

  static std::optional<std::size_t> index_of_variable(std::string_view variable) {
    const auto& infos = setting_infos();
    for (std::size_t i = 0; i < infos.size(); ++i) {
      if (variable == variable_name(infos[i].name)) return i;
    }
    return std::nullopt;
  }

  void report_unknown_variable(const std::string& variable) {
    std::vector<std::string> known;
    for (const SettingInfo& info : setting_infos()) known.push_back(variable_name(info.name));
    // The common prefix would make everything look alike.
    std::vector<std::string> endings;
    for (const std::string& name : known) endings.push_back(name.substr(kPrefix.size()));
    std::string ending = variable.substr(kPrefix.size());
    std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : static_cast<char>(c);
    });
    const std::string nearest = nearest_name(ending, endings);
    add(Issue::Kind::kUnknownName,
        "environment variable " + variable + " is unknown and has no effect; " +
            (nearest.empty() ? "`overdrive info --settings` lists all"
                             : "did you mean " + std::string(kPrefix) + nearest + "?"));
  }

  void apply_entry(const FileEntry& entry, Source source, const std::string& place) {
    const std::optional<std::size_t> index = index_of_name(entry.name);
    if (!index) {
      std::vector<std::string> known;
      for (const SettingInfo& info : setting_infos()) known.emplace_back(info.name);
      const std::string nearest = nearest_name(entry.name, known);
      add(Issue::Kind::kUnknownName, place + ": setting '" + entry.name +
                                         "' is unknown and has no effect; " +
                                         (nearest.empty() ? "`overdrive info --settings` lists all"
                                                          : "did you mean " + nearest + "?"));
      return;
    }
    const SettingInfo& info = setting_infos()[*index];
    if (!entry.table.empty() && entry.table != info.group) {
      add(Issue::Kind::kUnknownName, place + ": setting '" + entry.name + "' does not belong in [" +
                                         entry.table + "] and has no effect; write it in [" +
                                         info.group + "] or above all tables");
      return;
    }
    if (!entry.reason.empty()) {
      report_bad_value(info, place, entry.name, entry.reason);
      return;
    }
    // Who unpacks or checks out somebody's folder and runs a job in it must not lose a file.
    if (source == Source::kProjectFile && info.names_output(entry.text)) {
      report_bad_value(info, place, "'" + entry.text + "'",
                       "names a file to write, which a project file may not do; set " +
                           variable_name(info.name) + " or write it in the user file");
      return;
    }
    assign(*index, entry.text, source, place);
  }

  void assign(std::size_t index, std::string_view text, Source source, const std::string& place) {
    const SettingInfo& info = setting_infos()[index];
    std::string reason;
    if (info.assign(result_.settings, text, reason)) {
      result_.origins[index] = Origin{source, place};
      return;
    }
    report_bad_value(info, place, "'" + std::string(text) + "'", reason);
  }

  void report_bad_value(const SettingInfo& info, const std::string& place, const std::string& what,
                        const std::string& reason) {
    const Origin& origin =
        result_.origins[static_cast<std::size_t>(&info - setting_infos().data())];
    const std::string value = info.value_text(result_.settings);
    add(Issue::Kind::kBadValue, place + ": " + what + " cannot be the value of " + info.name +
                                    ": it " + reason + "; using " +
                                    (value.empty() ? "none" : value) + " (" +
                                    source_name(origin.source) + ")");
  }

  void adjust(const char* name, std::uint64_t& value, std::uint64_t usable, const char* why) {
    add(Issue::Kind::kAdjusted, std::string(name) + " = " + SizeType::format(value) + " " + why +
                                    "; using " + SizeType::format(usable));
    value = usable;
  }

  LoadResult& result_;
};

std::string lookup(const char* const* environment, std::string_view name) {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.size() > name.size() && entry.substr(0, name.size()) == name &&
        entry[name.size()] == '=') {
      return std::string(entry.substr(name.size() + 1));
    }
  }
  return {};
}

}  // namespace

const std::array<SettingInfo, kSettingCount>& setting_infos() {
#define OD_SETTINGS_INFO(agreed, field, type, name, default_value, min, max, group, doc) \
  SettingInfo{name,                                                                      \
              type::kTypeName,                                                           \
              #group,                                                                    \
              doc,                                                                       \
              agreed,                                                                    \
              [] { return choice_words<type>(); },                                       \
              [] { return type::format_bound(min); },                                    \
              [] { return type::format_bound(max); },                                    \
              [](const Settings& s) { return type::format(s.field); },                   \
              [](std::string_view text) { return names_output<type>(text); },            \
              [](Settings& s, std::string_view text, std::string& reason) {              \
                return assign_checked<type>(text, min, max, s.field, reason);            \
              }},
#define OD_SETTINGS_OWN(...) OD_SETTINGS_INFO(false, __VA_ARGS__)
#define OD_SETTINGS_AGREED(...) OD_SETTINGS_INFO(true, __VA_ARGS__)
  static constexpr std::array<SettingInfo, kSettingCount> kInfos = {
      {OD_SETTINGS(OD_SETTINGS_OWN, OD_SETTINGS_AGREED)}};
#undef OD_SETTINGS_AGREED
#undef OD_SETTINGS_OWN
#undef OD_SETTINGS_INFO
  return kInfos;
}

std::string variable_name(std::string_view setting_name) {
  std::string variable(kPrefix);
  for (const char c : setting_name) {
    variable += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return variable;
}

const char* source_name(Source source) {
  switch (source) {
    case Source::kBuiltIn:
      return "built-in";
    case Source::kCalibration:
      return "calibration";
    case Source::kUserFile:
      return "user file";
    case Source::kProjectFile:
      return "project file";
    case Source::kEnvironment:
      return "environment";
    case Source::kCommandLine:
      return "command line";
  }
  return "built-in";
}

Env overdrive_environment(const char* const* environment) {
  Env found;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || entry.substr(0, kPrefix.size()) != kPrefix) continue;
    found.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return found;
}

Paths standard_paths(const char* const* environment) {
  Paths paths;
  paths.project_file = "overdrive.toml";
  std::string base = lookup(environment, "XDG_CONFIG_HOME");
  // The base directory specification says to ignore relative paths.
  if (base.empty() || base.front() != '/') {
    const std::string home = lookup(environment, "HOME");
    base = home.empty() ? std::string{} : home + "/.config";
  }
  if (!base.empty()) {
    paths.user_file = base + "/overdrive/config.toml";
    paths.calibration_file = base + "/overdrive/calibration.toml";
  }
  return paths;
}

LoadResult load(const Env& environment, const Paths& paths) noexcept {
  try {
    const FileContent user = paths.user_file.empty()
                                 ? FileContent{}
                                 : read_settings_file(paths.user_file, LastLink::kFollowed);
    const FileContent project = paths.project_file.empty()
                                    ? FileContent{}
                                    : read_settings_file(paths.project_file, LastLink::kRefused);
    const auto apply = [&](Loading& loading) {
      loading.apply_file(paths.user_file, user, Source::kUserFile);
      loading.apply_file(paths.project_file, project, Source::kProjectFile);
      loading.apply_environment(environment);
    };
    // Which calibration counts is a setting itself, and comes from the sources above it.
    LoadResult first;
    Loading look_ahead(first);
    apply(look_ahead);
    LoadResult result;
    Loading loading(result);
    loading.apply_calibration(first.settings.calibration, paths);
    apply(loading);
    loading.reconcile();
    const bool wrong =
        std::any_of(result.issues.begin(), result.issues.end(),
                    [](const Issue& issue) { return issue.kind != Issue::Kind::kStale; });
    result.must_stop = result.settings.strict && wrong;
    return result;
  } catch (...) {
    // Only memory exhaustion gets here. The defaults need no memory (short strings are stored in
    // place), and the job must not end because settings could not be read.
    return LoadResult{};
  }
}

}  // namespace od::config
