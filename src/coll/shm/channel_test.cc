// Checks tickets, acknowledgement and waking of a channel whose members are all in this process,
// and what its words order, with members that are threads.

#include "coll/shm/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace od::coll::shm {
namespace {

constexpr std::uint64_t kSlotBytes = 64 << 10;
constexpr std::uint64_t kRegionBytes = od::node::kPageBytes + kSlotBytes;

// Regions of so many members, with a channel for each.
class Members {
 public:
  explicit Members(const std::vector<std::uint64_t>& bases, bool expedited = false,
                   bool shared_cores = false) {
    od::node::RegionLayout layout;
    layout.slots_offset = od::node::kPageBytes;
    layout.slot_bytes = kSlotBytes;
    layout.slot_count = 1;
    std::vector<ChannelMember> members;
    for (const std::uint64_t base : bases) {
      auto* const region = static_cast<std::byte*>(std::aligned_alloc(4096, kRegionBytes));
      std::memset(region, 0, kRegionBytes);
      regions_.emplace_back(region);
      // As Slots reads the base that it hands out.
      slot_control(region, layout, 0)->completed.store(base, std::memory_order_relaxed);
      members.push_back({region, {0, base}});
    }
    for (std::size_t i = 0; i < bases.size(); ++i) {
      channels_.push_back(std::make_unique<Channel>(members, static_cast<int>(i), layout,
                                                    od::node::WakeMode{expedited},
                                                    Lanes(shared_cores)));
    }
  }
  Channel& operator[](int i) { return *channels_[static_cast<std::size_t>(i)]; }
  int size() const { return static_cast<int>(channels_.size()); }
  std::atomic<std::uint32_t>& armed(int i) {
    auto* const region = regions_[static_cast<std::size_t>(i)].get();
    return reinterpret_cast<od::node::RegionHeader*>(region)->armed;
  }
  // Member i begins and completes everything up to this number.
  void complete(int i, std::uint64_t below) {
    while ((*this)[i].next() < below) (*this)[i].begin();
    (*this)[i].complete(below);
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> regions_;
  std::vector<std::unique_ptr<Channel>> channels_;
};

TEST(Channel, TicketsGoOnWhereTheSlotStopped) {
  Members members({1000, 0});
  EXPECT_EQ(members[1].ticket(0, 0), 1001u);
  EXPECT_EQ(members[1].ticket(1, 7), 8u);
  EXPECT_FALSE(members[1].shows(0, 0));
  EXPECT_FALSE(members[1].post_of(0, 0).here());
  members[0].publish(0);
  EXPECT_TRUE(members[1].shows(0, 0));
  EXPECT_TRUE(members[1].post_of(0, 0).here());
  EXPECT_FALSE(members[1].shows(0, kLanes)) << "the same lane, another exchange";
  EXPECT_FALSE(members[1].shows(0, 1));
}

TEST(Channel, LateLooksAtOldWordsFindAtLeastWhatTheyWaitFor) {
  Members members({5, 6});
  members[0].tell_made(3, 2);
  members[0].tell_read(3, 1);
  EXPECT_EQ(members[1].made_by(0, 3), 2u);
  EXPECT_TRUE(members[1].pieces_of(0, 3, 2).here());
  EXPECT_FALSE(members[1].pieces_of(0, 3, 3).here());
  EXPECT_TRUE(members[1].rounds_of(0, 3, 1).here());
  EXPECT_FALSE(members[1].rounds_of(0, 3, kAllSteps).here());
  EXPECT_FALSE(members[1].has_read_all(0, 3));
  members[0].publish(3);
  members[0].publish(3 + kLanes);
  members[0].tell_made(3 + kLanes, 1);
  members[0].tell_read(3 + kLanes, 1);
  EXPECT_TRUE(members[1].has_posted(0, 3));
  EXPECT_TRUE(members[1].pieces_of(0, 3, 1000).here());
  EXPECT_TRUE(members[1].rounds_of(0, 3, kAllSteps).here());
  EXPECT_TRUE(members[1].has_read_all(0, 3));
  EXPECT_EQ(members[1].made_by(0, 3 + 2 * kLanes), 0u) << "nothing of a later exchange";
}

TEST(Channel, IsAcknowledgedWhenAllHaveCompleted) {
  Members members({10, 20, 30});
  EXPECT_TRUE(members[0].acknowledged(0));
  members[0].begin();
  EXPECT_FALSE(members[0].acknowledged(1)) << "not over here";
  EXPECT_FALSE(members[0].awaits_acknowledgement().waiting());
  members.complete(0, 1);
  members.complete(1, 1);
  EXPECT_FALSE(members[0].acknowledged(1));
  const Awaited awaited = members[0].awaits_acknowledgement();
  ASSERT_TRUE(awaited.waiting());
  EXPECT_EQ(members[0].owner_of(awaited.word), 2);
  EXPECT_FALSE(awaited.here());
  members.complete(2, 1);
  EXPECT_TRUE(awaited.here());
  EXPECT_TRUE(members[0].acknowledged(1));
  EXPECT_FALSE(members[0].awaits_acknowledgement().waiting());
  EXPECT_EQ(members[0].acknowledged_below(), 1u);
  EXPECT_TRUE(members[0].quiet());
}

TEST(Channel, ALaneServesAgainWhenItsLastExchangeIsOverEverywhere) {
  Members members({0, 0});
  for (std::uint64_t number = 0; number < kLanes; ++number) {
    EXPECT_TRUE(members[0].post_free(number));
    members[0].begin();
  }
  members.complete(0, kLanes);
  EXPECT_FALSE(members[0].post_free(kLanes));
  members.complete(1, 1);
  EXPECT_TRUE(members[0].post_free(kLanes));
  EXPECT_FALSE(members[0].post_free(kLanes + 1));
}

// With shared cores more posts than step words and cells.
TEST(Channel, ShowsMoreBeforeOthersHaveCompletedWhereCoresAreShared) {
  Members members({4000, 9}, false, true);
  Channel& channel = members[0];
  ASSERT_GT(channel.lanes().posts(), channel.lanes().cells());
  ASSERT_GT(channel.lanes().cells(), kLanes);
  for (std::uint64_t number = 0; number < channel.lanes().posts(); ++number) {
    EXPECT_TRUE(channel.post_free(number));
    EXPECT_EQ(channel.cell_free(number), number < channel.lanes().cells());
    channel.own_post(number).payload_bytes = static_cast<std::uint8_t>(number);
    channel.publish(number);
    channel.tell_made(number, 2);
    channel.tell_read(number, 2);
    channel.begin();
    channel.complete(number + 1);
  }
  EXPECT_FALSE(channel.post_free(channel.lanes().posts()));
  for (std::uint64_t number = 0; number < channel.lanes().posts(); ++number) {
    EXPECT_TRUE(members[1].shows(0, number));
    EXPECT_EQ(members[1].post(0, number).payload_bytes, number);
    // At least what it has told, although the word is a later exchange's.
    EXPECT_GE(members[1].made_by(0, number), 2u);
    EXPECT_TRUE(members[1].rounds_of(0, number, 2).here());
  }
  members.complete(1, 1);
  EXPECT_TRUE(channel.post_free(channel.lanes().posts()));
  EXPECT_FALSE(channel.post_free(channel.lanes().posts() + 1));
  EXPECT_TRUE(channel.cell_free(channel.lanes().cells()));
}

TEST(Lanes, LieBesideEachOther) {
  for (const bool shared_cores : {false, true}) {
    const Lanes lanes(shared_cores);
    auto* const slot = static_cast<std::byte*>(std::aligned_alloc(4096, kControlBytes));
    auto* const control = reinterpret_cast<SlotControl*>(slot);
    std::vector<std::pair<std::size_t, std::size_t>> taken;  // from, to
    for (std::uint64_t i = 0; i < lanes.posts(); ++i) {
      const std::size_t at =
          static_cast<std::size_t>(reinterpret_cast<std::byte*>(&lanes.post(control, i)) - slot);
      EXPECT_EQ(at % kFalseSharingBytes, 0u);
      taken.emplace_back(at, at + sizeof(Post));
      EXPECT_EQ(&lanes.post(control, i), &lanes.post(control, i + 5 * lanes.posts()));
    }
    for (std::uint64_t i = 0; i < lanes.cells(); ++i) {
      EXPECT_EQ(lanes.cell_offset(i) % kFalseSharingBytes, 0u);
      taken.emplace_back(lanes.cell_offset(i), lanes.cell_offset(i) + lanes.cell_bytes());
    }
    std::sort(taken.begin(), taken.end());
    EXPECT_LE(taken.back().second, kControlBytes);
    for (std::size_t i = 1; i < taken.size(); ++i) {
      EXPECT_GE(taken[i].first, taken[i - 1].second) << i;
    }
    std::free(slot);
  }
}

TEST(Channel, PostsTellInPassingWhatIsOver) {
  // The low half of the word passes zero.
  Members members({0, 0xffff'fffe});
  members.complete(0, 4);
  members.complete(1, 3);
  const std::uint32_t told = members[1].completed_low();
  EXPECT_EQ(told, 1u);
  // Before the word itself is looked at.
  members[0].note_completed(1, told);
  EXPECT_TRUE(members[0].acknowledged(3));
  EXPECT_FALSE(members[0].acknowledged(4));
  members[0].note_completed(1, told - 2);
  EXPECT_TRUE(members[0].acknowledged(3)) << "a post that is older takes nothing back";
  EXPECT_FALSE(members[0].acknowledged(4)) << "nor is it taken for a later one";
  members.complete(1, 4);
  EXPECT_TRUE(members[0].acknowledged(4));
}

TEST(Channel, WakesWhoeverIsMarkedAndAsleep) {
  for (const bool expedited : {false, true}) {
    Members members({0, 0, 0}, expedited);
    EXPECT_EQ(members[0].wakes_at_once(), expedited);
    members.armed(0) = members.armed(1) = 1;
    for (int i = 0; i < 3; ++i) members[0].mark(i);
    members[0].order_for_sleepers();
    members[0].wake_marked();
    EXPECT_EQ(members[0].wakes(), 1u) << "the other is awake, and nobody wakes itself";
    EXPECT_EQ(members.armed(0).load(), 1u);
    EXPECT_EQ(members.armed(1).load(), 0u);
    members.armed(1) = 1;
    members[0].wake_marked();
    EXPECT_EQ(members[0].wakes(), 1u) << "marks are forgotten";
    members.armed(2) = 1;
    members[0].wake_for_post();
    EXPECT_EQ(members[0].wakes(), 3u);
  }
}

TEST(Channel, TellsOfCompletedExchangesThoseWhoWaitForThem) {
  Members members({0, 0, 0});
  members.complete(1, 1);
  members.complete(2, 1);
  members.complete(0, 1);
  members[0].wake_marked();
  for (int i = 1; i < 3; ++i) {
    members.armed(i) = 1;
    while (members[i].next() < 9) members[i].begin();
  }
  members.complete(1, 9);
  EXPECT_FALSE(members[1].acknowledged(9));  // says that it wants to know
  members.complete(0, 9);
  members[0].mark_for_completed();
  members[0].wake_marked();
  EXPECT_EQ(members[0].wakes(), 1u);
  EXPECT_EQ(members.armed(1).load(), 0u);
  EXPECT_EQ(members.armed(2).load(), 1u) << "has not asked";
  members.armed(1) = 1;
  members[0].mark_for_completed();
  members[0].wake_marked();
  EXPECT_EQ(members[0].wakes(), 1u) << "there is nothing new";
  members.complete(0, 10);
  members[0].wake_for_completed();
  EXPECT_EQ(members[0].wakes(), 2u);
  members.complete(2, 9);
  EXPECT_TRUE(members[1].acknowledged(9));
  members.armed(1) = 1;
  members.complete(0, 11);
  members[0].wake_for_completed();
  EXPECT_EQ(members[0].wakes(), 2u) << "it waits no more";
}

TEST(Channel, ReportsOfAllMembersTellHowFarApartTheyWere) {
  Members members({3, 5});
  std::uint64_t apart = 0;
  members[0].note_arrival(2, 1000);
  EXPECT_FALSE(members[0].arrivals_apart(2, &apart));
  members[1].note_arrival(2, 1700);
  ASSERT_TRUE(members[0].arrivals_apart(2, &apart));
  EXPECT_EQ(apart, 700u);
}

// Each shows a number in its slot and reads those of the others, which must be those of the same
// exchange: what is shown comes with the ticket, and is overwritten only when all have read it.
void order_what_is_shown_and_read(bool shared_cores) {
  constexpr int kMembers = 3;
  // Enough for every lane many times over. Where somebody else wants the cores each takes
  // milliseconds, and what an order is missing for the thread sanitizer sees at the first one.
  constexpr std::uint64_t kExchanges = 5'000;
  Members members({0, 7, 1 << 20}, false, shared_cores);
  std::vector<std::string> faults(kMembers);
  const auto run = [&](int me) {
    Channel& channel = members[me];
    const auto wait = [](auto&& done) {
      while (!done()) std::this_thread::yield();
    };
    const auto place = [](Channel& of, int i, std::uint64_t number) {
      std::byte* const line = of.slot(i) + of.lanes().cell_offset(number);
      return reinterpret_cast<std::uint64_t*>(line);
    };
    for (std::uint64_t number = 0; number < kExchanges; ++number) {
      wait([&] { return channel.cell_free(number); });
      *place(channel, me, number) = 10 * number + static_cast<std::uint64_t>(me);
      channel.own_post(number).completed = channel.completed_low();
      channel.publish(number);
      channel.begin();
      for (int i = 0; i < kMembers; ++i) {
        if (i == me) continue;
        wait([&] { return channel.shows(i, number); });
        channel.note_completed(i, channel.post(i, number).completed);
        const std::uint64_t found = *place(channel, i, number);
        if (found != 10 * number + static_cast<std::uint64_t>(i)) {
          faults[static_cast<std::size_t>(me)] = "exchange " + std::to_string(number) + " of " +
                                                 std::to_string(i) + ": " + std::to_string(found);
        }
      }
      channel.complete(number + 1);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kMembers; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

TEST(Channel, OrdersWhatIsShownAndRead) { order_what_is_shown_and_read(false); }
TEST(Channel, OrdersWhatIsShownAndReadWhereCoresAreShared) { order_what_is_shown_and_read(true); }

}  // namespace
}  // namespace od::coll::shm
