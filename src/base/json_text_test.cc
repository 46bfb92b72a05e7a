// Tests of JSON writing.
#include "base/json_text.h"

#include <gtest/gtest.h>

namespace od {
namespace {

TEST(JsonQuote, EscapesWhatJsonWants) {
  EXPECT_EQ(json_quote("plain"), "\"plain\"");
  EXPECT_EQ(json_quote("a\"b\\c\nd\te\x01"), "\"a\\\"b\\\\c\\nd\\te\\u0001\"");
  EXPECT_EQ(json_quote("f\xC3\xBCr"), "\"f\xC3\xBCr\"");
  EXPECT_EQ(json_quote("\xE2\x82\xAC\xF0\x9F\x98\x80"), "\"\xE2\x82\xAC\xF0\x9F\x98\x80\"");
}

TEST(JsonQuote, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(json_quote("a\xFC"), "\"a\\ufffd\"");
  EXPECT_EQ(json_quote("\xC3"), "\"\\ufffd\"");
  EXPECT_EQ(json_quote("\xC0\x80"), "\"\\ufffd\\ufffd\"");
  EXPECT_EQ(json_quote("\xED\xA0\x80"), "\"\\ufffd\\ufffd\\ufffd\"");
}

TEST(JsonWriter, BuildsNestedDocuments) {
  JsonWriter json;
  json.open_object();
  json.member("a", 1);
  json.key("list");
  json.open_array();
  json.value("x");
  json.value(true);
  json.open_object();
  json.close_object();
  json.close_array();
  json.member("big", std::uint64_t{18446744073709551615u});
  json.close_object();
  EXPECT_EQ(json.take(),
            "{\n  \"a\": 1,\n  \"list\": [\n    \"x\",\n    true,\n    {}\n  ],\n"
            "  \"big\": 18446744073709551615\n}\n");
}

}  // namespace
}  // namespace od
