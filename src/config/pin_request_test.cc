// Checks which texts of the setting `pin` are understood, and how.
#include "config/pin_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace od::config {
namespace {

std::vector<int> place(std::string_view list, int rank) {
  std::vector<int> found;
  pin_list_place(
      list, rank, [](void* to, int cpu) { static_cast<std::vector<int>*>(to)->push_back(cpu); },
      &found);
  return found;
}

TEST(PinRequest, Words) {
  PinRequest request;
  EXPECT_EQ(parse_pin("", &request), nullptr);
  EXPECT_EQ(request.policy, PinPolicy::kNone);
  EXPECT_EQ(parse_pin("Scatter", &request), nullptr);
  EXPECT_EQ(request.policy, PinPolicy::kScatter);
  EXPECT_FALSE(request.force);
  EXPECT_EQ(parse_pin("numa:force", &request), nullptr);
  EXPECT_EQ(request.policy, PinPolicy::kNuma);
  EXPECT_TRUE(request.force);
}

TEST(PinRequest, OneProcessorForEachRank) {
  PinRequest request;
  ASSERT_EQ(parse_pin("list:0-3,8:force", &request), nullptr);
  EXPECT_TRUE(request.force);
  EXPECT_EQ(pin_list_size(request.list), 5);
  EXPECT_EQ(place(request.list, 2), std::vector<int>{2});
  EXPECT_EQ(place(request.list, 4), std::vector<int>{8});
  EXPECT_TRUE(place(request.list, 5).empty());
}

TEST(PinRequest, ASetForEachRank) {
  PinRequest request;
  ASSERT_EQ(parse_pin("list:0-1,8/4-5/7", &request), nullptr);
  EXPECT_EQ(pin_list_size(request.list), 3);
  EXPECT_EQ(place(request.list, 0), (std::vector<int>{0, 1, 8}));
  EXPECT_EQ(place(request.list, 1), (std::vector<int>{4, 5}));
  EXPECT_EQ(place(request.list, 2), std::vector<int>{7});
  ASSERT_EQ(parse_pin("list:0-1/", &request), nullptr);
  EXPECT_EQ(pin_list_size(request.list), 1);
}

TEST(PinRequest, WhatIsWrong) {
  PinRequest request;
  for (const char* text :
       {"cores", ":force", "list:", "list", "list:a", "list:3-1", "list:1,", "list:1-", "list:4096",
        "list:-1", "list:99999999999999999999", "list:1;2", "list:,", "list:/", "compact,force"}) {
    EXPECT_NE(parse_pin(text, &request), nullptr) << text;
    EXPECT_EQ(request.policy, PinPolicy::kNone) << text;
  }
}

}  // namespace
}  // namespace od::config
