// What givers, senders and the root do.

#include "coll/run/last_arrival.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "coll/run/collectives.h"
#include "memory/copy.h"

namespace od {

using coll::shm::ArrivalArea;

namespace {

constexpr auto kCell = static_cast<std::int64_t>(ArrivalArea::kCellBytes);
static_assert(ArrivalCall::kMessageBytes <= kCell);
// What the root keeps of other nodes until it has all of it.
constexpr std::int64_t kMostAside = 64 << 20;

std::uint64_t segments_of(std::int64_t bytes, std::int64_t segment_bytes) {
  return static_cast<std::uint64_t>((bytes + segment_bytes - 1) / segment_bytes);
}

}  // namespace

bool LastArrival::fits(const ArrivalComm& shared, int nodes, std::int64_t bytes,
                       std::int64_t unit_bytes) {
  return unit_bytes > 0 && unit_bytes <= kCell && (nodes - 1) * bytes <= kMostAside &&
         segments_of(bytes, segment_for(bytes, unit_bytes)) <= shared.cells_per_rank();
}

LastArrival::LastArrival(ArrivalComm& shared, const CollectiveCall& call,
                         CollectiveBuffers& buffers, std::int64_t bytes)
    : ArrivalCall(shared, call.root),
      buffers_(buffers),
      bytes_(bytes),
      segment_bytes_(segment_for(bytes, buffers.unit_bytes())),
      segments_(segments_of(bytes, segment_bytes_)) {
  const coll::Nodes& nodes = comm().collectives->nodes();
  const bool root = me() == root_;
  if (root) {
    output_ = buffers.address({0, 0, coll::Buffer::kOutput});
    nodes_.resize(static_cast<std::size_t>(nodes.count()));
    awaited_ = nodes.count() - 1;
  }
  input_ = root && call.in_place ? output_ : buffers.address({0, 0, coll::Buffer::kInput});
}

std::int64_t LastArrival::length(std::uint64_t segment) const {
  return std::min(segment_bytes_, bytes_ - offset(segment));
}

char* LastArrival::cell(std::size_t member, std::uint64_t segment) const {
  return reinterpret_cast<char*>(area_->segment(number_, member * segments_ + segment));
}

const char* LastArrival::contribution(std::size_t member, std::uint64_t segment) const {
  return member == my_place() ? own(segment) : cell(member, segment);
}

void LastArrival::reduce(char* target, const char* left, const char* right, std::uint64_t segment) {
  note(buffers_.reduce(target, left, right, length(segment) / buffers_.unit_bytes()));
}

bool LastArrival::advance() {
  if (done_) return false;
  if (role_ == Role::unknown) {
    if (!give()) return false;
    if (done_) return true;
  }
  return role_ == Role::root ? advance_root() : advance_sender();
}

// False: there is no room yet.
bool LastArrival::give() {
  const bool root = me() == root_;
  if (area_ == nullptr) {
    if (root) {
      role_ = Role::root;
    } else {
      become_sender();
    }
    return true;
  }
  const std::uint64_t room =
      members().size() * segments_ * static_cast<std::uint64_t>(segment_bytes_);
  if (!placed_) {
    if (open_area(room, static_cast<std::uint64_t>(segment_bytes_))) {
      wake_neighbours();
    } else if (!owns_entry_) {
      const ArrivalArea::Seen seen = area_->look(number_);
      placed_ = seen.placed;
      // Ranks that do not agree how long the message is.
      if (placed_ && seen.bytes != room) {
        note(host_.err_truncate);
        copied_ = false;
      }
    }
    if (!placed_) return false;
  }
  if (root) {
    role_ = Role::root;
    return true;
  }
  // Who sees that all others have given sends for them, from its own buffer.
  const bool is_last = !on_root_node() && area_->given(number_) + 1 == givers();
  for (std::uint64_t segment = 0; segment < segments_ && copied_ && !is_last; ++segment) {
    memory::copy_ordinary(cell(my_place(), segment), own(segment),
                          static_cast<std::size_t>(length(segment)));
  }
  const std::uint64_t given = area_->give(number_);
  if (given == givers() && !on_root_node()) {
    become_sender();
    return true;
  }
  // The root may be waiting for it.
  if (given == givers()) wake_neighbours();
  area_->took(number_);
  done_ = true;
  return true;
}

// --- sender ---------------------------------------------------------------------------------

void LastArrival::become_sender() {
  role_ = Role::sender;
  ++counters().arrival_claims;
  tell(root_, kReady, Ready{number_, bytes_, static_cast<std::int32_t>(segment_bytes_), me()});
}

// A segment of this node's result.
void LastArrival::combine_node(std::uint64_t segment, char* target) {
  reduce(target, contribution(0, segment), contribution(1, segment), segment);
  for (std::size_t member = 2; member < members().size(); ++member) {
    reduce(target, target, contribution(member, segment), segment);
  }
}

bool LastArrival::advance_sender() {
  bool moved = settle_sent();
  while (!open_.empty() && test(open_.front())) {
    open_.erase(open_.begin());
    moved = true;
  }
  while (sent_ < segments_ && open_.size() < kWindow) {
    const char* from = own(sent_);
    if (area_ != nullptr) {
      // The first member's cell is read by nobody else any more.
      combine_node(sent_, cell(0, sent_));
      from = cell(0, sent_);
    }
    open_.push_back(send(from, length(sent_), root_));
    ++sent_;
    moved = true;
  }
  if (sent_ == segments_ && open_.empty() && told_all()) {
    if (area_ != nullptr) area_->took(number_);
    done_ = true;
  }
  return moved;
}

// --- root -----------------------------------------------------------------------------------

void LastArrival::take_in(const Ready& ready) {
  Node& node = nodes_[static_cast<std::size_t>(comm().collectives->nodes().node_of(ready.rank))];
  node.ready = ready;
  if (ready.bytes != bytes_ || ready.segment_bytes != segment_bytes_) note(host_.err_truncate);
  node.segments = segments_of(ready.bytes, ready.segment_bytes);
  node.aside.resize(static_cast<std::size_t>(ready.segment_bytes) * node.segments);
}

bool LastArrival::receive_from(Node& node) {
  bool moved = false;
  while (!node.open.empty() && test(node.open.front())) {
    node.open.erase(node.open.begin());
    ++node.there;
    moved = true;
  }
  while (node.asked < node.segments && node.open.size() < kWindow) {
    const std::int64_t begin = static_cast<std::int64_t>(node.asked) * node.ready.segment_bytes;
    const std::int64_t bytes =
        std::min<std::int64_t>(node.ready.segment_bytes, node.ready.bytes - begin);
    char* const into = node.aside.data() + begin;
    node.open.push_back(receive(into, bytes, node.ready.rank, kData));
    ++node.asked;
    moved = true;
  }
  return moved;
}

bool LastArrival::advance_root() {
  bool moved = hear_ready();
  bool complete = awaited_ == 0;
  for (Node& node : nodes_) {
    moved |= receive_from(node);
    complete = complete && node.there == node.segments;
  }
  if (!own_node_given_ && (area_ == nullptr || area_->given(number_) == givers())) {
    own_node_given_ = moved = true;
  }
  if (!complete || !own_node_given_) return moved;
  if (error_ == host::kSuccess) combine_all();
  if (area_ != nullptr) area_->took(number_);
  done_ = true;
  return true;
}

// When everything is there. A segment of the output, which may be the input as well,
// is written when it has been read.
void LastArrival::combine_all() {
  const auto own_node = static_cast<std::size_t>(comm().collectives->nodes().node_of(me()));
  std::vector<char> here(static_cast<std::size_t>(segment_bytes_));
  std::vector<char> total(static_cast<std::size_t>(segment_bytes_));
  for (std::uint64_t segment = 0; segment < segments_; ++segment) {
    const auto part = [&](std::size_t node) -> const char* {
      if (node != own_node) return nodes_[node].aside.data() + offset(segment);
      if (area_ == nullptr) return own(segment);
      combine_node(segment, here.data());
      return here.data();
    };
    const char* const first = part(0);
    reduce(total.data(), first, part(1), segment);
    for (std::size_t node = 2; node < nodes_.size(); ++node) {
      reduce(total.data(), total.data(), part(node), segment);
    }
    memory::copy_ordinary(output_ + offset(segment), total.data(),
                          static_cast<std::size_t>(length(segment)));
  }
}

std::string LastArrival::describe() const {
  const std::string text =
      "reduction " + std::to_string(number_) + " of those that end with the last";
  switch (role_) {
    case Role::unknown:
      return text + ": waiting for room that ranks of this node have not left";
    case Role::sender:
      return text + ": last of its node, " + std::to_string(sent_) +
             " segments are under way to the root or there";
    case Role::root:
      break;
  }
  return text + ": root, of " + std::to_string(awaited_) + " nodes not all ranks are there yet" +
         (own_node_given_ ? "" : ", nor of this one");
}

}  // namespace od
