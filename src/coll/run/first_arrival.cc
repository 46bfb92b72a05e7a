// What root, winners and the others do.

#include "coll/run/first_arrival.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "coll/run/collectives.h"
#include "node/wait.h"

namespace od {

using coll::shm::ArrivalArea;
using coll::shm::SlotLease;
using host::kSuccess;

namespace {

// The share of the slots, one in so many, that stays free for other communicators.
constexpr std::uint32_t kSpare = 4;

}  // namespace

bool starts_with_first(const coll::Decision& decision) {
  return decision.mode == coll::Mode::kHierarchical &&
         decision.algorithm->collective == coll::Collective::kBcast &&
         std::string_view(decision.algorithm->name) == "first_arrival";
}

ArrivalComm::ArrivalComm(Collectives& owner, const Comm& comm, host::Handle host_comm)
    : owner_(owner), comm_(comm), host_comm_(host_comm) {
  const coll::Nodes& nodes = comm.collectives->nodes();
  const std::span<const int> members = nodes.members(nodes.node_of(comm.rank));
  members_.assign(members.begin(), members.end());
}

ArrivalComm::~ArrivalComm() {
  if (area_ != nullptr) area_->leave();
  std::byte* const region = owner_.endpoint.node->member(owner_.endpoint.node->my_index()).base;
  const std::uint64_t members = members_.size();
  for (const SlotLease& lease : leased_) {
    std::vector<coll::shm::Slots::Acknowledgement> open;
    // Before join() nobody has seen them.
    if (area_ != nullptr) {
      open.push_back(
          {&ArrivalArea::left(region, owner_.endpoint.node->layout(), lease.slot), members});
    }
    owner_.slots->release(lease, 0, std::move(open));
  }
}

ArrivalComm::Told ArrivalComm::offer() {
  Told told{};
  if (owner_.slots == nullptr || members_.size() < 2 || members_.front() != comm_.rank) {
    return told;
  }
  const node::RegionLayout& layout = owner_.endpoint.node->layout();
  while (told.lease.count < ArrivalArea::kMostSlots) {
    const SlotLease lease = owner_.slots->allocate(owner_.slots->count() / kSpare);
    if (lease.slot == SlotLease::kNone) break;
    leased_.push_back(lease);
    told.lease.slots[told.lease.count++] = lease.slot;
  }
  told.cells = ArrivalArea::cells_in(layout, told.lease.count);
  ArrivalArea::clear(owner_.endpoint.node->member(owner_.endpoint.node->my_index()).base, layout,
                     told.lease);
  return told;
}

void ArrivalComm::join(const std::vector<Told>& all) {
  const coll::Nodes& nodes = comm_.collectives->nodes();
  std::uint64_t cells = ~std::uint64_t{0};
  for (int node = 0; node < nodes.count(); ++node) {
    const std::span<const int> members = nodes.members(node);
    if (members.size() < 2) continue;
    cells = std::min(cells, all[static_cast<std::size_t>(members.front())].cells);
  }
  if (cells == ~std::uint64_t{0}) cells = 0;
  largest_ = cells * ArrivalArea::kCellBytes;
  if (largest_ == 0 || members_.size() < 2) return;
  const auto index_of = [&](int rank) {
    return rank == comm_.rank ? static_cast<int>(owner_.endpoint.my_index)
                              : comm_.local_index[static_cast<std::size_t>(rank)];
  };
  for (const int rank : members_) {
    if (rank != comm_.rank) neighbours_.push_back(index_of(rank));
  }
  const int first = members_.front();
  area_ = std::make_unique<ArrivalArea>(
      owner_.endpoint.node->member(index_of(first)).base, owner_.endpoint.node->layout(),
      all[static_cast<std::size_t>(first)].lease, static_cast<std::uint32_t>(members_.size()));
}

FirstArrival::FirstArrival(ArrivalComm& shared, int root, char* buffer, std::int64_t bytes,
                           std::int64_t segment_bytes)
    : shared_(shared),
      host_(shared.owner_.endpoint.host),
      number_(shared.numbers_++),
      root_(root),
      buffer_(buffer),
      own_bytes_(bytes) {
  ++shared_.owner_.endpoint.counters.arrival_calls;
  constexpr auto kMost = static_cast<std::int64_t>(ArrivalArea::kCellBytes);
  const auto cells = static_cast<std::int64_t>(shared.largest_) / kMost;
  if (segment_bytes <= 0 || segment_bytes > kMost ||
      (bytes + segment_bytes - 1) / segment_bytes > cells) {
    segment_bytes = kMost;
  }
  // What counts is what the root says; until then, and if nothing is heard of it, this.
  set_shape(bytes, segment_bytes);
}

FirstArrival::~FirstArrival() = default;

void FirstArrival::set_shape(std::int64_t bytes, std::int64_t segment_bytes) {
  bytes_ = bytes;
  segment_bytes_ = segment_bytes;
  segments_ = static_cast<std::uint64_t>((bytes + segment_bytes - 1) / segment_bytes);
  // Ranks that do not agree how long the message is.
  if (bytes_ != own_bytes_) note(host_.err_truncate);
}

std::int64_t FirstArrival::length_of(std::uint64_t index) const {
  return std::min(segment_bytes_, bytes_ - static_cast<std::int64_t>(index) * segment_bytes_);
}

char* FirstArrival::place_of(std::uint64_t index) const {
  if (role_ == Role::winner && shared_.area_ != nullptr) {
    return reinterpret_cast<char*>(shared_.area_->segment(number_, index));
  }
  char* const base = aside_.empty() ? buffer_ : const_cast<char*>(aside_.data());
  return base + static_cast<std::int64_t>(index) * segment_bytes_;
}

void FirstArrival::note(int error) {
  if (error_ == kSuccess) error_ = error;
}

template <typename Message>
void FirstArrival::tell(int rank, Tag tag, const Message& message) {
  Sent& sent = sent_.emplace_back(std::make_unique<std::byte[]>(sizeof(message)), 0);
  std::memcpy(sent.content.get(), &message, sizeof(message));
  note(host_.isend(sent.content.get(), sizeof(message), host_.byte_type, rank, tag,
                   shared_.host_comm_, &sent.request));
}

host::Handle FirstArrival::receive(void* into, std::int64_t bytes, int from, Tag tag) {
  host::Handle request = 0;
  note(host_.irecv(into, bytes, host_.byte_type, from, tag, shared_.host_comm_, &request));
  return request;
}

// Whether it is over; then the request is gone.
bool FirstArrival::test(host::Handle& request, host::Status* status) {
  if (request == 0) return true;
  bool flag = false;
  host::Status own;
  host::Status& seen = status != nullptr ? *status : own;
  const int error = host_.test(&request, &flag, &seen);
  if (error == kSuccess && !flag) return false;
  note(error != kSuccess ? error : seen.error);
  request = 0;
  return true;
}

void FirstArrival::wake_neighbours() const {
  const p2p::Endpoint& endpoint = shared_.owner_.endpoint;
  for (const int index : shared_.neighbours_) {
    node::wake_if_armed(endpoint.node->member(index).header->armed, endpoint.wake_mode);
  }
}

bool FirstArrival::advance() {
  if (done_) return false;
  if (role_ == Role::unknown) find_role();
  switch (role_) {
    case Role::unknown:
      return false;
    case Role::root:
      return advance_root();
    case Role::winner:
      return advance_winner();
    case Role::reader:
      return advance_reader();
  }
  return false;
}

void FirstArrival::find_role() {
  const coll::Nodes& nodes = shared_.comm_.collectives->nodes();
  const int me = shared_.comm_.rank;
  if (me == root_) {
    role_ = Role::root;
    awaited_ = nodes.count() - 1;
    there_ = segments_;
    return;
  }
  if (nodes.node_of(me) == nodes.node_of(root_)) {
    role_ = Role::reader;
    return;
  }
  if (shared_.area_ != nullptr) {
    switch (shared_.area_->claim(number_)) {
      case ArrivalArea::Claim::wait:
        return;
      case ArrivalArea::Claim::others:
        role_ = Role::reader;
        return;
      case ArrivalArea::Claim::mine:
        owns_entry_ = true;
    }
  }
  role_ = Role::winner;
  ++shared_.owner_.endpoint.counters.arrival_claims;
  tell(root_, kReady, ArrivalComm::Ready{number_, me, 0});
  part_request_ = receive(&part_, sizeof(part_), root_, kPart);
}

// Room in the node's area, where there is one. False: not yet.
bool FirstArrival::open_area() {
  if (shared_.area_ == nullptr) return placed_ = true;
  if (!owns_entry_) owns_entry_ = shared_.area_->claim(number_) == ArrivalArea::Claim::mine;
  placed_ = owns_entry_ && shared_.area_->place(number_, static_cast<std::uint64_t>(bytes_),
                                                static_cast<std::uint64_t>(segment_bytes_));
  return placed_;
}

// --- root -----------------------------------------------------------------------------------

bool FirstArrival::advance_root() {
  bool moved = hear_ready();
  for (Stream& stream : streams_) moved |= advance_stream(stream, segments_);
  const bool streamed = streams_.empty() || streams_.back().done(segments_);
  if (tail_ != kNobody && (awaited_ == 0 || streamed)) {
    tell(tail_, kNext, Next{number_, kNobody, 0});
    tail_ = kNobody;
    moved = true;
  }
  moved |= publish_own();
  moved |= settle_sent();
  if (awaited_ == 0 && streamed && placed_ && sent_.empty() &&
      (shared_.area_ == nullptr || published_ == segments_)) {
    finish();
  }
  return moved;
}

// Who is ready for this broadcast joins it.
bool FirstArrival::hear_ready() {
  bool moved = false;
  if (const auto early = shared_.early_.find(number_); early != shared_.early_.end()) {
    for (const int rank : early->second) take_in(rank);
    shared_.early_.erase(early);
    moved = true;
  }
  while (awaited_ > 0) {
    if (!hearing_) {
      const int before = error_;
      ready_request_ = receive(&ready_, sizeof(ready_), host::kAnySource, kReady);
      if (error_ != before) awaited_ = 0;
      hearing_ = true;
    }
    const int before = error_;
    if (!test(ready_request_)) return moved;
    hearing_ = false;
    moved = true;
    if (error_ != before) {
      awaited_ = 0;
    } else if (ready_.number == number_) {
      take_in(ready_.rank);
    } else {
      shared_.early_[ready_.number].push_back(ready_.rank);
    }
  }
  return moved;
}

void FirstArrival::take_in(int winner) {
  --awaited_;
  const bool begins = tail_ == kNobody;
  tell(winner, kPart,
       Part{number_, bytes_, segment_bytes_, begins ? shared_.comm_.rank : tail_, 0});
  if (begins) {
    streams_.emplace_back().to = winner;
  } else {
    tell(tail_, kNext, Next{number_, winner, 0});
  }
  tail_ = winner;
}

// A segment at a time, so that what goes to other nodes is not kept waiting.
bool FirstArrival::publish_own() {
  if (!placed_ && !open_area()) return false;
  if (shared_.area_ == nullptr || published_ == segments_) return false;
  std::memcpy(shared_.area_->segment(number_, published_), place_of(published_),
              static_cast<std::size_t>(length_of(published_)));
  shared_.area_->publish(number_, ++published_);
  wake_neighbours();
  return true;
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
      if (shared_.area_ == nullptr && bytes_ > own_bytes_) {
        aside_.resize(static_cast<std::size_t>(bytes_));
      }
      next_request_ = receive(&next_, sizeof(next_), root_, kNext);
    }
  }
  if (!placed_ && !open_area()) return moved;
  moved |= receive_segments();
  if (!next_known_) {
    const int before = error_;
    if (test(next_request_)) {
      moved = next_known_ = true;
      if (error_ == before && next_.child != kNobody) streams_.emplace_back().to = next_.child;
    }
  }
  for (Stream& stream : streams_) moved |= advance_stream(stream, there_);
  moved |= settle_sent();
  const bool streamed = streams_.empty() || streams_.back().done(segments_);
  if (there_ == segments_ && next_known_ && streamed && sent_.empty()) finish();
  return moved;
}

// Nothing will come: the others of the node must not wait for it.
void FirstArrival::give_up() {
  next_known_ = true;
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
  if (shared_.area_ != nullptr) {
    shared_.area_->publish(number_, there_);
    wake_neighbours();
  } else if (aside_.empty()) {
    return;
  }
  const std::int64_t length = std::min(length_of(index), own_bytes_ - offset);
  if (length > 0) {
    std::memcpy(buffer_ + offset, place_of(index), static_cast<std::size_t>(length));
  }
}

// --- both -----------------------------------------------------------------------------------

// Sends what there is of the first `there` segments.
bool FirstArrival::advance_stream(Stream& stream, std::uint64_t there) {
  bool moved = false;
  while (!stream.open.empty() && test(stream.open.front())) {
    stream.open.erase(stream.open.begin());
    moved = true;
  }
  while (stream.sent < there && stream.open.size() < kWindow) {
    host::Handle request = 0;
    note(host_.isend(place_of(stream.sent), length_of(stream.sent), host_.byte_type, stream.to,
                     kData, shared_.host_comm_, &request));
    ++stream.sent;
    stream.open.push_back(request);
    moved = true;
  }
  return moved;
}

bool FirstArrival::settle_sent() {
  const std::size_t before = sent_.size();
  std::erase_if(sent_, [this](Sent& sent) { return test(sent.request); });
  return sent_.size() != before;
}

void FirstArrival::finish() {
  if (shared_.area_ != nullptr) {
    if (role_ != Role::reader) shared_.area_->publish(number_, segments_);
    shared_.area_->took(number_);
  }
  done_ = true;
}

// --- the others -----------------------------------------------------------------------------

bool FirstArrival::advance_reader() {
  const ArrivalArea& area = *shared_.area_;
  const ArrivalArea::Seen seen = area.look(number_);
  if (!seen.placed) return false;
  if (!placed_) {
    placed_ = true;
    set_shape(static_cast<std::int64_t>(seen.bytes), static_cast<std::int64_t>(seen.segment_bytes));
    if (seen.segments == segments_) ++shared_.owner_.endpoint.counters.arrival_late;
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
