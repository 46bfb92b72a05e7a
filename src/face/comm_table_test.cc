// Checks that the communicator table finds what was registered, also while it grows.
#include "face/comm_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "p2p/comm.h"

namespace od::face {
namespace {

TEST(CommTable, FindsWhatWasInsertedAndNothingElse) {
  CommTable table;
  Comm a, b;
  table.insert(0x44000000, &a);
  table.insert(0x44000001, &b);
  EXPECT_EQ(table.find(0x44000000), &a);
  EXPECT_EQ(table.find(0x44000001), &b);
  EXPECT_EQ(table.find(0x44000002), nullptr);
  EXPECT_EQ(table.find(0), nullptr);
}

TEST(CommTable, ErasedHandleIsGoneAndCanComeBack) {
  CommTable table;
  Comm a, b;
  table.insert(0x1000, &a);
  EXPECT_EQ(table.erase(0x1000), &a);
  EXPECT_EQ(table.find(0x1000), nullptr);
  EXPECT_EQ(table.erase(0x1000), nullptr);
  EXPECT_EQ(table.erase(0x2000), nullptr);
  table.insert(0x1000, &b);
  EXPECT_EQ(table.find(0x1000), &b);
}

TEST(CommTable, GrowsWithoutLosingEntries) {
  CommTable table;
  std::vector<Comm> comms(5000);
  for (std::size_t i = 0; i < comms.size(); ++i)
    table.insert(0x7f0000000000 + 0x240 * i, &comms[i]);
  for (std::size_t i = 0; i < comms.size(); ++i) {
    ASSERT_EQ(table.find(0x7f0000000000 + 0x240 * i), &comms[i]);
  }
}

TEST(CommTable, ManyShortLivedHandlesDoNotHideTheLivingOnes) {
  CommTable table;
  Comm constant, passing;
  table.insert(0x44000000, &constant);
  for (host::Handle h = 0x84000000; h < 0x84000000 + 20000; ++h) {
    table.insert(h, &passing);
    ASSERT_EQ(table.erase(h), &passing);
    ASSERT_EQ(table.find(h), nullptr);
  }
  EXPECT_EQ(table.find(0x44000000), &constant);
}

TEST(CommTable, ReadersAreNotDisturbedByAWriter) {
  CommTable table;
  Comm constant;
  table.insert(0x44000000, &constant);
  std::atomic<bool> stop{false};
  std::atomic<int> misses{0};
  std::thread reader([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      if (table.find(0x44000000) != &constant) misses.fetch_add(1, std::memory_order_relaxed);
    }
  });
  std::vector<Comm> comms(20000);
  for (std::size_t i = 0; i < comms.size(); ++i) table.insert(0x84000000 + i, &comms[i]);
  stop.store(true, std::memory_order_relaxed);
  reader.join();
  EXPECT_EQ(misses.load(), 0);
}

}  // namespace
}  // namespace od::face
