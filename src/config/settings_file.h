// Reads a settings file (TOML) into a flat list of names, texts and line numbers.
//
// A setting may stand at top level or inside a table that has the name of its group:
//   eager_max = "4K"
//   [wait]
//   spin = "1ms"
#ifndef OVERDRIVE_CONFIG_SETTINGS_FILE_H_
#define OVERDRIVE_CONFIG_SETTINGS_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "config/trusted_file.h"

namespace od::config {

struct FileEntry {
  std::string table;  // name of the enclosing table, empty at top level
  std::string name;
  std::string text;    // in the notation of the environment
  std::string reason;  // if not empty, why the value cannot be a setting's value
  std::uint32_t line = 0;
};

struct FileContent {
  bool exists = false;
  std::string error;  // why the file is ignored; empty if it was read
  std::uint32_t error_line = 0;
  std::vector<FileEntry> entries;  // in the order of the file
};

// `last_link`: whether the file itself may be a symbolic link. Files that somebody else could have
// put there are not read (trusted_file.h).
FileContent read_settings_file(const std::string& path, LastLink last_link);

}  // namespace od::config

#endif  // OVERDRIVE_CONFIG_SETTINGS_FILE_H_
