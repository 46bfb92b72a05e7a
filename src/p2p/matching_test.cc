// Checks that an arriving message goes to the oldest receive that accepts it.
#include "p2p/matching.h"

#include <gtest/gtest.h>

#include <deque>
#include <initializer_list>
#include <random>
#include <vector>

#include "p2p/comm.h"

namespace od::p2p {
namespace {

constexpr std::uint64_t kContext = 77;

class Receives : public testing::Test {
 protected:
  Request& post(int source, int tag, std::uint64_t context = kContext) {
    Request& receive = all_.emplace_back();
    receive.kind = RequestKind::recv;
    receive.context = context;
    receive.peer = source;
    receive.tag = tag;
    receive.comm = &comm_;
    matching_.post(receive);
    return receive;
  }

  Comm comm_;
  Matching matching_;
  std::deque<Request> all_;
};

TEST_F(Receives, OfOneKindAreMatchedInTheOrderOfPosting) {
  std::vector<Request*> posted;
  for (int i = 0; i < 5; ++i) posted.push_back(&post(1, 2));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(matching_.match_posted(kContext, 1, 2), posted[i]);
  Request* const later = &post(1, 2);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), posted[3]);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), posted[4]);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), later);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), nullptr);
  EXPECT_EQ(matching_.posted_count(), 0u);
}

TEST_F(Receives, TakeNothingOfOthers) {
  post(1, 2);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 3), nullptr);
  EXPECT_EQ(matching_.match_posted(kContext, 2, 2), nullptr);
  EXPECT_EQ(matching_.match_posted(kContext + 1, 1, 2), nullptr);
  EXPECT_EQ(matching_.posted_count(), 1u);
}

// As the receives of blocking calls in several threads.
class ReceivesOfThreads : public Receives {
 protected:
  Request& call(int source, int tag, std::uint64_t context = kContext) {
    Request& receive = post(source, tag, context);
    receive.blocking = true;
    return receive;
  }
  void expect_order(int source, int tag, std::initializer_list<Request*> order) {
    for (Request* const next : order) {
      EXPECT_EQ(matching_.match_posted(kContext, static_cast<std::uint32_t>(source), tag), next);
    }
    EXPECT_EQ(matching_.match_posted(kContext, static_cast<std::uint32_t>(source), tag), nullptr);
  }
};

TEST_F(ReceivesOfThreads, TheOneWhoseThreadLooksGoesFirst) {
  Request* const first = &call(1, 2);
  Request* const second = &call(1, 2);
  Request* const third = &call(1, 2);
  EXPECT_FALSE(matching_.bring_forward(*first));
  EXPECT_TRUE(matching_.bring_forward(*third));
  EXPECT_FALSE(matching_.bring_forward(*third));
  EXPECT_LT(third->stamp, second->stamp);
  EXPECT_LT(second->stamp, first->stamp);
  EXPECT_TRUE(matching_.bring_forward(*second));
  expect_order(1, 2, {second, third, first});
  EXPECT_FALSE(matching_.bring_forward(*first));  // has its message
  EXPECT_EQ(matching_.posted_count(), 0u);
}

TEST_F(ReceivesOfThreads, OvertakeNoReceiveOfACallThatHasReturned) {
  Request* const started = &post(1, 2);
  Request* const first = &call(1, 2);
  Request* const second = &call(1, 2);
  EXPECT_FALSE(matching_.bring_forward(*first));
  EXPECT_TRUE(matching_.bring_forward(*second));
  expect_order(1, 2, {started, second, first});
}

TEST_F(ReceivesOfThreads, OvertakeNoneOfOtherKinds) {
  Request* const other_tag = &call(1, 3);
  Request* const mine = &call(1, 2);
  EXPECT_FALSE(matching_.bring_forward(*mine));
  EXPECT_FALSE(matching_.bring_forward(*other_tag));
}

TEST_F(ReceivesOfThreads, OvertakeNothingAcrossAWildcardThatMayHaveComeBefore) {
  Request* const first = &call(1, 2);
  Request* const any = &post(host::kAnySource, 2);
  Request* const mine = &call(1, 2);
  EXPECT_FALSE(matching_.bring_forward(*mine));
  expect_order(1, 2, {first, any, mine});
  Request* const again = &call(1, 2);
  Request* const any_again = &call(host::kAnySource, 2);  // of another thread's call
  Request* const mine_again = &call(1, 2);
  EXPECT_TRUE(matching_.bring_forward(*mine_again));
  expect_order(1, 2, {mine_again, any_again, again});
}

TEST_F(ReceivesOfThreads, WithWildcardsOvertakeEachOther) {
  Request* const first = &call(host::kAnySource, host::kAnyTag);
  Request* const mine = &call(host::kAnySource, host::kAnyTag);
  EXPECT_TRUE(matching_.bring_forward(*mine));
  expect_order(4, 5, {mine, first});
  Request* const again = &call(host::kAnySource, host::kAnyTag);
  post(4, 5);
  Request* const mine_again = &call(host::kAnySource, host::kAnyTag);
  EXPECT_FALSE(matching_.bring_forward(*mine_again));  // would overtake the exact one, too
  EXPECT_EQ(matching_.match_posted(kContext, 1, 1), again);
  Request* const some = &call(host::kAnySource, 5);
  post(host::kAnySource, 5);
  Request* const last = &call(host::kAnySource, 5);
  EXPECT_FALSE(matching_.bring_forward(*last));
  EXPECT_EQ(matching_.match_posted(kContext, 3, 5), mine_again);
  EXPECT_EQ(matching_.match_posted(kContext, 3, 5), some);
}

TEST_F(Receives, WithWildcardsTakeTheirTurn) {
  Request* const exact = &post(1, 2);
  Request* const any_source = &post(host::kAnySource, 2);
  Request* const exact_again = &post(1, 2);
  Request* const any = &post(host::kAnySource, host::kAnyTag);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), exact);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), any_source);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), exact_again);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), any);
}

TEST_F(Receives, ThatTheHostMayServeAreNoLongerItsCandidatesOnceMatched) {
  Request& receive = post(1, 2);
  matching_.add_host_candidate(receive);
  EXPECT_EQ(matching_.match_posted(kContext, 1, 2), &receive);
  EXPECT_FALSE(receive.host_candidate);
  EXPECT_TRUE(matching_.host_candidates().empty());
}

// Against a plain list, with far more kinds of receives than a chain holds one each of.
TEST_F(Receives, AreFoundAsInAList) {
  std::mt19937 random(3);
  std::vector<Request*> list;
  for (int step = 0; step < 30000; ++step) {
    const int source = static_cast<int>(random() % 60);
    const int tag = static_cast<int>(random() % 60);
    const bool wild = step >= 15000 && random() % 4 == 0;
    if (random() % 2 == 0) {
      list.push_back(&post(wild ? host::kAnySource : source, tag));
      continue;
    }
    Request* expected = nullptr;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if ((list[i]->peer != host::kAnySource && list[i]->peer != source) || list[i]->tag != tag) {
        continue;
      }
      expected = list[i];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    ASSERT_EQ(matching_.match_posted(kContext, static_cast<std::uint32_t>(source), tag), expected);
    if (expected == nullptr && !list.empty() && random() % 8 == 0) {
      matching_.unpost(*list.back());
      list.pop_back();
    }
    ASSERT_EQ(matching_.posted_count(), list.size());
  }
}

}  // namespace
}  // namespace od::p2p
