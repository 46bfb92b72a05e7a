// What root, winners and the others do.

#include "coll/run/first_arrival.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "coll/run/collectives.h"

namespace od {

using coll::shm::ArrivalArea;
using host::kSuccess;

FirstArrival::FirstArrival(ArrivalComm& shared, int root, char* buffer, std::int64_t bytes,
                           std::int64_t segment_bytes)
    : FirstComers<ArrivalCall>(shared, root), buffer_(buffer), own_bytes_(bytes) {
  constexpr auto kMost = static_cast<std::int64_t>(ArrivalArea::kCellBytes);
  const auto most_cells = static_cast<std::int64_t>(cells());
  if (segment_bytes <= 0 || segment_bytes > kMessageBytes) segment_bytes = usual_segment(bytes);
  if (segment_bytes <= kMost && (bytes + segment_bytes - 1) / segment_bytes > most_cells) {
    segment_bytes = kMost;
  }
  // What counts is what the root says; until then, and if nothing is heard of it, this.
  set_shape(bytes, segment_bytes);
}

std::int64_t FirstArrival::usual_segment(std::int64_t bytes) const {
  bool few = false;
  const bool passed_on = comm().collectives->nodes().count() > 2;
  if (!passed_on) {
    // Nobody passes anything on: segments are cut for the sake of messages alone.
    few = host_.few_long_messages || bytes >= kMuch;
  } else {
    // Long messages run along a chain, in which each node waits for a whole segment; short ones
    // fan out.
    few = host_.few_long_messages && bytes >= kLongMessageBytes && bytes <= 2 * kLongMessageBytes;
  }
  if (few && bytes <= static_cast<std::int64_t>(largest_long())) {
    return segment_for(bytes, 1, kLongMessageBytes);
  }
  const std::int64_t least = passed_on ? passed_on_bytes() : kMessageBytes;
  const auto most_cells = std::max<std::int64_t>(1, static_cast<std::int64_t>(cells()));
  const std::int64_t fitting = (bytes + most_cells - 1) / most_cells;
  return segment_for(bytes, 1, std::clamp(fitting, least, kMessageBytes));
}

// Long enough to be worth its own messages and wakes, which take some 25 us where ranks share
// cores, and short enough that what it adds to the way along the chain is little.
std::int64_t FirstArrival::passed_on_bytes() const {
  constexpr double kSegmentNs = 100'000;
  constexpr double kLeast = 16 << 10;
  const double bytes = kSegmentNs / machine().far.byte_ns;
  return static_cast<std::int64_t>(std::clamp<double>(bytes, kLeast, kMessageBytes));
}

void FirstArrival::set_shape(std::int64_t bytes, std::int64_t segment_bytes) {
  bytes_ = bytes;
  segment_bytes_ = segment_bytes;
  segments_ = static_cast<std::uint64_t>((bytes + segment_bytes - 1) / segment_bytes);
  // Waking a reader for each short segment would cost more than it saves.
  segments_per_wake_ = segment_bytes <= kMessageBytes ? 4 : 1;
  // Ranks that do not agree how long the message is.
  if (bytes_ != own_bytes_) note(host_.err_truncate);
}

std::int64_t FirstArrival::length_of(std::uint64_t index) const {
  return std::min(segment_bytes_, bytes_ - static_cast<std::int64_t>(index) * segment_bytes_);
}

char* FirstArrival::place_of(std::uint64_t index) const {
  if (role_ == Role::winner && area_ != nullptr) {
    return reinterpret_cast<char*>(area_->segment(number_, index));
  }
  char* const base = aside_.empty() ? buffer_ : const_cast<char*>(aside_.data());
  return base + static_cast<std::int64_t>(index) * segment_bytes_;
}

void FirstArrival::find_role() {
  role_ = claim_role(bytes_, segment_bytes_);
  if (role_ == Role::root) there_ = segments_;
  if (role_ == Role::winner) part_request_ = receive(&part_, sizeof(part_), root_, kPart);
}

bool FirstArrival::open_area() {
  return ArrivalCall::open_area(static_cast<std::uint64_t>(bytes_),
                                static_cast<std::uint64_t>(segment_bytes_));
}

// --- root -----------------------------------------------------------------------------------

bool FirstArrival::advance_root() {
  bool moved = hear_ready();
  moved |= advance_streams(segments_);
  const bool idle = streamed();
  if (tree_ != nullptr && (awaited_ == 0 || idle)) close_tree(0, tree_->size());
  moved |= publish_own();
  moved |= settle_sent();
  if (awaited_ == 0 && idle && placed_ && told_all() &&
      (area_ == nullptr || published_ == segments_)) {
    finish();
  }
  return moved;
}

// Gives it a place in the tree. Who is the last knows that nobody else comes.
void FirstArrival::take_in(const Ready& ready) {
  if (tree_ == nullptr) {
    tree_ = std::make_unique<coll::ArrivalTree>(segments_);
    tree_ranks_.push_back(me());
  }
  std::uint64_t sent = 0;
  for (const Stream& stream : streams_) sent += stream.sent - stream.open.size();
  const std::size_t parent = tree_->add(sent);
  const std::int32_t more = awaited_ > 0 ? 1 : 0;
  tell(ready.rank, kPart, Part{number_, bytes_, segment_bytes_, tree_ranks_[parent], more});
  if (parent == 0) {
    streams_.emplace_back().to = ready.rank;
  } else {
    tell(tree_ranks_[parent], kNext, Next{number_, ready.rank, more});
  }
  tree_ranks_.push_back(ready.rank);
  if (more == 0) close_tree(parent, tree_->size() - 1);
}

// Nobody stays for a node that may come. Told before: member `knowing`, and those from `told` on.
void FirstArrival::close_tree(std::size_t knowing, std::size_t told) {
  for (std::size_t i = tree_->first_open(); i < told; ++i) {
    if (i != knowing) tell(tree_ranks_[i], kNext, Next{number_, kNobody, 0});
  }
  tree_->close();
}

// Once what other nodes can take is on its way, this node comes first: its ranks need the root for
// a moment, but while it sends others may have its processor.
bool FirstArrival::publish_own() {
  if (!placed_ && !open_area()) return false;
  if (area_ == nullptr || published_ == segments_) return false;
  const std::uint64_t before = published_;
  do {
    std::memcpy(area_->segment(number_, published_), place_of(published_),
                static_cast<std::size_t>(length_of(published_)));
    publish(++published_);
  } while (published_ < segments_ &&
           static_cast<std::int64_t>(published_ - before) * segment_bytes_ < kOwnBytesAtOnce);
  return true;
}

void FirstArrival::publish(std::uint64_t segments) {
  area_->publish(number_, segments);
  if (segments == 1 || segments == segments_ || segments % segments_per_wake_ == 0) {
    wake_neighbours();
  }
}

// --- winner ---------------------------------------------------------------------------------

bool FirstArrival::advance_winner() {
  bool moved = false;
  if (!part_known_) {
    const int before = error_;
    if (!test(part_request_)) return settle_sent();
    moved = part_known_ = true;
    if (error_ != before) {
      give_up();
    } else {
      set_shape(part_.bytes, part_.segment_bytes);
      if (area_ == nullptr && bytes_ > own_bytes_) {
        aside_.resize(static_cast<std::size_t>(bytes_));
      }
      more_ = part_.more != 0;
      if (more_) next_request_ = receive(&next_, sizeof(next_), root_, kNext);
    }
  }
  if (!placed_ && !open_area()) return moved;
  moved |= receive_segments();
  moved |= hear_next();
  moved |= advance_streams(there_);
  moved |= settle_sent();
  if (there_ == segments_ && !more_ && streamed() && told_all()) finish();
  return moved;
}

bool FirstArrival::hear_next() {
  bool moved = false;
  while (more_) {
    const int before = error_;
    if (!test(next_request_)) return moved;
    moved = true;
    if (error_ != before) {
      more_ = false;
      return moved;
    }
    if (next_.child != kNobody) streams_.emplace_back().to = next_.child;
    more_ = next_.more != 0;
    if (more_) next_request_ = receive(&next_, sizeof(next_), root_, kNext);
  }
  return moved;
}

// Nothing will come: the others of the node must not wait for it.
void FirstArrival::give_up() {
  more_ = false;
  asked_ = there_ = segments_;
}

bool FirstArrival::receive_segments() {
  bool moved = false;
  if (there_ == segments_) return false;
  for (;;) {
    while (asked_ < segments_ && asked_ - there_ < kWindow) {
      receiving_.push_back(receive(place_of(asked_), length_of(asked_), part_.parent, kData));
      ++asked_;
    }
    if (there_ == segments_ || !test(receiving_[there_])) return moved;
    segment_is_there(there_);
    moved = true;
  }
}

void FirstArrival::segment_is_there(std::uint64_t index) {
  const std::int64_t offset = static_cast<std::int64_t>(index) * segment_bytes_;
  there_ = index + 1;
  if (area_ != nullptr) {
    publish(there_);
  } else if (aside_.empty()) {
    return;
  }
  const std::int64_t length = std::min(length_of(index), own_bytes_ - offset);
  if (length > 0) {
    std::memcpy(buffer_ + offset, place_of(index), static_cast<std::size_t>(length));
  }
}

// --- both -----------------------------------------------------------------------------------

// One after the other: whoever comes first has everything first.
bool FirstArrival::advance_streams(std::uint64_t there) {
  bool moved = false;
  for (Stream& stream : streams_) {
    moved |= advance_stream(stream, there);
    if (stream.sent < segments_) break;
  }
  return moved;
}

bool FirstArrival::streamed() const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [this](const Stream& stream) { return stream.done(segments_); });
}

// Sends what there is of the first `there` segments.
bool FirstArrival::advance_stream(Stream& stream, std::uint64_t there) {
  bool moved = false;
  while (!stream.open.empty() && test(stream.open.front())) {
    stream.open.erase(stream.open.begin());
    moved = true;
  }
  while (stream.sent < there && stream.open.size() < kWindow) {
    stream.open.push_back(send(place_of(stream.sent), length_of(stream.sent), stream.to));
    ++stream.sent;
    moved = true;
  }
  return moved;
}

void FirstArrival::finish() {
  if (area_ != nullptr) {
    if (role_ != Role::reader) area_->publish(number_, segments_);
    area_->took(number_);
  }
  done_ = true;
}

// --- the others -----------------------------------------------------------------------------

bool FirstArrival::advance_reader() {
  const ArrivalArea& area = *area_;
  const ArrivalArea::Seen seen = area.look(number_);
  if (!seen.placed) return false;
  if (!placed_) {
    placed_ = true;
    set_shape(static_cast<std::int64_t>(seen.bytes), static_cast<std::int64_t>(seen.segment_bytes));
    if (seen.segments == segments_) ++counters().arrival_late;
  }
  const bool moved = there_ < seen.segments;
  for (; there_ < seen.segments; ++there_) {
    const std::int64_t offset = static_cast<std::int64_t>(there_) * segment_bytes_;
    const std::int64_t length = std::min(length_of(there_), own_bytes_ - offset);
    if (length > 0) {
      std::memcpy(buffer_ + offset, area.segment(number_, there_),
                  static_cast<std::size_t>(length));
    }
  }
  if (there_ == segments_) finish();
  return moved;
}

std::string FirstArrival::describe() const {
  std::string text = "broadcast " + std::to_string(number_) + " of those that start with the first";
  switch (role_) {
    case Role::unknown:
      return text + ": waiting for ranks of this node that are far behind";
    case Role::root:
      return text + ": root, " + std::to_string(awaited_) + " nodes are not there yet, " +
             std::to_string(streams_.empty() ? 0 : streams_.back().sent) + " of " +
             std::to_string(segments_) + " segments are sent";
    case Role::winner:
      if (!part_known_) return text + ": first of its node, waiting for the root";
      if (!placed_) return text + ": waiting for room that ranks of this node have not left";
      break;
    case Role::reader:
      if (!placed_) return text + ": waiting for the first of its node, or for the root";
      break;
  }
  return text + ": " + std::to_string(there_) + " of " + std::to_string(segments_) +
         " segments are there";
}

}  // namespace od
