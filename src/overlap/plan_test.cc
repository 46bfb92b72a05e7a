// Plans of all ranks, run together in one process: every rank has what the collective means, and
// both sides of every message agree about it.
#include "overlap/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "coll/plan/schedule.h"

namespace od::overlap {
namespace {

using coll::Buffer;
using coll::Place;
using coll::Step;
using coll::StepKind;

using Bytes = std::vector<unsigned char>;

// What rank `from` has for rank `to`: a piece of one long random text, another for each two.
Bytes block(int from, int to, std::int64_t bytes) {
  static const Bytes text = [] {
    std::mt19937_64 random(7);
    Bytes made(1501000 / 8 * 8);
    for (std::size_t i = 0; i < made.size(); i += 8) {
      const std::uint64_t value = random();
      std::memcpy(&made[i], &value, sizeof value);
    }
    return made;
  }();
  const auto begin = text.begin() + from * 31 + to * 7;
  return Bytes(begin, begin + bytes);
}

// Blocks of input and output; one block where buffers are one piece.
struct Memory {
  std::vector<Bytes> input;
  std::vector<Bytes> output;

  unsigned char* at(const Place& place) {
    std::vector<Bytes>& blocks = place.buffer == Buffer::kInput ? input : output;
    return blocks.at(static_cast<std::size_t>(place.block)).data() + place.offset;
  }
};

void run_all(const std::vector<Plan>& plans, std::vector<Memory>& memory) {
  std::map<std::tuple<int, int, std::uint32_t>, Bytes> messages;
  std::vector<coll::Run> runs(plans.size());
  std::vector<std::vector<std::uint32_t>> receiving(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    runs[i].begin(plans[i].schedule);
    ASSERT_EQ(plans[i].piece_of_step.size(), plans[i].schedule.steps.size());
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      const int rank = static_cast<int>(i);
      std::uint32_t index;
      while (runs[i].take(index)) {
        moved = true;
        const Step& step = plans[i].schedule.steps[index];
        if (step.kind == StepKind::kReceive) {
          receiving[i].push_back(index);
          continue;
        }
        if (step.kind == StepKind::kSend) {
          const unsigned char* const from = memory[i].at(step.source);
          messages[{rank, step.peer, step.ordinal}] = Bytes(from, from + step.count);
        } else {
          std::copy_n(memory[i].at(step.source), step.count, memory[i].at(step.target));
        }
        runs[i].complete(index);
      }
      for (std::size_t k = 0; k < receiving[i].size();) {
        const Step& step = plans[i].schedule.steps[receiving[i][k]];
        const auto found = messages.find({step.peer, rank, step.ordinal});
        if (found == messages.end()) {
          ++k;
          continue;
        }
        ASSERT_EQ(found->second.size(), static_cast<std::size_t>(step.count));
        std::copy(found->second.begin(), found->second.end(), memory[i].at(step.target));
        messages.erase(found);
        runs[i].complete(receiving[i][k]);
        receiving[i].erase(receiving[i].begin() + static_cast<std::ptrdiff_t>(k));
        moved = true;
      }
    }
  }
  EXPECT_TRUE(messages.empty());
  for (const coll::Run& run : runs) EXPECT_TRUE(run.done());
}

// Every byte of the output that a step touches belongs to the piece that it names.
void check_pieces(const Plan& plan) {
  for (std::size_t i = 0; i < plan.schedule.steps.size(); ++i) {
    const Step& step = plan.schedule.steps[i];
    const Place& place = step.kind == StepKind::kSend ? step.source : step.target;
    const bool touches = step.kind != StepKind::kJoin && place.buffer == Buffer::kOutput;
    ASSERT_EQ(plan.piece_of_step[i] != Plan::kNoPiece, touches);
    if (!touches) continue;
    const Piece& piece = plan.pieces[static_cast<std::size_t>(plan.piece_of_step[i])];
    EXPECT_EQ(piece.place, place);
    EXPECT_EQ(piece.bytes, step.count);
  }
}

const std::vector<std::vector<int>> kPlacements = {
    {0, 1}, {0, 0, 1, 1}, {0, 1, 0, 1, 2}, {0, 1, 1, 2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
// Of the longest, orders know fewer parts than there are pieces.
const std::vector<std::int64_t> kLengths = {0, 1, 4096, 16383, 16384, 40000, 1000000, 1500000};

// The last rank's data is needed first, and the last piece of it.
Order backwards(int ranks, std::size_t pieces = Accesses::kPieces) {
  Order order;
  for (int rank = 0; rank < ranks; ++rank) order.turn_of_rank.push_back(ranks - 1 - rank);
  for (std::size_t i = pieces; i > 0; --i) {
    order.pieces.push_back(static_cast<std::uint8_t>(i - 1));
  }
  return order;
}

TEST(PlanTest, CutsCoverTheBlockEndsFirst) {
  std::vector<std::int64_t> lengths = kLengths;
  lengths.insert(lengths.end(), {5000000, 100000000});
  EXPECT_GT(cut(kLengths.back()).size() - 2, Accesses::kPieces);
  for (const std::int64_t bytes : lengths) {
    std::vector<Cut> cuts = cut(bytes);
    if (cuts.size() > 1) {
      EXPECT_EQ(cuts[0].offset, 0);
      EXPECT_EQ(cuts[1].offset + cuts[1].bytes, bytes);
    }
    std::sort(cuts.begin(), cuts.end(),
              [](const Cut& a, const Cut& b) { return a.offset < b.offset; });
    std::int64_t end = 0;
    for (const Cut& each : cuts) {
      EXPECT_EQ(each.offset, end);
      EXPECT_GT(each.bytes, 0);
      end += each.bytes;
    }
    EXPECT_EQ(end, bytes);
  }
}

TEST(PlanTest, FirstPiecesSayHowManyThereAre) {
  for (const std::int64_t bytes :
       {1, 4095, 16383, 16384, 65536, 70000, 1000000, 1500000, 9000000, 100000000}) {
    const std::vector<Cut> cuts = cut(bytes);
    EXPECT_EQ(cuts[0].offset, 0);
    EXPECT_EQ(pieces_told(cuts[0].bytes), cuts.size()) << bytes;
    if (cuts.size() == 1) continue;
    EXPECT_LE(cuts[0].bytes, kMostEndBytes);
    EXPECT_LE(cuts[1].bytes, kMostEndBytes);
  }
  const std::vector<int> placement = {0, 1, 1};
  const coll::Nodes nodes(placement);
  const std::vector<std::int64_t> bytes = {100, 20000, 300000};
  const auto check = [](const Plan& plan, std::size_t count) {
    EXPECT_EQ(plan.firsts.size(), count);
    std::uint32_t before = 0;
    for (const First& first : plan.firsts) {
      EXPECT_TRUE(first.step > before || &first == &plan.firsts.front());
      before = first.step;
      const Step& step = plan.schedule.steps[first.step];
      EXPECT_EQ(step.kind, StepKind::kReceive);
      EXPECT_EQ(pieces_told(step.count), first.pieces);
      EXPECT_GE(first.room_bytes, step.count);
      // The others are the next ones of that peer; room is left for those that nobody expects.
      std::uint32_t others = 0;
      for (const Step& other : plan.schedule.steps) {
        if (other.kind == step.kind && other.peer == step.peer && other.ordinal >= step.ordinal &&
            other.ordinal < step.ordinal + cut(std::int64_t{1} << 32).size()) {
          EXPECT_EQ(other.ordinal, step.ordinal + others);
          ++others;
        }
      }
      EXPECT_EQ(others, first.pieces);
    }
  };
  // Blocks that are not cut, and longer than a first piece of those that are.
  const std::vector<std::int64_t> whole = {kMostEndBytes + 1, 8192, 16383};
  for (int rank = 0; rank < 3; ++rank) {
    check(plan_alltoall(nodes, rank, whole, whole, true), 2);
    check(plan_allgather(nodes, rank, whole, true, false), 2);
  }
  check(plan_broadcast(nodes, 1, 0, 8192), 1);
  check(plan_broadcast(nodes, 0, 0, 300000), 0);
  check(plan_broadcast(nodes, 1, 0, 300000), 1);
  check(plan_alltoall(nodes, 1, bytes, bytes, true), 2);
  check(plan_alltoall(nodes, 0, bytes, bytes, true), 2);
  check(plan_allgather(nodes, 0, bytes, true, false), 2);
  check(plan_allgather(nodes, 2, bytes, true, true), 2);
}

// Whoever cuts the blocks before into other numbers of pieces numbers a block alike.
TEST(PlanTest, BlocksOfAllgathersAreNumberedByThemselves) {
  const std::vector<int> placement = {0, 1, 2, 3};
  const coll::Nodes nodes(placement);
  const auto first_ordinals = [&](std::int64_t length) {
    const std::vector<std::int64_t> bytes(4, length);
    const Plan plan = plan_allgather(nodes, 0, bytes, false, false);
    std::vector<std::uint32_t> ordinals;
    for (const First& first : plan.firsts) {
      ordinals.push_back(plan.schedule.steps[first.step].ordinal);
    }
    return ordinals;
  };
  EXPECT_EQ(first_ordinals(100).size(), 3u);
  EXPECT_EQ(first_ordinals(300000), first_ordinals(100));
  EXPECT_EQ(first_ordinals(100000000), first_ordinals(100));
}

// More blocks and pieces than there are tags: a message that could be taken for an earlier one
// leaves when that one has.
TEST(PlanTest, MessagesOfTheSameTagDoNotOvertake) {
  constexpr int kRanks = 70;
  std::vector<int> placement;
  for (int rank = 0; rank < kRanks; ++rank) placement.push_back(rank);
  const coll::Nodes nodes(placement);
  const std::vector<std::int64_t> bytes(kRanks, 8 << 20);
  const Plan plan = plan_allgather(nodes, 0, bytes, false, false);
  ASSERT_GT(plan.schedule.ordinals, coll::kMostOrdinals);
  coll::Run run;
  run.begin(plan.schedule);
  std::map<std::uint32_t, std::uint32_t> last;  // ordinal by tag
  std::vector<std::uint32_t> slow;
  std::size_t sent = 0;
  for (;;) {
    bool moved = false;
    for (std::uint32_t index; run.take(index); moved = true) {
      const Step& step = plan.schedule.steps[index];
      if (step.kind == StepKind::kSend) {
        const auto [before, first] =
            last.try_emplace(step.ordinal % coll::kMostOrdinals, step.ordinal);
        ASSERT_LE(before->second, step.ordinal);
        before->second = step.ordinal;
        ++sent;
      }
      // What lies between the ends takes as long as it can.
      if (step.count > kMostEndBytes && step.kind == StepKind::kSend) {
        slow.push_back(index);
      } else {
        run.complete(index);
      }
    }
    if (moved) continue;
    if (slow.empty()) break;
    run.complete(slow.back());
    slow.pop_back();
  }
  EXPECT_TRUE(run.done());
  EXPECT_EQ(sent, (kRanks - 1) * cut(bytes[0]).size());
}

TEST(PlanTest, PiecesOfLongBlocksAreShortMessagesAndFollowTheOrder) {
  constexpr std::int64_t kBytes = 4 << 20;
  const std::vector<Cut> cuts = cut(kBytes, backwards(2));
  std::int32_t part = static_cast<std::int32_t>(Accesses::kPieces) - 1;
  std::int64_t offset = 0;
  for (std::size_t i = 2; i < cuts.size(); ++i) {
    EXPECT_LE(cuts[i].bytes, 60 << 10);
    if (cuts[i].part == part) {
      EXPECT_GT(cuts[i].offset, offset);
    } else {
      EXPECT_EQ(cuts[i].part, --part);
    }
    offset = cuts[i].offset;
  }
  EXPECT_EQ(part, 0);
  // However long a block is.
  EXPECT_LE(cut(std::int64_t{1} << 32).size(), 130u);
}

TEST(PlanTest, Broadcasts) {
  for (const std::vector<int>& placement : kPlacements) {
    const coll::Nodes nodes(placement);
    for (const std::int64_t bytes : kLengths) {
      for (int root = 0; root < nodes.ranks(); ++root) {
        std::vector<Plan> plans;
        std::vector<Memory> memory;
        for (int rank = 0; rank < nodes.ranks(); ++rank) {
          plans.push_back(plan_broadcast(nodes, rank, root, bytes,
                                         root % 2 == 0 ? Order{} : backwards(nodes.ranks())));
          check_pieces(plans.back());
          Bytes mine =
              rank == root ? block(root, 0, bytes) : Bytes(static_cast<std::size_t>(bytes));
          memory.push_back({{}, {mine}});
        }
        run_all(plans, memory);
        for (const Memory& each : memory) EXPECT_EQ(each.output[0], block(root, 0, bytes));
      }
    }
  }
}

TEST(PlanTest, Allgathers) {
  for (const std::vector<int>& placement : kPlacements) {
    const coll::Nodes nodes(placement);
    const auto size = static_cast<std::size_t>(nodes.ranks());
    for (const bool blocks : {false, true}) {
      for (const bool in_place : {false, true}) {
        for (const std::int64_t longest : kLengths) {
          std::vector<std::int64_t> bytes(size, longest);
          for (std::size_t i = 0; i < size && blocks; ++i) {
            bytes[i] = longest / static_cast<std::int64_t>(1 + i % 3);
          }
          std::vector<Bytes> expected;
          Bytes whole;
          for (std::size_t i = 0; i < size; ++i) {
            expected.push_back(block(static_cast<int>(i), 0, bytes[i]));
            whole.insert(whole.end(), expected[i].begin(), expected[i].end());
          }
          if (!blocks) expected = {whole};
          std::vector<Plan> plans;
          std::vector<Memory> memory(size);
          for (std::size_t i = 0; i < size; ++i) {
            plans.push_back(plan_allgather(nodes, static_cast<int>(i), bytes, blocks, in_place,
                                           in_place ? backwards(nodes.ranks()) : Order{}));
            check_pieces(plans.back());
            const Bytes mine = block(static_cast<int>(i), 0, bytes[i]);
            memory[i].input.assign(blocks ? size : 1, mine);
            for (const Bytes& each : expected) memory[i].output.emplace_back(each.size());
            if (!in_place) continue;
            const auto offset = blocks ? 0 : static_cast<std::ptrdiff_t>(i) * longest;
            std::copy(mine.begin(), mine.end(), memory[i].output[blocks ? i : 0].begin() + offset);
          }
          run_all(plans, memory);
          for (const Memory& each : memory) EXPECT_EQ(each.output, expected);
        }
      }
    }
  }
}

TEST(PlanTest, PiecesInTheOrderOfNeed) {
  const std::vector<Cut> natural = cut(1000000);
  // Steps of whole pages: one piece fewer than Orders know.
  ASSERT_EQ(natural.size(), 21u);
  const std::vector<Cut> ordered = cut(1000000, backwards(2, 19));
  ASSERT_EQ(ordered.size(), natural.size());
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(ordered[i].offset, natural[i].offset);
  for (std::size_t i = 2; i < 21; ++i) {
    EXPECT_EQ(ordered[i].offset, natural[22 - i].offset);
    EXPECT_EQ(ordered[i].part, static_cast<std::int32_t>(20 - i));
  }
  // Of other lengths.
  EXPECT_EQ(cut(300000, backwards(2)).size(), cut(300000).size());
  EXPECT_EQ(cut(300000, backwards(2)).back().offset, cut(300000).back().offset);
}

TEST(PlanTest, OneRankOfANodeHasTheLink) {
  const std::vector<int> placement = {0, 0, 1, 1};
  const coll::Nodes nodes(placement);
  const std::vector<std::int64_t> bytes(4, 1000000);
  // Rank 1 first: rank 0 sends nothing large to the other node before it is told to.
  const Plan plan = plan_alltoall(nodes, 0, bytes, bytes, false, backwards(4));
  coll::Run run;
  run.begin(plan.schedule);
  const auto count_large = [&](std::uint32_t* gate) {
    int large = 0;
    for (std::uint32_t index; run.take(index);) {
      const Step& step = plan.schedule.steps[index];
      if (step.kind == StepKind::kSend && step.peer >= 2 && step.count > kMostEndBytes) ++large;
      if (step.kind == StepKind::kReceive && step.count == 0) *gate = index;
    }
    return large;
  };
  std::uint32_t gate = ~0u;
  EXPECT_EQ(count_large(&gate), 0);
  ASSERT_NE(gate, ~0u);
  run.complete(gate);
  // From then on some at a time to each of the two.
  EXPECT_EQ(count_large(&gate), 8);
}

// A host whose messages wait for an answer sends pieces one after the other.
TEST(PlanTest, FewPiecesAreUnderWayBetweenTwoRanks) {
  const std::vector<int> placement = {0, 1};
  const coll::Nodes nodes(placement);
  const Plan plan = plan_broadcast(nodes, 0, 0, 4 << 20);
  coll::Run run;
  run.begin(plan.schedule);
  std::vector<std::uint32_t> under_way;
  std::size_t sent = 0;
  for (;;) {
    for (std::uint32_t index; run.take(index);) {
      const Step& step = plan.schedule.steps[index];
      if (step.kind == StepKind::kSend && step.count > kMostEndBytes) {
        under_way.push_back(index);
        ++sent;
      } else {
        run.complete(index);
      }
    }
    if (under_way.empty()) break;
    EXPECT_LE(under_way.size(), 4u);
    run.complete(under_way.front());
    under_way.erase(under_way.begin());
  }
  EXPECT_TRUE(run.done());
  EXPECT_EQ(sent, cut(4 << 20).size() - 2);
}

TEST(PlanTest, Alltoalls) {
  constexpr int kSize = 5;
  const std::vector<int> placement = {0, 1, 0, 1, 0};
  const coll::Nodes nodes(placement);
  for (const Order& order : {Order{}, backwards(kSize)})
    for (const bool blocks : {false, true}) {
      for (const std::int64_t longest : kLengths) {
        const auto length = [&](int from, int to) {
          return blocks ? longest / (1 + (from + 2 * to) % 4) : longest;
        };
        std::vector<Plan> plans;
        std::vector<Memory> memory(kSize);
        std::vector<std::vector<Bytes>> expected(kSize);
        for (int rank = 0; rank < kSize; ++rank) {
          const auto i = static_cast<std::size_t>(rank);
          std::vector<std::int64_t> sent, received;
          std::vector<Bytes> in, out;
          for (int other = 0; other < kSize; ++other) {
            sent.push_back(length(rank, other));
            received.push_back(length(other, rank));
            in.push_back(block(rank, other, sent.back()));
            out.push_back(block(other, rank, received.back()));
          }
          plans.push_back(plan_alltoall(nodes, rank, sent, received, blocks, order));
          check_pieces(plans.back());
          if (!blocks) {
            for (std::vector<Bytes>* each : {&in, &out}) {
              Bytes whole;
              for (const Bytes& part : *each) whole.insert(whole.end(), part.begin(), part.end());
              *each = {whole};
            }
          }
          memory[i].input = in;
          for (const Bytes& each : out) memory[i].output.emplace_back(each.size());
          expected[i] = out;
        }
        run_all(plans, memory);
        for (std::size_t i = 0; i < kSize; ++i) EXPECT_EQ(memory[i].output, expected[i]);
      }
    }
}

}  // namespace
}  // namespace od::overlap
