// Builds plans: see plan.h.
#include "overlap/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "coll/plan/builder.h"

namespace od::overlap {
namespace {

using coll::Buffer;
using coll::Builder;
using coll::Place;
using coll::Step;
using coll::StepKind;

constexpr std::int64_t kEdgeBytes = 4096;
// The first piece is longer than that by so much for each piece of the block.
constexpr std::int64_t kBytesPerPiece = 8;
constexpr std::size_t kEnds = 2;
// Shorter blocks are not cut: the pieces at their ends would be most of them.
constexpr std::int64_t kLeastCutBytes = 4 * kEdgeBytes;
// Pieces between the ends: (m - 1) / m of a broadcast can overlap with a program that reads it.
// Each costs such a program a fault, some 15 us, which is what 2 KiB take at 1 Gbit/s.
constexpr auto kMiddles = static_cast<std::int64_t>(Accesses::kPieces);
constexpr std::int64_t kLeastMiddleBytes = 24 << 10;
// Hosts send longer messages only when the receiver has answered, and then all at once, so that
// none is there before the others. Of very long blocks they are nevertheless longer: a piece needs
// a mapping of its own.
constexpr std::int64_t kMiddleBytes = 60 << 10;
constexpr std::int64_t kMostMiddles = 128;
constexpr std::uint32_t kMostPieces = kMostMiddles + kEnds;
static_assert(kMostEndBytes == kEdgeBytes + kBytesPerPiece * kMostPieces);
static_assert(kMostEndBytes <= kLeastCutBytes);
// Of what one rank sends to another: a host whose messages wait for the receiver's answer would
// otherwise send all of them at once, and none would be there before the others.
constexpr std::size_t kUnderWay = 4;
// Beyond, the rest of a chain of nodes would wait too long for its first piece.
constexpr int kLongestChain = 8;

Place output(std::size_t block, std::int64_t offset) {
  return {offset, static_cast<std::int32_t>(block), Buffer::kOutput};
}
Place input(std::size_t block, std::int64_t offset) {
  return {offset, static_cast<std::int32_t>(block), Buffer::kInput};
}

// Where block `i` begins.
std::vector<Place> block_starts(Buffer buffer, std::span<const std::int64_t> bytes, bool blocks) {
  std::vector<Place> starts;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    starts.push_back(blocks ? Place{0, static_cast<std::int32_t>(i), buffer}
                            : Place{offset, 0, buffer});
    offset += bytes[i];
  }
  return starts;
}

// Sends pieces, to each rank so many at a time. The ends of blocks go at once, as calls wait for
// them.
class Sender {
 public:
  explicit Sender(Builder& builder) : builder_(builder) {}

  Builder::StepId send(int peer, Place source, std::int64_t bytes) {
    const Builder::StepId step = builder_.send(peer, source, bytes);
    if (bytes <= kMostEndBytes) return step;
    std::vector<Builder::StepId>& sent = sent_[peer];
    if (sent.size() >= kUnderWay) builder_.order(sent[sent.size() - kUnderWay], step);
    sent.push_back(step);
    return step;
  }

 private:
  Builder& builder_;
  std::map<int, std::vector<Builder::StepId>> sent_;
};

Plan finish(Builder& builder, std::vector<Piece> pieces) {
  Plan plan;
  plan.schedule = builder.finish();
  plan.pieces = std::move(pieces);
  std::map<std::pair<std::int32_t, std::int64_t>, std::int32_t> at;
  for (std::size_t i = 0; i < plan.pieces.size(); ++i) {
    const Place& place = plan.pieces[i].place;
    at[{place.block, place.offset}] = static_cast<std::int32_t>(i);
  }
  for (const Step& step : plan.schedule.steps) {
    const bool reads = step.kind == StepKind::kSend;
    const bool writes = step.kind == StepKind::kReceive || step.kind == StepKind::kCopy;
    const Place& place = reads ? step.source : step.target;
    std::int32_t piece = Plan::kNoPiece;
    if ((reads || writes) && step.count != 0 && place.buffer == Buffer::kOutput) {
      piece = at.at({place.block, place.offset});
    }
    plan.piece_of_step.push_back(piece);
  }
  return plan;
}

// Pieces of one block of the output.
void add_pieces(Place start, std::int64_t bytes, std::size_t source, const Order& order,
                std::vector<Piece>* pieces) {
  for (const Cut& each : cut(bytes, order)) {
    pieces->push_back(
        {start + each.offset, each.bytes, static_cast<std::int32_t>(source), each.part});
  }
}

// `step` receives the first of them, which is the whole block where there is one.
First first_of(Builder::StepId step, std::size_t pieces, std::int64_t bytes) {
  return {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(pieces),
          pieces == 1 ? bytes : kMostEndBytes};
}

// A rank's own block, which nobody sends.
Piece own_piece(Place start, std::int64_t bytes, std::size_t rank) {
  return {start, bytes, static_cast<std::int32_t>(rank), Piece::kEnd};
}

// Where `node` gets a broadcast from and whom it sends it to, as distances from the root's node.
struct Links {
  int parent = -1;
  std::vector<int> children;
};
Links links(int node, int nodes) {
  Links found;
  if (nodes <= kLongestChain) {
    if (node > 0) found.parent = node - 1;
    if (node + 1 < nodes) found.children.push_back(node + 1);
    return found;
  }
  int bit = 1;
  while (bit < nodes && (node & bit) == 0) bit <<= 1;
  if (node != 0) found.parent = node - bit;
  for (int child = bit >> 1; child > 0; child >>= 1) {
    if (node + child < nodes) found.children.push_back(node + child);
  }
  return found;
}

}  // namespace

std::vector<Cut> cut(std::int64_t bytes, const Order& order) {
  if (bytes <= 0) return {};
  if (bytes < kLeastCutBytes) return {{0, bytes, Piece::kEnd}};
  const std::int64_t middle = bytes - 2 * kEdgeBytes;
  std::int64_t count = std::clamp<std::int64_t>(middle / kLeastMiddleBytes, 1, kMiddles);
  count = std::max(count, std::min((middle + kMiddleBytes - 1) / kMiddleBytes, kMostMiddles));
  const std::int64_t step = (middle / count + kEdgeBytes - 1) / kEdgeBytes * kEdgeBytes;
  const std::int64_t pieces = (middle + step - 1) / step;
  const std::int64_t more = kBytesPerPiece * (pieces + static_cast<std::int64_t>(kEnds));
  std::vector<Cut> cuts = {{0, kEdgeBytes + more, Piece::kEnd},
                           {bytes - kEdgeBytes, kEdgeBytes, Piece::kEnd}};
  // Orders know so many parts; more pieces than that share them, in turn as they lie.
  const std::int64_t parts = std::min(pieces, kMiddles);
  std::vector<std::vector<Cut>> middles(static_cast<std::size_t>(parts));
  for (std::int64_t i = 0; i < pieces; ++i) {
    const auto part = static_cast<std::int32_t>(i * parts / pieces);
    middles[static_cast<std::size_t>(part)].push_back(
        {kEdgeBytes + i * step, std::min(step, middle - i * step), part});
  }
  middles[0].front().offset += more;
  middles[0].front().bytes -= more;
  // An order of fewer parts, or of more, comes from blocks of another length.
  const bool ordered = order.pieces.size() == middles.size();
  for (std::size_t i = 0; i < middles.size(); ++i) {
    const std::vector<Cut>& next = middles[ordered ? order.pieces[i] : i];
    cuts.insert(cuts.end(), next.begin(), next.end());
  }
  return cuts;
}

std::uint32_t pieces_told(std::int64_t first_bytes) {
  const std::int64_t more = first_bytes - kEdgeBytes;
  const auto least = static_cast<std::int64_t>(kEnds) + 1;
  const bool cut = more >= least * kBytesPerPiece && first_bytes <= kMostEndBytes;
  return cut ? static_cast<std::uint32_t>(more / kBytesPerPiece) : 1;
}

Plan plan_broadcast(const coll::Nodes& nodes, int rank, int root, std::int64_t bytes,
                    const Order& order) {
  const int count = nodes.count();
  const int root_node = nodes.node_of(root);
  const int own_node = nodes.node_of(rank);
  const auto leader = [&](int node) {
    return node == root_node ? root : nodes.members(node).front();
  };
  const auto at_distance = [&](int distance) { return leader((root_node + distance) % count); };
  std::vector<int> children;
  int parent = -1;
  if (rank == leader(own_node)) {
    const Links own = links((own_node - root_node + count) % count, count);
    if (own.parent >= 0) parent = at_distance(own.parent);
    for (const int child : own.children) children.push_back(at_distance(child));
    for (const int member : nodes.members(own_node)) {
      if (member != rank) children.push_back(member);
    }
  } else {
    parent = leader(own_node);
  }
  Builder builder;
  Sender sender(builder);
  std::vector<Piece> pieces;
  std::vector<First> firsts;
  add_pieces(output(0, 0), bytes, static_cast<std::size_t>(root), order, &pieces);
  for (const Piece& piece : pieces) {
    if (parent >= 0) {
      const Builder::StepId step = builder.receive(parent, piece.place, piece.bytes);
      if (firsts.empty()) firsts.push_back(first_of(step, pieces.size(), bytes));
    }
    for (const int child : children) sender.send(child, piece.place, piece.bytes);
  }
  Plan plan = finish(builder, std::move(pieces));
  plan.firsts = std::move(firsts);
  return plan;
}

Plan plan_allgather(const coll::Nodes& nodes, int rank, std::span<const std::int64_t> bytes,
                    bool blocks, bool in_place, const Order& order) {
  const std::span<const int> ring = nodes.by_node();
  const std::size_t size = ring.size();
  const auto own =
      static_cast<std::size_t>(std::find(ring.begin(), ring.end(), rank) - ring.begin());
  const auto at = [&](std::size_t steps_back) {
    return static_cast<std::size_t>(ring[(own + size - steps_back % size) % size]);
  };
  const int left = static_cast<int>(at(1));
  const int right = ring[(own + 1) % size];
  const auto me = static_cast<std::size_t>(rank);
  const std::vector<Place> starts = block_starts(Buffer::kOutput, bytes, blocks);
  Builder builder;
  Sender sender(builder);
  std::vector<Piece> pieces;
  std::vector<First> firsts;
  // Who sent last under each tag: tags repeat, and messages with the same one must not overtake.
  std::vector<Builder::StepId> under_tag(coll::kMostOrdinals, Builder::kNoStep);
  if (in_place) {
    add_pieces(starts[me], bytes[me], me, order, &pieces);
  } else if (bytes[me] != 0) {
    pieces.push_back(own_piece(starts[me], bytes[me], me));
    builder.copy(starts[me], input(blocks ? me : 0, 0), bytes[me]);
  }
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t sent = at(step);
    const bool from_input = step == 0 && !in_place;
    // Into however many pieces others have cut the blocks before.
    const std::uint32_t number = static_cast<std::uint32_t>(step) * kMostPieces;
    builder.number_from(number);
    std::uint32_t tag = number;
    for (const Cut& each : cut(bytes[sent], order)) {
      const Place from = from_input ? input(blocks ? me : 0, 0) : starts[sent];
      const Builder::StepId id = sender.send(right, from + each.offset, each.bytes);
      Builder::StepId& before = under_tag[tag++ % coll::kMostOrdinals];
      builder.order(before, id);
      before = id;
    }
    const std::size_t received = at(step + 1);
    add_pieces(starts[received], bytes[received], received, order, &pieces);
    const std::vector<Cut> cuts = cut(bytes[received], order);
    for (const Cut& each : cuts) {
      const Builder::StepId id = builder.receive(left, starts[received] + each.offset, each.bytes);
      if (each.offset == 0) firsts.push_back(first_of(id, cuts.size(), bytes[received]));
    }
  }
  Plan plan = finish(builder, std::move(pieces));
  plan.firsts = std::move(firsts);
  return plan;
}

Plan plan_alltoall(const coll::Nodes& nodes, int rank, std::span<const std::int64_t> sent,
                   std::span<const std::int64_t> received, bool blocks, const Order& order) {
  const std::size_t size = sent.size();
  const auto me = static_cast<std::size_t>(rank);
  const std::vector<Place> from = block_starts(Buffer::kInput, sent, blocks);
  const std::vector<Place> to = block_starts(Buffer::kOutput, received, blocks);
  Builder builder;
  Sender sender(builder);
  std::vector<Piece> pieces;
  std::vector<First> firsts;
  // A program whose ranks do not agree about a block gets the error of the receiving side.
  const std::int64_t kept = std::min(sent[me], received[me]);
  if (kept != 0) {
    pieces.push_back(own_piece(to[me], received[me], me));
    builder.copy(to[me], from[me], kept);
  }
  for (std::size_t i = 1; i < size; ++i) {
    const std::size_t source = (me + size - i) % size;
    add_pieces(to[source], received[source], source, order, &pieces);
    const std::vector<Cut> cuts = cut(received[source], order);
    for (const Cut& each : cuts) {
      const Builder::StepId step =
          builder.receive(static_cast<int>(source), to[source] + each.offset, each.bytes);
      if (each.offset == 0) firsts.push_back(first_of(step, cuts.size(), received[source]));
    }
  }
  const auto send = [&](std::size_t target, const Cut& each) {
    return sender.send(static_cast<int>(target), from[target] + each.offset, each.bytes);
  };
  // The ends of all blocks before the rest of any: calls return when they have arrived. Between two
  // ranks the order stays that of the pieces.
  for (std::size_t i = 1; i < size; ++i) {
    const std::size_t target = (me + i) % size;
    const std::vector<Cut> cuts = cut(sent[target], order);
    for (std::size_t k = 0; k < std::min(kEnds, cuts.size()); ++k) send(target, cuts[k]);
  }
  // One rank of a node after the other has the link. Inside the node nobody waits.
  const std::vector<int> turns = link_turns(order, nodes, nodes.node_of(rank));
  const auto turn = std::find(turns.begin(), turns.end(), rank);
  Builder::StepId gate = Builder::kNoStep;
  if (turn != turns.end() && turn != turns.begin()) gate = builder.await(*(turn - 1));
  std::vector<Builder::StepId> on_link;
  for (std::size_t i = 1; i < size; ++i) {
    const std::size_t target = (me + i) % size;
    const bool leaves_node = nodes.node_of(static_cast<int>(target)) != nodes.node_of(rank);
    const std::vector<Cut> cuts = cut(sent[target], order);
    for (std::size_t k = kEnds; k < cuts.size(); ++k) {
      const Builder::StepId step = send(target, cuts[k]);
      if (!leaves_node) continue;
      builder.order(gate, step);
      on_link.push_back(step);
    }
  }
  if (turn != turns.end() && turn + 1 != turns.end()) {
    const Builder::StepId done = builder.signal(*(turn + 1));
    builder.order(gate, done);
    for (const Builder::StepId step : on_link) builder.order(step, done);
  }
  Plan plan = finish(builder, std::move(pieces));
  plan.firsts = std::move(firsts);
  return plan;
}

}  // namespace od::overlap
