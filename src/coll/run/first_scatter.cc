// What the root, winners and the others do.

#include "coll/run/first_scatter.h"

#include <algorithm>

#include "coll/run/collectives.h"
#include "memory/copy.h"

namespace od {

using coll::shm::ArrivalArea;
using host::kSuccess;

namespace {

// A segment has a cell, which it does not quite fill.
constexpr std::int64_t kSegment = ArrivalCall::kMessageBytes;

std::uint64_t segments_of(std::int64_t bytes) {
  return static_cast<std::uint64_t>((bytes + kSegment - 1) / kSegment);
}

}  // namespace

bool FirstScatter::fits(const ArrivalComm& shared, std::int64_t bytes) {
  return bytes > 0 && segments_of(bytes) <= shared.cells_per_rank();
}

FirstScatter::FirstScatter(ArrivalComm& shared, const CollectiveCall& call,
                           CollectiveBuffers& buffers, std::int64_t bytes)
    : FirstComers<ArrivalCall>(shared, call.root), bytes_(bytes), segments_(segments_of(bytes)) {
  const bool root = me() == root_;
  if (root) input_ = buffers.address({0, 0, coll::Buffer::kInput});
  if (!root || !call.in_place) output_ = buffers.address({0, 0, coll::Buffer::kOutput});
}

std::int64_t FirstScatter::offset(std::uint64_t segment) const {
  return static_cast<std::int64_t>(segment % segments_) * kSegment;
}

std::int64_t FirstScatter::length(std::uint64_t segment) const {
  return std::min(kSegment, bytes_ - offset(segment));
}

// Where a segment of this node is left.
char* FirstScatter::place_of(std::uint64_t index) const {
  if (is_own(index)) return output_ + offset(index);
  return reinterpret_cast<char*>(area_->segment(number_, index));
}

void FirstScatter::find_role() {
  role_ = claim_role(bytes_, kSegment);
  if (role_ == Role::winner) part_request_ = receive(&part_, sizeof(part_), root_, kPart);
  if (role_ == Role::root && output_ != nullptr) {
    memory::copy_ordinary(output_, input_ + me() * bytes_, static_cast<std::size_t>(bytes_));
  }
}

bool FirstScatter::place() {
  return open_area(all_segments() * ArrivalArea::kCellBytes, ArrivalArea::kCellBytes);
}

void FirstScatter::finish() {
  if (area_ != nullptr) area_->took(number_);
  done_ = true;
}

// --- root -----------------------------------------------------------------------------------

bool FirstScatter::advance_root() {
  bool moved = hear_ready();
  bool sent = awaited_ == 0;
  for (Stream& stream : streams_) {
    moved |= advance_stream(stream);
    sent = sent && stream.open.empty() && stream.sent == stream.ranks.size() * segments_;
  }
  moved |= publish_own();
  moved |= settle_sent();
  if (sent && told_all() && placed_ && (area_ == nullptr || there_ == all_segments())) finish();
  return moved;
}

void FirstScatter::take_in(const Ready& ready) {
  tell(ready.rank, kPart, Part{number_, bytes_});
  // Ranks that do not agree how long a block is.
  if (ready.bytes != bytes_) return note(host_.err_truncate);
  const coll::Nodes& nodes = comm().collectives->nodes();
  Stream& stream = streams_.emplace_back();
  stream.to = ready.rank;
  stream.ranks = nodes.members(nodes.node_of(ready.rank));
}

bool FirstScatter::advance_stream(Stream& stream) {
  bool moved = false;
  while (!stream.open.empty() && test(stream.open.front())) {
    stream.open.erase(stream.open.begin());
    moved = true;
  }
  const std::uint64_t all = stream.ranks.size() * segments_;
  while (stream.sent < all && stream.open.size() < kWindow) {
    const int rank = stream.ranks[static_cast<std::size_t>(stream.sent / segments_)];
    stream.open.push_back(
        send(input_ + rank * bytes_ + offset(stream.sent), length(stream.sent), stream.to));
    ++stream.sent;
    moved = true;
  }
  return moved;
}

// A segment at a time, so that what goes to other nodes is not kept waiting.
bool FirstScatter::publish_own() {
  if (!placed_ && !place()) return false;
  if (area_ == nullptr || there_ == all_segments()) return false;
  if (!is_own(there_)) {
    const int rank = members()[static_cast<std::size_t>(there_ / segments_)];
    memory::copy_ordinary(place_of(there_), input_ + rank * bytes_ + offset(there_),
                          static_cast<std::size_t>(length(there_)));
  }
  area_->publish(number_, ++there_);
  wake_neighbours();
  return true;
}

// --- winner ---------------------------------------------------------------------------------

void FirstScatter::hear_part() {
  const int before = error_;
  if (!test(part_request_)) return;
  part_known_ = true;
  if (error_ != before || part_.bytes != bytes_) {
    note(host_.err_truncate);
    nothing_comes_ = true;
  }
}

void FirstScatter::place_nothing() {
  // A length that no call has: readers see that it is not theirs.
  if (!open_area(1, 1) || area_ == nullptr) return;
  area_->publish(number_, 1);
  wake_neighbours();
}

bool FirstScatter::advance_winner() {
  bool moved = settle_sent();
  if (!part_known_) {
    hear_part();
    if (!part_known_) return moved;
    moved = true;
  }
  if (!placed_) {
    if (nothing_comes_) {
      place_nothing();
    } else {
      place();
    }
    if (!placed_) return moved;
    moved = true;
  }
  if (!nothing_comes_) moved |= receive_segments();
  if ((nothing_comes_ || there_ == all_segments()) && told_all()) finish();
  return moved;
}

bool FirstScatter::receive_segments() {
  bool moved = false;
  const std::uint64_t all = all_segments();
  while (there_ < all) {
    while (receiving_.size() < all && receiving_.size() - there_ < kWindow) {
      const std::uint64_t next = receiving_.size();
      receiving_.push_back(receive(place_of(next), length(next), root_, kData));
    }
    if (!test(receiving_[there_])) break;
    ++there_;
    moved = true;
    if (area_ == nullptr) continue;
    area_->publish(number_, there_);
    wake_neighbours();
  }
  return moved;
}

// --- the others -----------------------------------------------------------------------------

bool FirstScatter::advance_reader() {
  const ArrivalArea::Seen seen = area_->look(number_);
  if (!seen.placed) return false;
  if (!placed_) {
    placed_ = true;
    if (seen.bytes != all_segments() * ArrivalArea::kCellBytes) {
      note(host_.err_truncate);
      finish();
      return true;
    }
    if (seen.segments == all_segments()) ++counters().arrival_late;
  }
  const std::uint64_t first = my_place() * segments_;
  bool moved = false;
  for (; there_ < segments_ && first + there_ < seen.segments; ++there_) {
    memory::copy_ordinary(output_ + offset(there_), area_->segment(number_, first + there_),
                          static_cast<std::size_t>(length(there_)));
    moved = true;
  }
  if (there_ == segments_) finish();
  return moved;
}

std::string FirstScatter::describe() const {
  const std::string text =
      "scatter " + std::to_string(number_) + " of those that start with the first";
  const std::string there =
      ": " + std::to_string(there_) + " of " + std::to_string(all_segments()) + " segments";
  switch (role_) {
    case Role::unknown:
      return text + ": waiting for ranks of this node that are far behind";
    case Role::root:
      return text + ": root, " + std::to_string(awaited_) + " nodes are not there yet";
    case Role::winner:
      if (!part_known_) return text + ": first of its node, waiting for the root";
      if (!placed_) return text + ": waiting for room that ranks of this node have not left";
      return text + there + " of this node are there";
    case Role::reader:
      break;
  }
  return text + (placed_ ? ": waiting for the rest of its block"
                         : ": waiting for the first of its node, or for the root");
}

}  // namespace od
