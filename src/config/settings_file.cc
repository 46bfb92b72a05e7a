// The only place that knows the TOML parser; compiled without its exceptions and streams.
#include "config/settings_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#define TOML_HEADER_ONLY 1
// The parser asserts what a file with mistakes does not fulfil (such as "[[["), and then reports
// the mistake all the same.
#define TOML_ASSERT(expression) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>

namespace od::config {
namespace {

// A settings file is a page of text; anything far larger is some other file.
constexpr off_t kMaxFileBytes = 1 << 20;

// The file's text; empty optional with `error` set if it cannot be had (error stays empty if the
// file does not exist).
std::optional<std::string> read_text(const std::string& path, std::string& error) {
  // O_NONBLOCK: opening a FIFO of that name must not hang the job.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    if (errno != ENOENT && errno != ENOTDIR)
      error = std::string("cannot be opened: ") + strerror(errno);
    return std::nullopt;
  }
  struct stat status {};
  std::string text;
  if (fstat(fd, &status) != 0) {
    error = std::string("cannot be examined: ") + strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    error = "is not a regular file";
  } else if (status.st_size > kMaxFileBytes) {
    error = "is larger than 1 MiB, which no settings file is";
  } else {
    text.resize(static_cast<std::size_t>(status.st_size));
    std::size_t filled = 0;
    while (filled < text.size()) {
      const ssize_t got = read(fd, text.data() + filled, text.size() - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) error = std::string("cannot be read: ") + strerror(errno);
      if (got <= 0) break;
      filled += static_cast<std::size_t>(got);
    }
    text.resize(filled);
  }
  close(fd);
  if (!error.empty()) return std::nullopt;
  return text;
}

// Turns a TOML value into the notation of the environment.
void set_text(const toml::node& node, FileEntry& entry) {
  if (const auto* text = node.as_string()) {
    entry.text = text->get();
  } else if (const auto* truth = node.as_boolean()) {
    // 1 and 0 are read by truth values and by `stats` alike.
    entry.text = truth->get() ? "1" : "0";
  } else if (const auto* number = node.as_integer()) {
    entry.text = std::to_string(number->get());
  } else if (const auto* list = node.as_array()) {
    for (const toml::node& item : *list) {
      const auto* text = item.as_string();
      if (text == nullptr) {
        entry.reason = "must be a list of strings, such as [\"0-1\", \"2-3\"]";
        return;
      }
      if (!entry.text.empty()) entry.text += ',';
      entry.text += text->get();
    }
  } else {
    entry.reason = "must be true, false, a whole number, a string or a list of strings";
  }
}

void collect(const toml::table& table, const std::string& table_name,
             std::vector<FileEntry>& entries) {
  for (const auto& [key, node] : table) {
    FileEntry entry;
    entry.table = table_name;
    entry.name = std::string(key.str());
    entry.line = node.source().begin.line;
    const toml::table* inner = node.as_table();
    if (inner != nullptr && table_name.empty()) {
      collect(*inner, entry.name, entries);
      continue;
    }
    set_text(node, entry);
    entries.push_back(std::move(entry));
  }
}

}  // namespace

FileContent read_settings_file(const std::string& path) {
  FileContent content;
  const std::optional<std::string> text = read_text(path, content.error);
  content.exists = text.has_value() || !content.error.empty();
  if (!text) return content;
  const toml::parse_result parsed = toml::parse(std::string_view(*text), std::string_view(path));
  if (!parsed) {
    content.error = std::string(parsed.error().description());
    content.error_line = parsed.error().source().begin.line;
    return content;
  }
  collect(parsed.table(), {}, content.entries);
  std::stable_sort(content.entries.begin(), content.entries.end(),
                   [](const FileEntry& a, const FileEntry& b) { return a.line < b.line; });
  return content;
}

}  // namespace od::config
