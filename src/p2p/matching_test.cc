// Checks that an arriving message goes to the oldest receive that accepts it.
#include "p2p/matching.h"

#include <gtest/gtest.h>

#include <deque>
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
