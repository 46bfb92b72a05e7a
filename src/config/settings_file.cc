// The only place that knows the TOML parser; compiled without its exceptions and streams.
#include "config/settings_file.h"

#include <algorithm>
#include <cstddef>
#include <utility>

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
constexpr std::size_t kMaxFileBytes = 1 << 20;

// Where the string that begins at `at` ends; strings on one line end with it at the latest.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  const std::string_view quote = text.substr(at, 1);
  const bool escapes = quote == "\"";
  const std::string_view three = text.substr(at, 3);
  const bool lines = three == "\"\"\"" || three == "'''";
  const std::string_view end = lines ? three : quote;
  for (at += end.size(); at < text.size(); ++at) {
    if (escapes && text[at] == '\\') {
      ++at;
    } else if (text.substr(at, end.size()) == end) {
      return at + end.size();
    } else if (!lines && text[at] == '\n') {
      return at;
    }
  }
  return text.size();
}

bool beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

// Finds names that the parser must not see: the first line with one and what is wrong with it, or
// line 0. Of a dotted name it makes a table for each part and takes them down by recursion: a few
// hundred kilobytes of "a.a.a" would exhaust the stack. While it reads a name its behaviour is
// undefined for most letters beyond ASCII, here also wherever nothing is quoted.
std::pair<std::uint32_t, const char*> wrong_name(std::string_view text) {
  constexpr int kMostDots = 16;
  constexpr const char* kStrange =
      "has a letter beyond ASCII outside of a quoted value; names of settings have none";
  std::uint32_t line = 1;
  int dots = 0;
  bool in_name = true;  // before the line's first '='
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (beyond_ascii(c)) return {line, kStrange};
    if (c == '.' && ++dots > kMostDots) {
      return {line, "has a name of too many parts; a setting stands alone or in one table"};
    }
    if (c == '=') in_name = false;
    if (c == '\n') {
      ++line;
      dots = 0;
      in_name = true;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const std::string_view quoted = text.substr(at, end_of_string(text, at) - at);
      if (in_name && std::any_of(quoted.begin(), quoted.end(), beyond_ascii)) {
        return {line, kStrange};
      }
      line += static_cast<std::uint32_t>(std::count(quoted.begin(), quoted.end(), '\n'));
      at += quoted.size() - 1;
    }
  }
  return {0, nullptr};
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

FileContent read_settings_file(const std::string& path, LastLink last_link) {
  FileContent content;
  FileText file = read_trusted_file(path, kMaxFileBytes, last_link);
  content.exists = file.exists;
  content.error = std::move(file.error);
  if (!file.text) return content;
  // Editors of other systems begin a file with it; to the parser it is nothing.
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (file.text->starts_with(kByteOrderMark)) file.text->erase(0, kByteOrderMark.size());
  if (const auto [line, why] = wrong_name(*file.text); line != 0) {
    content.error_line = line;
    content.error = why;
    return content;
  }
  const toml::parse_result parsed =
      toml::parse(std::string_view(*file.text), std::string_view(path));
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
