// Tests of the guess what has happened to a send buffer since its last send.
#include "memory/send_history.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace od::memory {
namespace {

TEST(SendHistory, AnUnknownBufferIsFresh) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::fresh);
}

TEST(SendHistory, AnUnchangedBufferIsRecognised) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.look(buffer.data(), buffer.size());
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::unchanged);
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::unchanged);
}

TEST(SendHistory, SixteenUnchangedBuffersAtEqualDistancesAreRecognised) {
  for (const std::size_t distance : {4096u, 8192u, 40960u, 65536u, 1u << 20}) {
    SendHistory history;
    std::vector<char> memory(16 * distance + 4096, 1);
    int known = 0;
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < 16; ++i) {
        known += history.look(memory.data() + i * distance, 4096) == BufferUse::unchanged;
      }
    }
    EXPECT_GE(known, 28) << distance;  // of 32; a set may overflow
  }
}

TEST(SendHistory, ARewrittenBufferIsDistrustedForAWhile) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.look(buffer.data(), buffer.size());
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::unchanged);
  buffer.assign(buffer.size(), 2);
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::rewritten);
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::rewritten);
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::rewritten);
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::unchanged);
}

TEST(SendHistory, ChangesAtBothEndsAreSeen) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.look(buffer.data(), buffer.size());
  buffer.front() = 2;
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::partly);
  SendHistory other;
  other.look(buffer.data(), buffer.size());
  buffer.back() = 2;
  EXPECT_EQ(other.look(buffer.data(), buffer.size()), BufferUse::partly);
}

// An eighth of the buffer after the other, some of which lie between the places that are looked at.
TEST(SendHistory, ABufferRewrittenInPartsIsToldFromOneRewrittenWhole) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.look(buffer.data(), buffer.size());
  for (int turn = 0; turn < 16; ++turn) {
    std::fill_n(buffer.begin() + turn % 8 * 1024, 1024, static_cast<char>(2 + turn));
    EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::partly) << turn;
  }
  for (int turn = 0; turn < 4; ++turn) {
    buffer.assign(buffer.size(), static_cast<char>(30 + turn));
    EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::rewritten) << turn;
  }
  std::fill_n(buffer.begin(), 1024, static_cast<char>(40));
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::partly);
}

// Small counters and floating-point numbers: few of their bits differ.
// Its lines are in no cache any more, whoever has written them.
TEST(SendHistory, WhatWasSentLongAgoIsFreshOnceItIsRewritten) {
  constexpr std::size_t kBytes = 512u << 10;
  SendHistory history;
  std::vector<char> often(kBytes, 1), seldom(kBytes, 1), still(kBytes, 1);
  history.look(seldom.data(), kBytes);
  history.look(still.data(), kBytes);
  int between = 0;
  const auto send_often = [&](std::size_t bytes) {
    for (std::size_t sent = 0; sent < bytes; sent += kBytes) {
      std::fill(often.begin(), often.end(), static_cast<char>(++between));
      const BufferUse use = history.look(often.data(), kBytes);
      EXPECT_TRUE(between == 1 || use == BufferUse::rewritten);
    }
  };
  send_often(16u << 20);
  std::fill(seldom.begin(), seldom.end(), 2);
  EXPECT_EQ(history.look(seldom.data(), kBytes), BufferUse::rewritten);
  send_often(40u << 20);
  std::fill(seldom.begin(), seldom.end(), 3);
  EXPECT_EQ(history.look(seldom.data(), kBytes), BufferUse::fresh);
  std::fill(seldom.begin(), seldom.end(), 4);
  EXPECT_EQ(history.look(seldom.data(), kBytes), BufferUse::rewritten);
  EXPECT_EQ(history.look(still.data(), kBytes), BufferUse::unchanged);
}

TEST(SendHistory, WordsThatDifferByLittleAreToldApart) {
  SendHistory history;
  std::vector<double> numbers(1024, 1.0);
  std::vector<std::uint64_t> counters(1024, 0);
  const auto bytes = numbers.size() * sizeof(double);
  const auto look = [&](const auto& values) {
    return history.look(reinterpret_cast<const char*>(values.data()), bytes);
  };
  look(numbers);
  look(counters);
  for (int turn = 1; turn < 100; ++turn) {
    numbers.assign(numbers.size(), 1.0 + turn);
    counters.assign(counters.size(), static_cast<std::uint64_t>(turn));
    EXPECT_EQ(look(numbers), BufferUse::rewritten) << turn;
    EXPECT_EQ(look(counters), BufferUse::rewritten) << turn;
  }
}

TEST(SendHistory, AnotherLengthIsAnotherMessage) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.look(buffer.data(), buffer.size());
  EXPECT_EQ(history.look(buffer.data(), 4096), BufferUse::fresh);
}

TEST(SendHistory, AReceiveIsNoticedThoughItBringsTheSameData) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  std::vector<char> other(8192, 1);
  history.look(buffer.data(), buffer.size());
  history.note_receive(buffer.data());
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::received);
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::unchanged) << "once only";
  history.note_receive(other.data());
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::unchanged);
  history.note_receive(buffer.data());
  buffer.assign(buffer.size(), 2);
  EXPECT_EQ(history.look(buffer.data(), buffer.size()), BufferUse::received) << "and changed";
}

}  // namespace
}  // namespace od::memory
