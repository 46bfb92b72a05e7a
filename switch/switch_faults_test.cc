// Random operations of random groups under one kind of fault each, with invented time
// (test_network.h): always the right result for all, or the host's algorithm for all.
//
// OVERDRIVE_SWITCH_OPERATIONS=1000000 makes a long test of it, of so many operations of each kind;
// OVERDRIVE_SWITCH_SEED draws other ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "innetwork/leader.h"
#include "switch/compute.h"
#include "switch/test_network.h"

namespace od::fabric {
namespace {

enum class Kind : std::uint8_t {
  loss,
  duplication,
  reordering,
  corruption,
  all_of_these,
  restarted_switches,  // in mid-operation: they have forgotten everything
  silent_switches,     // which go on to forward what is not theirs
  dead_host,
  same_ids,   // two jobs with groups of one number at the same time
  strangers,  // replayed and forged packets
  slow_receivers,
  exhausted_switches,
};
constexpr std::array<const char*, 12> kNames = {
    "Loss",   "Duplication", "Reordering", "Corruption", "AllOfThese",    "Restarted",
    "Silent", "DeadHost",    "SameIds",    "Strangers",  "SlowReceivers", "ExhaustedSwitch"};

LinkSettings faults_of(Kind kind) {
  switch (kind) {
    case Kind::loss:
      return {.loss = 0.05};
    case Kind::duplication:
      return {.duplication = 0.2};
    case Kind::reordering:
      return {.reordering = 0.3, .reorder_ns = 3 * kMs};
    case Kind::corruption:
      return {.corruption = 0.05};
    case Kind::all_of_these:
      return {.loss = 0.03,
              .duplication = 0.1,
              .reordering = 0.1,
              .corruption = 0.03,
              .reorder_ns = 3 * kMs};
    case Kind::restarted_switches:
      return {.loss = 0.02};
    case Kind::silent_switches:  // some leaders have the result, others do not
      return {.loss = 0.1};
    case Kind::same_ids:
      return {.loss = 0.02, .duplication = 0.05};
    default:
      return {};
  }
}

class Faults : public ::testing::TestWithParam<Kind> {
 protected:
  Kind kind() const { return GetParam(); }
  std::uint64_t draw(std::uint64_t limit) { return random_() % limit; }

  // A group of random shape, and operations of it.
  void round() {
    ++rounds_;
    shape_.leaders = 2 + draw(8);
    shape_.tors = 1 + draw(std::min<std::uint64_t>(3, shape_.leaders));
    shape_.spines = 1 + draw(3);
    shape_.apart = draw(2) == 0;
    shape_.window = 1u << draw(5);
    shape_.payload_bytes = static_cast<std::uint32_t>(16 + 8 * draw(32));
    shape_.reliable = draw(2) == 0;
    Network network(shape_, faults_of(kind()), random_());
    old_.clear();  // each group has a key of its own
    if (kind() == Kind::exhausted_switches) network.set_most_groups(1);
    network.add_group(7, 99);
    if (!network.join()) {
      ++not_joined_;
      return;
    }
    switch (kind()) {
      case Kind::restarted_switches:
      case Kind::silent_switches:
        return end_switches(network);
      case Kind::dead_host:
        return end_host(network);
      case Kind::same_ids:
        network.add_group(7, 100, 6000);
        if (!network.join(1)) {
          ++not_joined_;
          return;
        }
        break;
      case Kind::exhausted_switches:
        network.add_group(8, 100, 6000);
        EXPECT_FALSE(network.join(1)) << where();
        break;
      default:
        break;
    }
    for (std::uint64_t i = 1 + draw(200); i > 0 && !HasFailure(); --i) {
      if (operation(network) != End::by_switch) return;
    }
  }

  End operation(Network& network) {
    std::function<void()> during;
    if (kind() == Kind::same_ids) {
      during = [&] { judge(run(network, 50 * kUs, 1)); };
    } else if (kind() == Kind::strangers) {
      during = [&] { disturb(network); };
    } else if (kind() == Kind::slow_receivers) {
      const std::size_t slow = draw(shape_.leaders);
      network.lost_ = [this, slow](std::size_t leader, const Packet&) {
        return leader == slow && draw(2) == 0;
      };
    }
    // Late ones are waited for longer than a silent switch is.
    const std::uint64_t skew_ns =
        kind() == Kind::slow_receivers && draw(8) == 0 ? 600 * kMs : 50 * kUs;
    const End end = run(network, skew_ns, 0, during);
    // Who loses fifteen answers in a row cannot know that the switch lives.
    judge(end, kind() == Kind::slow_receivers);
    if (kind() == Kind::strangers) remember(network);
    return end;
  }

  End run(Network& network, std::uint64_t skew_ns, std::size_t group = 0,
          const std::function<void()>& during = {}) {
    return run_job(network, shape_.leaders, shape_.tors, skew_ns, group, during);
  }

  // Frames of earlier operations, and forged ones: without the key, or with it from elsewhere.
  void disturb(Network& network) {
    for (std::uint64_t i = draw(10); i > 0; --i) {
      const std::size_t at = draw(shape_.leaders);
      if (!old_.empty() && draw(2) == 0) {
        network.inject(at, old_[draw(old_.size())]);
        continue;
      }
      Packet forged;
      const bool result = draw(3) == 0;
      forged.common.kind =
          static_cast<std::uint8_t>(result ? innetwork::Kind::result : innetwork::Kind::data);
      forged.common.group = 7;
      forged.common.key = result || draw(2) == 0 ? 98 : 99;
      const auto victim = static_cast<std::uint32_t>((at + 1) % shape_.leaders);
      forged.common.member = static_cast<std::uint16_t>(victim);
      forged.common.sequence = static_cast<std::uint32_t>(draw(4 * shape_.window));
      const std::uint32_t own = 0x0a4d0001 + static_cast<std::uint32_t>(at);
      const Address to{0x0a4d0001 + victim, static_cast<std::uint16_t>(result ? 5000 : 4791)};
      network.inject(at, network.frame_of(at, {own, 5000}, to, forged));
      ++forged_;
    }
  }
  void remember(const Network& network) {
    std::vector<std::uint8_t> frame = network.last_data(draw(shape_.leaders));
    if (old_.size() < 64) {
      old_.push_back(std::move(frame));
    } else {
      old_[draw(old_.size())] = std::move(frame);
    }
  }

  // At any moment of an operation.
  void end_switches(Network& network) {
    for (std::uint64_t i = draw(3); i > 0; --i) {
      EXPECT_EQ(run(network, 0), End::by_switch) << where();
    }
    const bool restarts = kind() == Kind::restarted_switches;
    const std::uint64_t within_ns = restarts && draw(2) == 0 ? 20 * kUs : 3 * kMs;
    judge(run(network, 0, 0,
              [&] {
                const std::uint64_t until_ns = network.now_ns_ + draw(within_ns);
                network.run_until([&] { return network.next_ns() > until_ns; });
                if (restarts) {
                  network.restart_switches();
                } else {
                  network.stop_computing();
                }
              }),
          true);
    // What comes after has one end as well: the host's for all.
    const End next = run(network, 0);
    if (restarts) {
      EXPECT_EQ(next, End::by_host) << where();
    }
    EXPECT_TRUE(next == End::by_switch || next == End::by_host) << where();
  }

  // The others have the right result or none; who has none waits until the job is ended.
  void end_host(Network& network) {
    for (std::uint64_t i = draw(3); i > 0; --i) {
      EXPECT_EQ(run(network, 0), End::by_switch) << where();
    }
    const std::size_t dead = draw(shape_.leaders);
    Job job(random_, shape_.leaders, 120);
    const std::uint64_t at_ns = network.now_ns_ + draw(20 * kUs);
    for (std::size_t i = 0; i < shape_.leaders; ++i) {
      EXPECT_TRUE(network.leader(i).start(job.operation, job.type, job.count, job.in[i].data(),
                                          job.out[i].data(), network.now_ns_));
    }
    network.run_until([&] { return network.next_ns() > at_ns; });
    network.cut(dead);
    network.run_until([] { return false; }, 100 * kMs);
    const std::vector<std::uint8_t> expected = job.expected(shape_.tors);
    std::size_t ready = 0;
    for (std::size_t i = 0; i < shape_.leaders; ++i) {
      if (i == dead) continue;
      if (network.leader(i).state() == Leader::State::ready) {
        ++ready;
        EXPECT_EQ(job.out[i], expected) << where();
      } else {
        EXPECT_EQ(network.leader(i).state(), Leader::State::busy) << where();
      }
    }
    EXPECT_TRUE(ready == 0 || ready == shape_.leaders - 1) << where();
    ++operations_;
    ++(ready == 0 ? waiting_ : by_switch_);
  }

  void judge(End end, bool may_be_host = false) {
    ++operations_;
    if (end == End::by_switch) ++by_switch_;
    if (end == End::by_host) ++by_host_;
    EXPECT_TRUE(end == End::by_switch || (may_be_host && end == End::by_host))
        << where() << " ends with " << static_cast<int>(end);
  }
  std::string where() const {
    return "round " + std::to_string(rounds_) + ", operation " + std::to_string(operations_);
  }

  std::mt19937_64 random_{static_cast<std::uint64_t>(number_from("OVERDRIVE_SWITCH_SEED", 11))};
  Network::Shape shape_;
  std::vector<std::vector<std::uint8_t>> old_;
  std::uint64_t rounds_ = 0, not_joined_ = 0, operations_ = 0;
  std::uint64_t by_switch_ = 0, by_host_ = 0, waiting_ = 0, forged_ = 0;
};

TEST_P(Faults, NeverGiveAWrongSumOrTwoEnds) {
  const int wanted = number_from("OVERDRIVE_SWITCH_OPERATIONS", 400);
  while (operations_ < static_cast<std::uint64_t>(wanted) && !HasFailure()) round();
  std::printf(
      "%llu operations of %llu groups: %llu by the switch, %llu by the host, %llu waiting\n",
      static_cast<unsigned long long>(operations_), static_cast<unsigned long long>(rounds_),
      static_cast<unsigned long long>(by_switch_), static_cast<unsigned long long>(by_host_),
      static_cast<unsigned long long>(waiting_));
  EXPECT_LE(not_joined_ * 100, rounds_);
  // What the kind is about has happened.
  if (kind() == Kind::restarted_switches || kind() == Kind::silent_switches) {
    EXPECT_GT(by_host_, 0u);
    EXPECT_GT(by_switch_, 0u);
  }
  if (kind() == Kind::dead_host) {
    EXPECT_GT(waiting_, 0u);
  }
  if (kind() == Kind::strangers) {
    EXPECT_GT(forged_, 0u);
  }
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> all;
  for (std::size_t i = 0; i < kNames.size(); ++i) all.push_back(static_cast<Kind>(i));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Faults, ::testing::ValuesIn(all_kinds()), [](const auto& info) {
  return std::string(kNames[static_cast<std::size_t>(info.param)]);
});

}  // namespace
}  // namespace od::fabric
