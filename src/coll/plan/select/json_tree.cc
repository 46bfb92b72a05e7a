// The only place that knows the JSON parser; it counts lines while the parser reads.
#include "coll/plan/select/json_tree.h"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

namespace od::coll {
namespace {

struct Lines {
  int current = 1;
  char last = 0;
};

// Hands the text to the parser and counts the lines that it has taken.
class Reader {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  Reader(const char* at, Lines* lines) : at_(at), lines_(lines) {}
  reference operator*() const { return *at_; }
  Reader& operator++() {
    lines_->last = *at_;
    if (*at_++ == '\n') ++lines_->current;
    return *this;
  }
  Reader operator++(int) {
    Reader old = *this;
    ++*this;
    return old;
  }
  bool operator==(const Reader& other) const { return at_ == other.at_; }
  bool operator!=(const Reader& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Lines* lines_;
};

class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(JsonValue& root, Lines& lines) : lines_(lines), root_(root) {}

  bool null() override {
    add(JsonValue::Kind::kNull);
    return few_enough();
  }
  bool boolean(bool value) override {
    add(JsonValue::Kind::kBool)->truth = value;
    return few_enough();
  }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override {
    add(JsonValue::Kind::kString)->text = value;
    return few_enough();
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonValue::Kind::kObject); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(JsonValue::Kind::kArray); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    key_ = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    error_line = line();
    reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while ..."
    const std::size_t start = reason.find(": ");
    if (start != std::string::npos) reason = reason.substr(start + 2);
    return false;
  }

  int error_line = 0;
  std::string reason;

 private:
  // A number ends where the next character is read.
  int line() const { return lines_.current - (lines_.last == '\n' ? 1 : 0); }

  bool number(double value) {
    add(JsonValue::Kind::kNumber)->number = value;
    return few_enough();
  }
  // A value takes a hundred bytes and more where its text takes two.
  bool few_enough() {
    if (values_ <= 200'000) return true;
    error_line = line();
    reason = "holds more than 200000 values";
    return false;
  }
  JsonValue* add(JsonValue::Kind kind) {
    ++values_;
    JsonValue* target = &root_;
    if (!open_.empty()) {
      JsonValue& parent = *open_.back();
      if (parent.kind == JsonValue::Kind::kArray) {
        target = &parent.items.emplace_back();
      } else {
        target = &parent.members.emplace_back(JsonMember{key_, {}}).value;
      }
    }
    target->kind = kind;
    target->line = line();
    return target;
  }
  // Pointers to open values stay valid: their parents get no further child meanwhile.
  bool open(JsonValue::Kind kind) {
    if (open_.size() > 32) {
      error_line = line();
      reason = "nested too deeply";
      return false;
    }
    open_.push_back(add(kind));
    return few_enough();
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Lines& lines_;
  JsonValue& root_;
  std::vector<JsonValue*> open_;
  std::string key_;
  int values_ = 0;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  for (const auto& [known, value] : members) {
    if (known == name) return &value;
  }
  return nullptr;
}

const char* JsonValue::kind_name() const {
  static constexpr const char* kNames[] = {"null",     "true or false", "a number",
                                           "a string", "a list",        "an object"};
  return kNames[static_cast<int>(kind)];
}

bool parse_json(std::string_view text, JsonValue& value, int& error_line, std::string& reason) {
  Lines lines;
  Handler handler(value, lines);
  const Reader begin(text.data(), &lines);
  const Reader end(text.data() + text.size(), &lines);
  if (nlohmann::json::sax_parse(begin, end, &handler)) return true;
  error_line = handler.error_line;
  reason = handler.reason;
  return false;
}

}  // namespace od::coll
