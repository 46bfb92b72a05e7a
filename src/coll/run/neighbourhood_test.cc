// Edges of random graphs and of grids: every message finds its receive, and each block its place.

#include "coll/run/neighbourhood.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

namespace od {
namespace {

using coll::Buffer;
using coll::Collective;
using coll::Schedule;
using coll::Step;
using coll::StepKind;

const Schedule& blocks_of(const Neighbourhood& around) {
  return *around.schedule(Collective::kAlltoall);
}

// From where the block at position `in` of a rank comes: rank and position there.
using Origin = std::pair<int, int>;

// Runs the schedules of all ranks; each message must find exactly one receive.
std::map<std::pair<int, int>, Origin> origins(
    const std::vector<std::unique_ptr<Neighbourhood>>& all, Collective collective) {
  std::map<std::tuple<int, int, std::uint32_t>, int> sent;  // sender, receiver, ordinal: block
  std::map<std::pair<int, int>, Origin> got;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto me = static_cast<int>(rank);
    for (const Step& step : all[rank]->schedule(collective)->steps) {
      EXPECT_EQ(step.count, coll::kWholeBlock);
      if (step.kind != StepKind::kSend) continue;
      EXPECT_NE(step.peer, me);
      EXPECT_EQ(step.source.buffer, Buffer::kInput);
      EXPECT_TRUE(sent.emplace(std::tuple(me, step.peer, step.ordinal), step.source.block).second);
    }
  }
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto me = static_cast<int>(rank);
    for (const Step& step : all[rank]->schedule(collective)->steps) {
      if (step.kind == StepKind::kSend) continue;
      EXPECT_EQ(step.target.buffer, Buffer::kOutput);
      Origin origin{me, step.source.block};
      if (step.kind == StepKind::kReceive) {
        const auto found = sent.find({step.peer, me, step.ordinal});
        if (found == sent.end()) {
          ADD_FAILURE() << me << " waits for " << step.peer;
          continue;
        }
        origin = {step.peer, found->second};
        sent.erase(found);
      }
      EXPECT_TRUE(got.emplace(std::pair(me, step.target.block), origin).second);
    }
  }
  EXPECT_TRUE(sent.empty()) << "nobody receives " << sent.size() << " messages";
  return got;
}

TEST(Neighbourhood, EdgesBetweenTheSameRanksKeepTheirOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 6);
    const auto count = random() % 30;
    std::vector<std::pair<int, int>> edges;
    for (std::size_t i = 0; i < count; ++i) {
      edges.emplace_back(random() % static_cast<unsigned>(ranks),
                         random() % static_cast<unsigned>(ranks));
    }
    std::vector<std::unique_ptr<Neighbourhood>> all;
    std::map<std::pair<int, int>, Origin> expected;
    std::vector<std::vector<int>> out(static_cast<std::size_t>(ranks)), in = out;
    for (const auto& [from, to] : edges) {
      const auto a = static_cast<std::size_t>(from);
      const auto b = static_cast<std::size_t>(to);
      expected[{to, static_cast<int>(in[b].size())}] = {from, static_cast<int>(out[a].size())};
      out[a].push_back(to);
      in[b].push_back(from);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      all.push_back(Neighbourhood::graph(rank, in[at], out[at]));
    }
    ASSERT_EQ(origins(all, Collective::kAlltoallv), expected);
    for (auto& [to, origin] : expected) origin.second = 0;  // all get the same block
    ASSERT_EQ(origins(all, Collective::kAllgather), expected);
  }
}

// What goes down arrives from above, also where the same rank is on both sides, or the rank itself.
TEST(Neighbourhood, SidesOfAGridFaceEachOther) {
  for (const int length : {1, 2, 3, 5}) {
    for (const bool periodic : {false, true}) {
      std::vector<std::unique_ptr<Neighbourhood>> all;
      const auto at = [&](int place) {
        if (periodic) return (place + length) % length;
        return place < 0 || place >= length ? -1 : place;
      };
      for (int rank = 0; rank < length; ++rank) {
        all.push_back(Neighbourhood::grid(rank, {at(rank - 1), at(rank + 1)}));
      }
      std::map<std::pair<int, int>, Origin> expected;
      for (int rank = 0; rank < length; ++rank) {
        if (at(rank - 1) >= 0) expected[{rank, 0}] = {at(rank - 1), 1};
        if (at(rank + 1) >= 0) expected[{rank, 1}] = {at(rank + 1), 0};
      }
      EXPECT_EQ(origins(all, Collective::kAlltoall), expected) << length << periodic;
    }
  }
}

TEST(Neighbourhood, InAPlainGridNobodyIsOnBothSides) {
  EXPECT_TRUE(Neighbourhood::grid(0, {-1, 1})->is_plain_grid());
  EXPECT_TRUE(Neighbourhood::grid(0, {2, 1, -1, -1})->is_plain_grid());
  EXPECT_FALSE(Neighbourhood::grid(0, {-1, 2, 1, 1})->is_plain_grid());
  EXPECT_FALSE(Neighbourhood::grid(0, {0, 0})->is_plain_grid());
  EXPECT_FALSE(Neighbourhood::graph(0, {1}, {1})->is_plain_grid());
}

TEST(Neighbourhood, BeyondTheBorderIsNobody) {
  const auto around = Neighbourhood::grid(0, {-1, 1});
  EXPECT_TRUE(around->is_plain_grid());
  ASSERT_EQ(around->in().size(), 2u);
  EXPECT_TRUE(around->in()[0].is_nobody());
  EXPECT_FALSE(around->out()[1].is_nobody());
  EXPECT_EQ(blocks_of(*around).steps.size(), 2u);
  EXPECT_TRUE(blocks_of(*Neighbourhood::graph(0, {}, {})).steps.empty());
}

}  // namespace
}  // namespace od
