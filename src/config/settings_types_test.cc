// Tests of the text forms of setting values.
#include "config/settings_types.h"

#include <gtest/gtest.h>

#include <string>

namespace od::config {
namespace {

template <class Type>
void expect_value(const char* text, const typename Type::Value& expected) {
  typename Type::Value value{};
  std::string reason;
  EXPECT_TRUE(Type::parse(text, value, reason)) << text << ": " << reason;
  EXPECT_EQ(value, expected) << text;
}

template <class Type>
void expect_refused(const char* text) {
  typename Type::Value value{};
  std::string reason;
  EXPECT_FALSE(Type::parse(text, value, reason)) << text;
  EXPECT_FALSE(reason.empty()) << text;
}

TEST(SizeType, ReadsSuffixes) {
  expect_value<SizeType>("0", 0);
  expect_value<SizeType>("65536", 65536);
  expect_value<SizeType>("64K", 64 * kKiB);
  expect_value<SizeType>(" 64 kib ", 64 * kKiB);
  expect_value<SizeType>("2MB", 2 * kMiB);
  expect_value<SizeType>("1.5M", kMiB + kMiB / 2);
  expect_value<SizeType>("1T", kTiB);
  for (const char* text :
       {"", "K", "-1", "1Q", "1K2", "0x10", "1.", ".5K", "99999999999999999999", "99999999999T"}) {
    expect_refused<SizeType>(text);
  }
}

TEST(DurationType, NeedsUnits) {
  expect_value<DurationType>("0", 0);
  expect_value<DurationType>("100ns", 100);
  expect_value<DurationType>("0.5us", 500);
  expect_value<DurationType>("50 US", 50'000);
  expect_value<DurationType>("100ms", 100'000'000);
  expect_value<DurationType>("30s", 30'000'000'000);
  for (const char* text : {"", "5", "1m", "-1s", "s", "1 h", "999999999999s"}) {
    expect_refused<DurationType>(text);
  }
}

TEST(BoolType, ReadsWords) {
  for (const char* text : {"1", "true", "YES", "On"}) expect_value<BoolType>(text, true);
  for (const char* text : {"0", "False", "no", "off"}) expect_value<BoolType>(text, false);
  for (const char* text : {"", "2", "maybe"}) expect_refused<BoolType>(text);
}

TEST(IntType, ReadsWholeNumbers) {
  expect_value<IntType>("12", 12);
  expect_value<IntType>("-3", -3);
  for (const char* text : {"", "1.5", "ten", "1 2", "99999999999"}) expect_refused<IntType>(text);
}

TEST(PairsType, ReadsPairs) {
  expect_value<PairsType>("", PairList{});
  expect_value<PairsType>("all", PairList{true, {}});
  expect_value<PairsType>("1-0, 2-3", PairList{false, {{0, 1}, {2, 3}}});
  for (const char* text : {"0", "0-", "-1", "0-1-2", "a-b", "0--1"})
    expect_refused<PairsType>(text);
  EXPECT_TRUE((PairList{true, {}}).contains(5, 9));
}

TEST(Formats, ReadBack) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1023}, kKiB,
                                    3 * kKiB + 1, 5 * kMiB, kTiB}) {
    expect_value<SizeType>(SizeType::format(bytes).c_str(), bytes);
  }
  EXPECT_EQ(SizeType::format(64 * kKiB), "64K");
  for (const std::uint64_t ns : {0ull, 1ull, 999ull, 1500ull, 1'000'000'000ull}) {
    expect_value<DurationType>(DurationType::format(ns).c_str(), ns);
  }
  EXPECT_EQ(DurationType::format(50'000), "50us");
  const PairList pairs{false, {{0, 1}, {2, 3}}};
  expect_value<PairsType>(PairsType::format(pairs).c_str(), pairs);
}

}  // namespace
}  // namespace od::config
