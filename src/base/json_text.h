// Writes JSON text: the little that settings, statistics and `overdrive info` need.
#ifndef OVERDRIVE_BASE_JSON_TEXT_H_
#define OVERDRIVE_BASE_JSON_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace od {

// Text in quotes with everything escaped that JSON wants escaped. Bytes that are not UTF-8 become
// U+FFFD, so that a path in another encoding never breaks the document.
std::string json_quote(std::string_view text);

// Builds a document front to back; keeps track of commas and nesting.
class JsonWriter {
 public:
  void open_object() { open('{'); }
  void close_object() { close('}'); }
  void open_array() { open('['); }
  void close_array() { close(']'); }
  void key(std::string_view name);
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(bool truth);
  void value(int number) { value(static_cast<std::int64_t>(number)); }
  void value(std::int64_t number);
  void value(std::uint64_t number);
  // A document of another writer.
  void document(std::string_view text);
  template <class T>
  void member(std::string_view name, const T& content) {
    key(name);
    value(content);
  }
  // The document, with a line break at its end.
  std::string take();

 private:
  void separate();
  void open(char bracket);
  void close(char bracket);

  std::string text_;
  std::vector<bool> has_items_;
  bool after_key_ = false;
};

}  // namespace od

#endif  // OVERDRIVE_BASE_JSON_TEXT_H_
