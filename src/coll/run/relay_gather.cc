// What givers, carriers and the root do.

#include "coll/run/relay_gather.h"

#include <algorithm>
#include <new>
#include <span>

#include "coll/run/collectives.h"
#include "memory/copy.h"

namespace od {

using coll::shm::ArrivalArea;

namespace {

// Also of empty blocks, for the mark.
std::size_t cells_of(std::size_t pieces) { return std::max<std::size_t>(1, pieces); }

}  // namespace

bool RelayGather::fits(const ArrivalComm& shared, std::int64_t bytes) {
  return cells_of(pieces_of(bytes)) <= shared.cells_per_rank();
}

RelayGather::RelayGather(ArrivalComm& shared, const CollectiveCall& call,
                         CollectiveBuffers& buffers, std::int64_t bytes)
    : ArrivalBlocks(shared, call.root), bytes_(bytes) {
  const bool root = me() == root_;
  outgoing_.peer = root_;
  if (root) {
    output_ = buffers.address({0, 0, coll::Buffer::kOutput});
    awaited_ = comm().size - static_cast<int>(members().size());
    own_node_left_ = members().size() - 1;
  }
  if (!root || !call.in_place) input_ = buffers.address({0, 0, coll::Buffer::kInput});
}

std::atomic<std::uint64_t>& RelayGather::mark(std::size_t member) const {
  return *std::launder(reinterpret_cast<std::atomic<std::uint64_t>*>(head_of(member)));
}

bool RelayGather::advance() {
  if (done_) return false;
  if (role_ == Role::unknown) {
    if (!give()) return false;
    if (done_) return true;
  }
  return role_ == Role::root ? advance_root() : advance_carrier();
}

// --- in the node ----------------------------------------------------------------------------

// By whoever has made room, before others see it.
void RelayGather::prepare_area() {
  for (std::size_t member = 0; member < members().size(); ++member) {
    new (head_of(member)) std::atomic<std::uint64_t>(kNotThere);
  }
}

// False: there is no room yet.
bool RelayGather::find_place() {
  set_share(cells_of(pieces_of(bytes_)));
  if (open_area(area_bytes(), ArrivalArea::kCellBytes)) {
    wake_neighbours();
  } else if (!owns_entry_) {
    const ArrivalArea::Seen seen = area_->look(number_);
    placed_ = seen.placed;
    // Ranks that do not agree how long blocks are must agree where they lie.
    if (placed_) set_share(seen.bytes / ArrivalArea::kCellBytes / members().size());
  }
  return placed_;
}

void RelayGather::leave_own() {
  std::int64_t bytes = bytes_;
  if (cells_of(pieces_of(bytes)) > share()) {
    note(host_.err_truncate);
    bytes = static_cast<std::int64_t>(share()) * kMessageBytes;
  }
  copy_into_area(my_place(), input_, bytes);
  // Release: the block; pairs with the acquires of who carries it and of the root.
  mark(my_place())
      .store(static_cast<std::uint64_t>(bytes) << kMarkBits | kLeft, std::memory_order_release);
}

std::optional<std::int64_t> RelayGather::pick_up(std::size_t member) const {
  // Acquire: pairs with the release in leave_own(), and what an earlier carrier has marked was seen
  // when this one began.
  const std::uint64_t found = mark(member).load(std::memory_order_acquire);
  if ((found & ((1U << kMarkBits) - 1)) != kLeft) return std::nullopt;
  // Relaxed: for carriers that follow, which see it through stop_carrying() and carry(); at the
  // root nobody else looks at it.
  mark(member).store(kCarried, std::memory_order_relaxed);
  return static_cast<std::int64_t>(found >> kMarkBits);
}

bool RelayGather::give() {
  if (area_ != nullptr && !placed_ && !find_place()) return false;
  if (me() == root_) {
    role_ = Role::root;
    return true;
  }
  if (area_ == nullptr || (!on_root_node() && area_->carry(number_))) {
    become_carrier();
    carry(my_place(), bytes_, true);
    return true;
  }
  leave_own();
  area_->give(number_);
  if (!on_root_node() && area_->carry(number_)) {
    become_carrier();
    return true;
  }
  // The root or the carrier may be waiting for it.
  wake_neighbours();
  area_->took(number_);
  done_ = true;
  return true;
}

// --- carrier --------------------------------------------------------------------------------

void RelayGather::become_carrier() {
  role_ = Role::carrier;
  ++counters().arrival_claims;
}

void RelayGather::carry(std::size_t member, std::int64_t bytes, bool own) {
  // Whose it is, in the place of a segment's length.
  tell(root_, kReady, Ready{number_, bytes, members()[member], me()});
  if (own) {
    add_block(outgoing_, const_cast<char*>(input_), bytes);
  } else {
    add_share(outgoing_, member, bytes);
  }
}

void RelayGather::carry_what_was_left() {
  seen_ = area_->given(number_);
  for (std::size_t member = 0; member < members().size(); ++member) {
    if (const auto bytes = pick_up(member)) carry(member, *bytes, false);
  }
}

bool RelayGather::advance_carrier() {
  if (area_ != nullptr && seen_ != area_->given(number_)) carry_what_was_left();
  bool moved = settle_sent();
  moved |= advance_outgoing(outgoing_);
  if (!outgoing_.complete() || !told_all()) return moved;
  if (area_ != nullptr) {
    // Somebody has left a block since.
    if (!area_->stop_carrying(number_, seen_)) return true;
    area_->took(number_);
  }
  done_ = true;
  return true;
}

// --- root -----------------------------------------------------------------------------------

void RelayGather::take_in(const Ready& ready) {
  Stream& stream = incoming_[ready.rank];
  stream.peer = ready.rank;
  const std::int64_t of = ready.segment_bytes;
  if (ready.bytes != bytes_) note(host_.err_truncate);
  add_incoming(stream, output_ + of * bytes_, bytes_, ready.bytes);
}

// Of this node.
void RelayGather::take_what_was_left() {
  for (std::size_t member = 0; member < members().size(); ++member) {
    const auto left = pick_up(member);
    if (!left) continue;
    if (*left != bytes_) note(host_.err_truncate);
    copy_from_area(member, output_ + members()[member] * bytes_, std::min(*left, bytes_));
    --own_node_left_;
  }
}

bool RelayGather::advance_root() {
  bool moved = hear_ready();
  bool complete = awaited_ == 0;
  for (auto& [rank, stream] : incoming_) {
    moved |= advance_incoming(stream);
    complete = complete && stream.complete();
  }
  if (own_node_left_ != 0 && seen_ != area_->given(number_)) {
    seen_ = area_->given(number_);
    take_what_was_left();
    moved = true;
  }
  if (!complete || own_node_left_ != 0) return moved;
  if (input_ != nullptr && bytes_ > 0) {
    memory::copy_ordinary(output_ + me() * bytes_, input_, static_cast<std::size_t>(bytes_));
  }
  if (area_ != nullptr) area_->took(number_);
  done_ = true;
  return true;
}

std::string RelayGather::describe() const {
  const std::string text = "gather " + std::to_string(number_) + " whose blocks leave as they come";
  switch (role_) {
    case Role::unknown:
      return text + ": waiting for room that ranks of this node have not left";
    case Role::carrier:
      return text + ": " + std::to_string(outgoing_.done) + " of " +
             std::to_string(outgoing_.pieces.size()) + " pieces of this node are on their way";
    case Role::root:
      break;
  }
  return text + ": root, " + std::to_string(awaited_) + " blocks of other nodes and " +
         std::to_string(own_node_left_) + " of this one are not there yet";
}

}  // namespace od
