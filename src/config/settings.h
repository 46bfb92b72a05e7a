// Loads the settings of a job from the environment, ./overdrive.toml, the user's file and the
// calibration of this machine.
//
// Precedence, highest first: command line (the `overdrive` command hands it over through the
// environment), environment, ./overdrive.toml, user file, calibration, built-in value. load() is
// pure: it reads the files it is given and nothing else, prints nothing, throws nothing. The caller
// decides who reports the issues (usually rank 0) and whether the job ends (LoadResult::must_stop).
#ifndef OVERDRIVE_CONFIG_SETTINGS_H_
#define OVERDRIVE_CONFIG_SETTINGS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/settings_table.h"
#include "config/settings_types.h"

namespace od::config {

// One plain member per row of the table.
struct Settings {
#define OD_SETTINGS_FIELD(field, type, name, default_value, min, max, group, doc) \
  type::Value field = default_value;
  OD_SETTINGS(OD_SETTINGS_FIELD, OD_SETTINGS_FIELD)
#undef OD_SETTINGS_FIELD
};

#define OD_SETTINGS_COUNT(field, type, name, default_value, min, max, group, doc) +1
inline constexpr std::size_t kSettingCount = 0 OD_SETTINGS(OD_SETTINGS_COUNT, OD_SETTINGS_COUNT);
#undef OD_SETTINGS_COUNT

// What is known about a setting beside its value; the same for every job.
struct SettingInfo {
  const char* name;
  const char* type;   // bool, int, size, duration, choice, string, pairs
  const char* group;  // section of the manual
  const char* doc;
  bool agreed;                                 // rank 0's value counts for the whole job
  std::string (*choices)();                    // words separated by '|', or empty
  std::string (*min_text)();                   // smallest accepted value
  std::string (*max_text)();                   // largest accepted value
  std::string (*value_text)(const Settings&);  // value in the notation users write
  // True for the text of a value that is the path of a file to write.
  bool (*names_output)(std::string_view text);
  // Sets the value from text; false with a reason if the text is not acceptable.
  bool (*assign)(Settings&, std::string_view text, std::string& reason);
};

// All settings in the order of the table.
const std::array<SettingInfo, kSettingCount>& setting_infos();

// The environment variable of a setting: OVERDRIVE_ and the name in upper case.
std::string variable_name(std::string_view setting_name);

enum class Source { kBuiltIn, kCalibration, kUserFile, kProjectFile, kEnvironment, kCommandLine };

// "built-in", "calibration", "user file", "project file", "environment", "command line".
const char* source_name(Source source);

// Where the value of a setting comes from.
struct Origin {
  Source source = Source::kBuiltIn;
  std::string place;  // "file:line" or the variable; empty for built-in
};

struct Issue {
  enum class Kind {
    kBadValue,     // cannot be read or is out of range; a lower source is used
    kUnknownName,  // no such setting
    kBadFile,      // a file cannot be read or is not TOML; the file is ignored
    kAdjusted,     // two settings do not fit together; one was changed
    kStale,        // the calibration was measured under other conditions; it is ignored
  };
  Kind kind;
  std::string message;  // one line: place, what is wrong, what to do, what is used instead
};

// The OVERDRIVE_* part of an environment: name (with prefix) and value.
using Env = std::vector<std::pair<std::string, std::string>>;

// Collects the OVERDRIVE_* variables of an `environ`-like array (which may be null).
Env overdrive_environment(const char* const* environment);

// Files to read; empty means none. A file that does not exist is not an error.
struct Paths {
  std::string project_file;
  std::string user_file;
  std::string calibration_file{};          // counts where the setting `calibration` is "auto"
  std::string (*fingerprint)() = nullptr;  // of this machine; called if there is a calibration
};

// What has become of the calibration file.
struct CalibrationUse {
  enum class State { kNone, kUsed, kOff, kIgnored };
  State state = State::kNone;  // kNone: there is no such file
  std::string file;
  std::string why;   // kIgnored: what is wrong with it
  std::string date;  // of the measurement, as the file says
};

// ./overdrive.toml and $XDG_CONFIG_HOME/overdrive/config.toml (or ~/.config/overdrive/config.toml),
// and calibration.toml beside the latter. The fingerprint is the caller's to add.
Paths standard_paths(const char* const* environment);

struct LoadResult {
  Settings settings;
  std::array<Origin, kSettingCount> origins;  // in the order of setting_infos()
  std::vector<Issue> issues;
  CalibrationUse calibration;
  bool must_stop = false;  // there are issues beside a stale calibration, and `strict` is on
};

LoadResult load(const Env& environment, const Paths& paths) noexcept;

}  // namespace od::config

#endif  // OVERDRIVE_CONFIG_SETTINGS_H_
