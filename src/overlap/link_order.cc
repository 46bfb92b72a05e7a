// Sorts by need: see link_order.h.
#include "overlap/link_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

namespace od::overlap {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

template <std::size_t kCount>
std::int64_t mean(const std::array<std::int64_t, kCount>& sums,
                  const std::array<std::int64_t, kCount>& counts, std::size_t at) {
  return counts[at] == 0 ? kNever : sums[at] / counts[at];
}

// Numbers 0, 1, ... by what each needs; empty when they are in that order already.
std::vector<std::size_t> sorted(const std::vector<std::int64_t>& needed) {
  std::vector<std::size_t> order(needed.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return needed[a] < needed[b]; });
  return order;
}

}  // namespace

void Accesses::add(const Accesses& other) {
  for (std::size_t i = 0; i < kBlocks; ++i) {
    block_us[i] += other.block_us[i];
    block_count[i] += other.block_count[i];
  }
  for (std::size_t i = 0; i < kPieces; ++i) {
    piece_us[i] += other.piece_us[i];
    piece_count[i] += other.piece_count[i];
  }
}

bool Accesses::any() const {
  return std::any_of(block_count.begin(), block_count.end(),
                     [](std::int64_t count) { return count != 0; });
}

Order order_of(const Accesses& accesses, int ranks) {
  Order order;
  if (!accesses.any()) return order;
  std::vector<std::int64_t> needed;
  for (int rank = 0; rank < ranks; ++rank) {
    needed.push_back(
        mean(accesses.block_us, accesses.block_count, Accesses::place_of(rank, ranks)));
  }
  const std::vector<std::size_t> ranks_in_order = sorted(needed);
  order.turn_of_rank.resize(needed.size());
  for (std::size_t turn = 0; turn < ranks_in_order.size(); ++turn) {
    order.turn_of_rank[ranks_in_order[turn]] = static_cast<std::int32_t>(turn);
  }
  needed.clear();
  for (std::size_t piece = 0; piece < Accesses::kPieces; ++piece) {
    if (accesses.piece_count[piece] == 0) break;
    needed.push_back(mean(accesses.piece_us, accesses.piece_count, piece));
  }
  for (const std::size_t piece : sorted(needed)) {
    order.pieces.push_back(static_cast<std::uint8_t>(piece));
  }
  return order;
}

std::vector<int> link_turns(const Order& order, const coll::Nodes& nodes, int node) {
  const std::span<const int> members = nodes.members(node);
  if (order.turn_of_rank.size() != static_cast<std::size_t>(nodes.ranks()) || members.size() < 2) {
    return {};
  }
  std::vector<int> turns(members.begin(), members.end());
  std::sort(turns.begin(), turns.end(), [&](int a, int b) {
    return order.turn_of_rank[static_cast<std::size_t>(a)] <
           order.turn_of_rank[static_cast<std::size_t>(b)];
  });
  return turns;
}

}  // namespace od::overlap
