// Templates of collectives in which every rank has a block: gather, scatter, allgather, all-to-all,
// reductions of which each rank keeps its block.
//
// Between nodes all blocks of a node travel together. `Vector in node order` means blocks sorted by
// node; where the ranks of a node follow each other that is the order of the user's buffer too, and
// nothing has to be rearranged.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "coll/plan/hierarchy/levels.h"

namespace od::coll {
namespace {

// Where each rank's block begins in a vector in node order, and each node's.
struct NodeOrder {
  explicit NodeOrder(const Levels& levels) : nodes(levels.nodes()) {
    const Shape& shape = levels.shape();
    irregular = shape.counts != nullptr;
    rank_size.assign(static_cast<std::size_t>(nodes.ranks()), shape.count);
    if (irregular) std::copy_n(shape.counts, nodes.ranks(), rank_size.begin());
    rank_begin.resize(rank_size.size());
    for (int node = 0; node < nodes.count(); ++node) {
      node_begin.push_back(total);
      for (const int rank : nodes.members(node)) {
        rank_begin[static_cast<std::size_t>(rank)] = total;
        total += size(rank);
      }
      node_size.push_back(total - node_begin.back());
    }
  }

  std::int64_t size(int rank) const { return rank_size[static_cast<std::size_t>(rank)]; }
  std::int64_t begin(int rank) const { return rank_begin[static_cast<std::size_t>(rank)]; }
  std::int64_t of_node(int node) const { return node_size[static_cast<std::size_t>(node)]; }
  std::int64_t begin_of_node(int node) const { return node_begin[static_cast<std::size_t>(node)]; }
  // The nodes' blocks have the same size, whatever it is.
  bool even() const { return !irregular && nodes.even(); }

  const Nodes& nodes;
  bool irregular = false;
  std::int64_t total = 0;
  std::vector<std::int64_t> rank_size;
  std::vector<std::int64_t> rank_begin;
  std::vector<std::int64_t> node_size;
  std::vector<std::int64_t> node_begin;
};

// The blocks of this node: at the root a part of the whole vector, at another leader in scratch
// memory, and where there is no other member, or who does not lead, the rank's own block.
Place blocks_of_node(Levels& levels, const NodeOrder& order, Place whole, Place own) {
  if (levels.is_root()) return whole + order.begin_of_node(levels.node());
  if (!levels.leads() || levels.alone()) return own;
  return levels.builder().scratch(order.of_node(levels.node()));
}

// Nodes in an order in which every node begins somewhere else: this one first and then downwards,
// as blocks come in around a ring; or this one last and upwards, as they go out.
int node_in_turn(const Levels& levels, int turn, bool inward) {
  const int count = levels.nodes().count();
  return inward ? (levels.node() - turn + count) % count : (levels.node() + 1 + turn) % count;
}

}  // namespace

void gather_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  const Shape& shape = levels.shape();
  const Nodes& nodes = levels.nodes();
  const NodeOrder order(levels);
  const std::int64_t n = shape.count;
  const bool root = levels.is_root();
  const bool direct = nodes.contiguous();
  const int leader = levels.leader();
  const bool leads = levels.leads();
  Place own{};
  if (root && shape.in_place) own = output(shape.rank * n);
  Place whole{};  // at the root, in node order
  if (root) whole = direct ? output() : builder.scratch(order.total);
  const Place mine = blocks_of_node(levels, order, whole, own);
  if (root || !levels.alone()) levels.gather_inside(leader, mine, own, n);
  if (!leads) return;
  if (nodes.even()) {
    levels.between(
        0, {.count = levels.members() * n, .input = mine, .output = whole, .in_place = root});
  } else if (root) {
    for (int turn = 0; turn + 1 < nodes.count(); ++turn) {
      const int node = node_in_turn(levels, turn, false);
      builder.receive(levels.leader_rank(node, 0), whole + order.begin_of_node(node),
                      order.of_node(node));
    }
  } else {
    builder.send(shape.root, mine, order.of_node(levels.node()));
  }
  if (!root || direct) return;
  for (const int rank : nodes.by_node()) {
    if (rank == shape.rank && shape.in_place) continue;
    builder.copy(output(rank * n), whole + order.begin(rank), n);
  }
}

void scatter_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  const Shape& shape = levels.shape();
  const Nodes& nodes = levels.nodes();
  const NodeOrder order(levels);
  const std::int64_t n = shape.count;
  const bool root = levels.is_root();
  const bool direct = nodes.contiguous();
  const int leader = levels.leader();
  const bool leads = levels.leads();
  Place whole{};  // at the root, in node order
  if (root && !direct) {
    whole = builder.scratch(order.total);
    for (const int rank : nodes.by_node()) {
      builder.copy(whole + order.begin(rank), Place{rank * n, 0, Buffer::kInput}, n);
    }
  }
  const Place mine = blocks_of_node(levels, order, whole, output());
  if (leads && nodes.even()) {
    levels.between(
        0, {.count = levels.members() * n, .input = whole, .output = mine, .in_place = root});
  } else if (root) {
    for (int turn = 0; turn + 1 < nodes.count(); ++turn) {
      const int node = node_in_turn(levels, turn, false);
      builder.send(levels.leader_rank(node, 0), whole + order.begin_of_node(node),
                   order.of_node(node));
    }
  } else if (leads) {
    builder.receive(shape.root, mine, order.of_node(levels.node()));
  }
  // With MPI_IN_PLACE the root's block stays where it is.
  Place target = output();
  if (root && shape.in_place) target = mine + levels.position() * n;
  if (root || !levels.alone()) levels.scatter_inside(leader, target, mine, n);
}

// The blocks of each node are gathered, exchanged between leaders, and all handed out.
void allgather_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  const Shape& shape = levels.shape();
  const Nodes& nodes = levels.nodes();
  const NodeOrder order(levels);
  const bool direct = nodes.contiguous() && !order.irregular;
  const int leader = levels.leader();
  const auto block = [&](int rank) {
    return order.irregular ? Place{0, rank, Buffer::kOutput} : output(rank * shape.count);
  };
  const Place own = shape.in_place ? block(shape.rank) : Place{};
  const Place all = direct ? output() : builder.scratch(order.total);
  const Place mine = all + order.begin_of_node(levels.node());
  if (!order.irregular) {
    levels.gather_inside(leader, mine, own, shape.count);
  } else if (!levels.leads()) {
    builder.send(levels.rank_at(leader), own, order.size(shape.rank));
  } else {
    builder.copy(all + order.begin(shape.rank), own, order.size(shape.rank));
    for (int position = 0; position < levels.members(); ++position) {
      const int rank = levels.rank_at(position);
      if (rank != shape.rank) builder.receive(rank, all + order.begin(rank), order.size(rank));
    }
  }
  if (levels.leads()) {
    levels.between(0, {.count = order.even() ? order.of_node(0) : 0,
                       .counts = order.even() ? nullptr : order.node_size.data(),
                       .output = all,
                       .in_place = true});
  }
  if (blocks_travel_alone(order.total * shape.unit_bytes, shape.parameters.pipeline_bytes)) {
    for (int turn = 0; turn < nodes.count(); ++turn) {
      const int node = node_in_turn(levels, turn, true);
      const Place blocks = all + order.begin_of_node(node);
      levels.bcast_inside(leader, blocks, blocks, order.of_node(node));
    }
  } else {
    levels.bcast_inside(leader, all, all, order.total);
  }
  if (direct) return;
  for (int turn = 0; turn < nodes.count(); ++turn) {
    for (const int rank : nodes.members(node_in_turn(levels, turn, true))) {
      if (rank == shape.rank && shape.in_place) continue;
      builder.copy(block(rank), all + order.begin(rank), order.size(rank));
    }
  }
}

// What the members of one node have for those of another is one message, ordered by sender, then by
// receiver.
void alltoall_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  const Shape& shape = levels.shape();
  const Nodes& nodes = levels.nodes();
  const std::int64_t n = shape.count;
  const std::int64_t vector = n * nodes.ranks();
  const std::int64_t members = levels.members();
  const int leader = levels.leader();
  const bool leads = levels.leads();
  const std::int64_t held = leads ? members * vector : 0;
  const Place gathered = builder.scratch(held);
  const Place outgoing = builder.scratch(held);
  const Place incoming = builder.scratch(held);
  levels.gather_inside(leader, gathered, input(shape), vector);
  if (leads) {
    const auto begin = [&](int node) { return members * n * nodes.ranks_before(node); };
    const auto size = [&](int node) {
      return members * n * static_cast<std::int64_t>(nodes.members(node).size());
    };
    for (int node = 0; node < nodes.count(); ++node) {
      const std::span<const int> there = nodes.members(node);
      const auto run = nodes.contiguous() ? static_cast<std::int64_t>(there.size()) : 1;
      Place to = outgoing + begin(node);
      for (std::int64_t from = 0; from < members; ++from) {
        for (std::size_t i = 0; i < there.size(); i += static_cast<std::size_t>(run)) {
          builder.copy(to, gathered + (from * vector + there[i] * n), run * n);
          to = to + run * n;
        }
      }
    }
    if (nodes.even()) {
      levels.between(0, {.count = members * members * n, .input = outgoing, .output = incoming});
    } else {
      builder.copy(incoming + begin(levels.node()), outgoing + begin(levels.node()),
                   size(levels.node()));
      for (int turn = 0; turn + 1 < nodes.count(); ++turn) {
        const int to = node_in_turn(levels, turn, false);
        const int from = node_in_turn(levels, turn + 1, true);
        builder.receive(levels.leader_rank(from, 0), incoming + begin(from), size(from));
        builder.send(levels.leader_rank(to, 0), outgoing + begin(to), size(to));
      }
    }
    // `gathered` has been read by now and takes the vectors that go to the members.
    for (int node = 0; node < nodes.count(); ++node) {
      Place from = incoming + begin(node);
      for (const int sender : nodes.members(node)) {
        for (std::int64_t to = 0; to < members; ++to) {
          builder.copy(gathered + (to * vector + sender * n), from, n);
          from = from + n;
        }
      }
    }
  }
  levels.scatter_inside(leader, output(), gathered, vector);
}

// Each node adds the whole vector; then leaders exchange what belongs to each other's nodes.
void reduce_scatter_in_levels(Levels& levels) {
  Builder& builder = levels.builder();
  const Shape& shape = levels.shape();
  const Nodes& nodes = levels.nodes();
  const NodeOrder order(levels);
  const bool direct = nodes.contiguous();
  const int leader = levels.leader();
  const bool leads = levels.leads();
  const Place own = input(shape);
  Place sum = own;  // of this node, in the order of ranks
  if (!levels.alone()) {
    if (leads) sum = builder.scratch(order.total);
    const bool pieces = direct && blocks_travel_alone(order.total * shape.unit_bytes,
                                                      shape.parameters.pipeline_bytes);
    for (int turn = 0; turn < (pieces ? nodes.count() : 1); ++turn) {
      const int node = node_in_turn(levels, turn, false);
      const std::int64_t at = pieces ? order.begin_of_node(node) : 0;
      levels.reduce_inside(leader, sum + at, own + at, pieces ? order.of_node(node) : order.total);
    }
  }
  Place mine = output();  // the blocks of this node
  if (leads) {
    if (!direct) {
      const Place sorted = builder.scratch(order.total);
      std::int64_t at = 0;
      for (int rank = 0; rank < nodes.ranks(); ++rank) {
        builder.copy(sorted + order.begin(rank), sum + at, order.size(rank));
        at += order.size(rank);
      }
      sum = sorted;
    }
    if (!levels.alone()) mine = builder.scratch(order.of_node(levels.node()));
    levels.between(0, {.count = order.even() ? order.of_node(0) : 0,
                       .counts = order.even() ? nullptr : order.node_size.data(),
                       .input = sum,
                       .output = mine,
                       .in_place = levels.alone() && direct && shape.in_place});
  }
  if (levels.alone()) return;
  if (!order.irregular) {
    levels.scatter_inside(leader, output(), mine, shape.count);
  } else if (!leads) {
    builder.receive(levels.rank_at(leader), output(), order.size(shape.rank));
  } else {
    const std::int64_t first = order.begin_of_node(levels.node());
    for (int position = 0; position < levels.members(); ++position) {
      const int rank = levels.rank_at(position);
      const Place block = mine + (order.begin(rank) - first);
      if (rank == shape.rank) {
        builder.copy(output(), block, order.size(rank));
      } else {
        builder.send(rank, block, order.size(rank));
      }
    }
  }
}

}  // namespace od::coll
