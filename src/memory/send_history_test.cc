// Tests of the guess whether a send buffer has been rewritten.
#include "memory/send_history.h"

#include <gtest/gtest.h>

#include <vector>

namespace od::memory {
namespace {

TEST(SendHistory, AnUnknownBufferCountsAsRewritten) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  EXPECT_TRUE(history.rewritten(buffer.data(), buffer.size()));
}

TEST(SendHistory, AnUnchangedBufferIsRecognised) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.rewritten(buffer.data(), buffer.size());
  EXPECT_FALSE(history.rewritten(buffer.data(), buffer.size()));
  EXPECT_FALSE(history.rewritten(buffer.data(), buffer.size()));
}

TEST(SendHistory, SixteenUnchangedBuffersAtEqualDistancesAreRecognised) {
  for (const std::size_t distance : {4096u, 8192u, 40960u, 65536u, 1u << 20}) {
    SendHistory history;
    std::vector<char> memory(16 * distance + 4096, 1);
    int known = 0;
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < 16; ++i) {
        known += !history.rewritten(memory.data() + i * distance, 4096);
      }
    }
    EXPECT_GE(known, 28) << distance;  // of 32; a set may overflow
  }
}

TEST(SendHistory, ARewrittenBufferIsDistrustedForAWhile) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.rewritten(buffer.data(), buffer.size());
  EXPECT_FALSE(history.rewritten(buffer.data(), buffer.size()));
  buffer.assign(buffer.size(), 2);
  EXPECT_TRUE(history.rewritten(buffer.data(), buffer.size()));
  EXPECT_TRUE(history.rewritten(buffer.data(), buffer.size()));
  EXPECT_TRUE(history.rewritten(buffer.data(), buffer.size()));
  EXPECT_FALSE(history.rewritten(buffer.data(), buffer.size()));
}

TEST(SendHistory, ChangesAtBothEndsAreSeen) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.rewritten(buffer.data(), buffer.size());
  buffer.front() = 2;
  EXPECT_TRUE(history.rewritten(buffer.data(), buffer.size()));
  SendHistory other;
  other.rewritten(buffer.data(), buffer.size());
  buffer.back() = 2;
  EXPECT_TRUE(other.rewritten(buffer.data(), buffer.size()));
}

TEST(SendHistory, AnotherLengthIsAnotherMessage) {
  SendHistory history;
  std::vector<char> buffer(8192, 1);
  history.rewritten(buffer.data(), buffer.size());
  EXPECT_TRUE(history.rewritten(buffer.data(), 4096));
}

}  // namespace
}  // namespace od::memory
