// Tests how frames move through switches, with invented time.
#include "switch/fabric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "switch/status.h"

namespace od::fabric {
namespace {

constexpr std::uint64_t kUs = 1000;
constexpr std::uint64_t kAll = 0xffffffffffff;

class FabricTest : public ::testing::Test, private Transmitter {
 protected:
  struct Sent {
    std::uint32_t port;
    std::uint64_t at_ns;
    std::uint8_t mark;
    bool operator==(const Sent&) const = default;
  };

  FramePtr frame(std::uint64_t to, std::uint64_t from, std::uint8_t mark = 0,
                 std::size_t bytes = 64) {
    FramePtr made = pool_.take(bytes);
    std::fill_n(made->data(), bytes, std::uint8_t{0});
    for (int i = 0; i < 6; ++i) {
      made->data()[i] = static_cast<std::uint8_t>(to >> (40 - 8 * i));
      made->data()[6 + i] = static_cast<std::uint8_t>(from >> (40 - 8 * i));
    }
    made->data()[14] = mark;
    return made;
  }
  void arrive(std::uint32_t port, FramePtr one, std::uint64_t at_ns) {
    now_ns_ = std::max(now_ns_, at_ns);
    fabric_.receive(port, std::move(one), at_ns, now_ns_);
  }
  // Lets time pass from event to event.
  void run_until(std::uint64_t end_ns) {
    while (fabric_.next_due_ns() <= end_ns) {
      now_ns_ = std::max(now_ns_, fabric_.next_due_ns());
      fabric_.advance(now_ns_);
    }
    now_ns_ = std::max(now_ns_, end_ns);
    fabric_.advance(now_ns_);
  }
  bool transmit(std::uint32_t port, Frame& one) override {
    if (refuse_) return false;
    sent_.push_back({port, now_ns_, one.data()[14]});
    return true;
  }
  std::uint64_t drops(std::uint32_t port, Drop cause) {
    return fabric_.ports()[port].counters.drops[static_cast<std::size_t>(cause)];
  }

  FramePool pool_{16 << 20};
  Fabric fabric_{pool_, *this};
  std::uint64_t now_ns_ = 0;
  std::vector<Sent> sent_;
  bool refuse_ = false;
};

class OneSwitch : public FabricTest {
 protected:
  OneSwitch() {
    const std::uint32_t own = fabric_.add_switch("s", 0);
    for (int i = 0; i < 3; ++i) fabric_.add_port(own, "p" + std::to_string(i), 1);
  }
};

TEST_F(OneSwitch, LearnsWhereAddressesAre) {
  arrive(0, frame(0xb, 0xa, 1), 0);
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 0, 1}, {2, 0, 1}}));  // not known yet: to all
  sent_.clear();
  arrive(1, frame(0xa, 0xb, 2), 10);
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 10, 2}}));
  sent_.clear();
  arrive(2, frame(0xa, 0xb, 3), 20);  // b has moved
  arrive(0, frame(0xb, 0xa, 4), 30);
  EXPECT_EQ(sent_, (std::vector<Sent>{{0, 20, 3}, {2, 30, 4}}));
  sent_.clear();
  arrive(2, frame(0xb, 0xc, 5), 40);  // both on the same side
  EXPECT_TRUE(sent_.empty());
  arrive(0, frame(kAll, 0xa, 6), 50);
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 50, 6}, {2, 50, 6}}));
  EXPECT_EQ(fabric_.switches()[0].forwarded, 3u);
  EXPECT_EQ(fabric_.switches()[0].flooded, 2u);
}

TEST_F(OneSwitch, AddressesAgeOut) {
  arrive(1, frame(kAll, 0xb), 0);
  sent_.clear();
  arrive(0, frame(0xb, 0xa), MacTable::kAgeNs + 1);
  EXPECT_EQ(sent_.size(), 2u);
}

TEST_F(OneSwitch, AFloodOfAddressesDoesNotMakeItGrow) {
  for (std::uint64_t i = 0; i < 3 * MacTable::kMostEntries; ++i) {
    arrive(0, frame(0x2, 0x020000000000 + (i << 1)), i);
  }
  EXPECT_EQ(fabric_.switches()[0].table.size(), MacTable::kMostEntries);
  EXPECT_EQ(pool_.in_use(), 0u);
  EXPECT_LT(pool_.allocated_bytes(), 16u << 10);
}

TEST_F(OneSwitch, FramesBetweenNeighboursAndBrokenOnesStop) {
  arrive(0, frame(0x0180c2000003, 0xa), 0);
  arrive(0, frame(0xb, 0xa, 0, 13), 0);
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(drops(0, Drop::link_local), 1u);
  EXPECT_EQ(drops(0, Drop::malformed), 1u);
}

TEST_F(OneSwitch, LatencyIsExactAndCountsFromTheArrival) {
  fabric_.switches()[0].latency_ns = 20 * kUs;
  arrive(1, frame(kAll, 0xb), 0);
  run_until(100 * kUs);
  sent_.clear();
  now_ns_ = 210 * kUs;  // it was noticed late
  fabric_.receive(0, frame(0xb, 0xa, 1), 200 * kUs, now_ns_);
  EXPECT_EQ(fabric_.next_due_ns(), 220 * kUs);
  fabric_.advance(219'999);
  EXPECT_TRUE(sent_.empty());
  run_until(300 * kUs);
  EXPECT_EQ(sent_, (std::vector<Sent>{{1, 220 * kUs, 1}}));
}

TEST_F(OneSwitch, ARateHoldsForEachPort) {
  arrive(1, frame(kAll, 0xb), 0);
  arrive(2, frame(kAll, 0xc), 0);
  sent_.clear();
  for (std::uint32_t port = 1; port < 3; ++port) {
    fabric_.ports()[port].link.set({.rate_bits = 100'000'000});
  }
  for (std::uint8_t i = 0; i < 10; ++i) {
    arrive(0, frame(0xb, 0xa, i, 1226), 0);
    arrive(0, frame(0xc, 0xa, i, 1226), 0);
  }
  run_until(10'000 * kUs);
  ASSERT_EQ(sent_.size(), 20u);
  std::map<std::uint32_t, std::uint8_t> next;
  for (const Sent& one : sent_) {
    EXPECT_EQ(one.mark, next[one.port]++);
    EXPECT_EQ(one.at_ns, (one.mark + 1) * 100 * kUs);  // 1250 bytes at 100 Mbit/s
  }
}

TEST_F(OneSwitch, EveryDropIsCounted) {
  arrive(1, frame(kAll, 0xb), 0);
  sent_.clear();
  fabric_.ports()[1].link.set({.loss = 1.0});
  arrive(0, frame(0xb, 0xa), 1);
  EXPECT_EQ(drops(1, Drop::lost), 1u);
  fabric_.ports()[1].link.set({.receive_loss = 1.0});
  arrive(1, frame(0xa, 0xb), 1);
  EXPECT_EQ(drops(1, Drop::lost), 2u);
  fabric_.ports()[1].link.set({});
  refuse_ = true;
  arrive(0, frame(0xb, 0xa), 2);
  EXPECT_EQ(drops(1, Drop::cannot_send), 1u);
  refuse_ = false;
  fabric_.ports()[1].link.set({.rate_bits = 1'000'000, .queue_bytes = 100});
  for (int i = 0; i < 5; ++i) arrive(0, frame(0xb, 0xa), 3);
  EXPECT_EQ(drops(1, Drop::queue_full), 3u);
  run_until(100'000 * kUs);
  EXPECT_EQ(sent_.size(), 2u);
  EXPECT_EQ(pool_.in_use(), 0u);
}

TEST_F(OneSwitch, DuplicatesAndCorruptionAreAsAskedFor) {
  arrive(1, frame(kAll, 0xb), 0);
  sent_.clear();
  fabric_.ports()[1].link.set({.duplication = 1.0});
  arrive(0, frame(0xb, 0xa, 9), 1);
  run_until(10);
  EXPECT_EQ(sent_.size(), 2u);
  fabric_.ports()[1].link.set({.corruption = 1.0});
  for (int i = 0; i < 300; ++i) arrive(0, frame(0xb, 0xa, 0, 16), 20);
  run_until(30);
  // Only two bytes can be hit, and one of them is the mark.
  const auto hit = std::ranges::count_if(sent_, [](const Sent& one) { return one.mark != 0; });
  EXPECT_NEAR(static_cast<double>(hit), 152, 45);
  EXPECT_EQ(fabric_.ports()[1].counters.corrupted, 300u);
}

TEST_F(FabricTest, SwitchesInARowAddTheirLatencies) {
  const std::uint32_t left = fabric_.add_switch("left", 20 * kUs);
  const std::uint32_t middle = fabric_.add_switch("middle", 20 * kUs);
  const std::uint32_t right = fabric_.add_switch("right", 20 * kUs);
  const std::uint32_t in = fabric_.add_port(left, "in", 1);
  const std::uint32_t out = fabric_.add_port(right, "out", 1);
  fabric_.connect(left, middle, 1);
  fabric_.connect(middle, right, 1);
  arrive(in, frame(0xb, 0xa, 1), 0);
  run_until(200 * kUs);
  arrive(out, frame(0xa, 0xb, 2), 200 * kUs);
  run_until(400 * kUs);
  EXPECT_EQ(sent_, (std::vector<Sent>{{out, 60 * kUs, 1}, {in, 260 * kUs, 2}}));
  EXPECT_EQ(fabric_.switches()[middle].forwarded, 1u);
}

// Two switches above the same two: ordinary frames go by the first one alone.
TEST_F(FabricTest, ALinkForSumsAloneCarriesNoOtherFrames) {
  const std::uint32_t left = fabric_.add_switch("left", 0);
  const std::uint32_t right = fabric_.add_switch("right", 0);
  const std::uint32_t above = fabric_.add_switch("above", 0);
  const std::uint32_t beside = fabric_.add_switch("beside", 0);
  std::uint32_t outside[4];
  for (std::uint32_t i = 0; i < 4; ++i) outside[i] = fabric_.add_port(i < 2 ? left : right, "p", 1);
  fabric_.connect(left, above, 1);
  fabric_.connect(right, above, 1);
  const auto [left_up, left_down] = fabric_.connect(left, beside, 1, true);
  const auto [right_up, right_down] = fabric_.connect(right, beside, 1, true);
  arrive(outside[0], frame(kAll, 0xa, 1), 0);
  EXPECT_EQ(sent_, (std::vector<Sent>{{outside[1], 0, 1}, {outside[2], 0, 1}, {outside[3], 0, 1}}));
  sent_.clear();
  arrive(outside[2], frame(0xa, 0xc, 2), 10);
  EXPECT_EQ(sent_, (std::vector<Sent>{{outside[0], 10, 2}}));
  sent_.clear();
  // What a compute unit has sent by such a link goes on only to where its receiver is, and nobody
  // learns from it.
  run_until(20);
  fabric_.send(left_up, frame(0xc, 0xa, 3), 20, 20);
  EXPECT_EQ(sent_, (std::vector<Sent>{{outside[2], 20, 3}}));
  sent_.clear();
  run_until(30);
  fabric_.send(left_up, frame(0x77, 0xa, 4), 30, 30);
  EXPECT_TRUE(sent_.empty());
  arrive(outside[3], frame(0xa, 0xd, 5), 40);
  EXPECT_EQ(sent_, (std::vector<Sent>{{outside[0], 40, 5}}));
  EXPECT_EQ(fabric_.ports()[left_up].counters.sent_frames, 2u);
  EXPECT_EQ(fabric_.ports()[right_up].counters.sent_frames, 0u);
  EXPECT_EQ(fabric_.ports()[right_down].counters.sent_frames, 2u);
  EXPECT_EQ(fabric_.ports()[left_down].counters.sent_frames, 0u);
}

TEST_F(FabricTest, MemoryIsBounded) {
  pool_.set_limit_bytes(64 << 10);
  const std::uint32_t own = fabric_.add_switch("s", 1'000'000 * kUs);
  for (int i = 0; i < 2; ++i) fabric_.add_port(own, "p", 1);
  int refused = 0;
  for (int i = 0; i < 100; ++i) {
    FramePtr one = pool_.take(100);
    if (!one) {
      ++refused;
      continue;
    }
    std::memset(one->data(), 0, 100);
    arrive(0, std::move(one), 0);
  }
  EXPECT_GT(refused, 60);
  EXPECT_LE(pool_.allocated_bytes(), 64u << 10);
  run_until(2'000'000 * kUs);
  EXPECT_EQ(pool_.in_use(), 0u);
  // Free small frames make room for a large one.
  pool_.set_limit_bytes(70 << 10);
  EXPECT_TRUE(pool_.take(60'000));
  EXPECT_LE(pool_.allocated_bytes(), 70u << 10);
  EXPECT_FALSE(pool_.take(kLargeFrameBytes + 1));
}

TEST_F(FabricTest, StatusSaysTheSameInAllForms) {
  const std::uint32_t own = fabric_.add_switch("s", 0);
  for (int i = 0; i < 2; ++i) fabric_.add_port(own, "p" + std::to_string(i), 1);
  for (int i = 0; i < 7; ++i) arrive(0, frame(0xb, 0xa), 0);
  EXPECT_NE(status_text(fabric_, 0).find("7 to all"), std::string::npos);
  EXPECT_NE(status_json(fabric_, 0).find("\"flooded\": 7"), std::string::npos);
  EXPECT_NE(status_metrics(fabric_, 0)
                .find("overdrive_switch_sent_frames_total{switch=\"s\",port=\"p1\"} 7"),
            std::string::npos);
}

TEST(TimerWheel, FiresLikeASortedList) {
  FramePool pool(64 << 20);
  TimerWheel wheel(pool);
  std::mt19937_64 random(5);
  std::multimap<std::uint64_t, std::uint32_t> expected;
  std::uint64_t now_ns = 123'456'789;
  std::uint32_t number = 0;
  for (int step = 0; step < 2000; ++step) {
    for (std::uint64_t i = random() % 5; i > 0; --i) {
      // Near, far beyond a turn of the wheel, or past.
      const std::uint64_t kind = random() % 4;
      std::uint64_t due_ns = now_ns + random() % (kind == 0 ? 100'000'000 : 50'000);
      if (kind == 1) due_ns = now_ns - random() % 1000;
      FramePtr one = pool.take(64);
      one->destination = number;
      wheel.insert(std::move(one), due_ns);
      expected.emplace(due_ns, number++);
    }
    EXPECT_EQ(wheel.next_due_ns(), expected.empty() ? TimerWheel::kNever : expected.begin()->first);
    now_ns += random() % (step % 100 == 0 ? 20'000'000 : 20'000);
    std::uint64_t last_tick = 0;
    wheel.fire(now_ns, [&](FramePtr frame) {
      const auto [first, last] = expected.equal_range(frame->due_ns);
      const auto found = std::find_if(
          first, last, [&](const auto& item) { return item.second == frame->destination; });
      ASSERT_NE(found, last);
      EXPECT_LE(frame->due_ns, now_ns);
      EXPECT_GE(std::max(frame->due_ns >> 10, last_tick), last_tick);
      expected.erase(found);
    });
    EXPECT_TRUE(expected.empty() || expected.begin()->first > now_ns);
    EXPECT_EQ(wheel.size(), expected.size());
  }
}

TEST(Histogram, KeepsQuantilesToAnEighth) {
  Histogram histogram;
  for (std::uint64_t i = 1; i <= 100'000; ++i) histogram.add(i);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.5)), 50'000, 6'500);
  EXPECT_NEAR(static_cast<double>(histogram.quantile(0.99)), 99'000, 1'500);
  EXPECT_EQ(histogram.largest(), 100'000u);
  histogram.add(~std::uint64_t{0});
  EXPECT_EQ(histogram.largest(), ~std::uint64_t{0});
}

}  // namespace
}  // namespace od::fabric
