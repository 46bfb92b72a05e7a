// Reads JSON text into a tree whose values know the line on which they stand.
#ifndef OVERDRIVE_COLL_PLAN_SELECT_JSON_TREE_H_
#define OVERDRIVE_COLL_PLAN_SELECT_JSON_TREE_H_

#include <string>
#include <string_view>
#include <vector>

namespace od::coll {

struct JsonMember;

struct JsonValue {
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  int line = 0;
  bool truth = false;
  double number = 0;
  std::string text;
  std::vector<JsonValue> items;
  std::vector<JsonMember> members;

  // Null if there is none.
  const JsonValue* find(std::string_view name) const;
  // For messages: "a number", "null".
  const char* kind_name() const;
};

// Not a std::pair, which clang cannot complete while its second part is.
struct JsonMember {
  std::string name;
  JsonValue value;
};

// False and the reason with its line if the text is no JSON.
bool parse_json(std::string_view text, JsonValue& value, int& error_line, std::string& reason);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_SELECT_JSON_TREE_H_
