// What givers, senders, ranks with long blocks and the root do.

#include "coll/run/last_gatherv.h"

#include <algorithm>
#include <span>

#include "coll/run/collectives.h"
#include "memory/copy.h"

namespace od {

using coll::shm::ArrivalArea;

LastGatherv::LastGatherv(ArrivalComm& shared, const CollectiveCall& call,
                         CollectiveBuffers& buffers)
    : ArrivalBlocks(shared, call.root), buffers_(buffers) {
  const coll::Place mine{0, me(), coll::Buffer::kInput};
  if (me() == root_) {
    heard_.resize(static_cast<std::size_t>(comm().size));
    const coll::Nodes& nodes = comm().collectives->nodes();
    awaited_ = nodes.count() - 1;  // a sender of each, or its only rank
  }
  if (me() == root_ && call.in_place) return;
  input_ = buffers.address(mine);
  bytes_ = buffers.units(coll::kWholeBlock, mine);
  if (me() != root_) return;
  if (bytes_ != room_of(root_)) {
    note(host_.err_truncate);
    return;
  }
  memory::copy_ordinary(block_of(root_), input_, static_cast<std::size_t>(bytes_));
}

bool LastGatherv::advance() {
  if (done_) return false;
  if (!given_ && !give()) return false;
  return me() == root_ ? advance_root() : advance_giver();
}

// False: there is no room yet.
bool LastGatherv::give() {
  if (area_ == nullptr) {
    if (me() == root_) {
      own_node_taken_ = true;
    } else {
      begin_long();
    }
    return given_ = true;
  }
  if (!placed_) {
    if (open_area(area_bytes(), ArrivalArea::kCellBytes)) {
      wake_neighbours();
    } else {
      placed_ = area_->look(number_).placed;  // by another one
    }
    if (!placed_) return false;
  }
  given_ = true;
  if (me() == root_) return true;
  const bool short_one = is_short(bytes_, members().size());
  // Who sees that all others have given sends for them, its own from where it is.
  const bool is_last = !on_root_node() && area_->given(number_) + 1 == givers();
  set_word(my_place(), word_of(bytes_, members().size()));
  if (short_one && !is_last) copy_into_area(my_place(), input_, bytes_);
  const std::uint64_t given = area_->give(number_);
  if (!short_one) begin_long();
  if (given == givers() && !on_root_node()) {
    begin_sending();
    return true;
  }
  // The root may be waiting for it.
  if (given == givers()) wake_neighbours();
  area_->took(number_);
  return true;
}

void LastGatherv::begin_long() {
  ++counters().arrival_long;
  tell(root_, kReady, Ready{number_, bytes_, kLongBlock, me()});
  Stream& stream = streams_.emplace_back();
  stream.peer = root_;
  stream.tag = kLong;
  add_block(stream, input_, bytes_);
}

void LastGatherv::begin_sending() {
  ++counters().arrival_claims;
  tell(root_, kReady, Ready{number_, 0, 0, me()});
  Stream& stream = streams_.emplace_back();
  stream.peer = root_;
  for (std::size_t member = 0; member < members().size(); ++member) {
    words_.push_back(word(member));
  }
  stream.pieces.push_back({reinterpret_cast<char*>(words_.data()),
                           static_cast<std::int64_t>(words_.size() * sizeof(words_[0]))});
  for (std::size_t member = 0; member < members().size(); ++member) {
    if (words_[member] < 0) continue;
    if (member == my_place()) {
      add_block(stream, input_, bytes_);
    } else {
      add_share(stream, member, words_[member]);
    }
  }
}

bool LastGatherv::advance_giver() {
  bool moved = settle_sent();
  bool complete = told_all();
  for (Stream& stream : streams_) {
    moved |= advance_outgoing(stream);
    complete = complete && stream.complete();
  }
  if (!complete) return moved;
  if (!words_.empty()) area_->took(number_);  // it has sent what is there
  return done_ = true;
}

// --- root -----------------------------------------------------------------------------------

void LastGatherv::take_in(const Ready& ready) {
  const coll::Nodes& places = comm().collectives->nodes();
  if (ready.segment_bytes != kLongBlock) {
    Node& node = nodes_.emplace_back();
    node.words.resize(places.members(places.node_of(ready.rank)).size());
    node.stream.peer = ready.rank;
    node.request = receive(node.words.data(),
                           static_cast<std::int64_t>(node.words.size() * sizeof(node.words[0])),
                           ready.rank, kData);
    return;
  }
  // A rank that is alone on its node is awaited from the beginning; of others it is told, perhaps
  // later, that they have to be.
  const auto rank = static_cast<std::size_t>(ready.rank);
  const bool alone = places.members(places.node_of(ready.rank)).size() == 1;
  if (!alone && !heard_[rank]) ++awaited_;
  heard_[rank] = !heard_[rank];
  Stream& stream = streams_.emplace_back();
  stream.peer = ready.rank;
  stream.tag = kLong;
  add_incoming(stream, block_of(ready.rank), room_of(ready.rank), ready.bytes);
}

// A rank is known to have a long block.
void LastGatherv::expect_long(int rank) {
  const auto at = static_cast<std::size_t>(rank);
  if (!heard_[at]) ++awaited_;
  heard_[at] = !heard_[at];
}

bool LastGatherv::hear_words(Node& node) {
  const int before = error_;
  if (node.known || !test(node.request)) return false;
  node.known = true;
  if (error_ != before) return true;
  const coll::Nodes& places = comm().collectives->nodes();
  const std::span<const int> ranks = places.members(places.node_of(node.stream.peer));
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    const int rank = ranks[member];
    if (node.words[member] < 0) {
      expect_long(rank);
    } else {
      add_incoming(node.stream, block_of(rank), room_of(rank), node.words[member]);
    }
  }
  return true;
}

bool LastGatherv::advance_root() {
  bool moved = hear_ready();
  bool complete = true;
  for (Node& node : nodes_) {
    moved |= hear_words(node);
    moved |= advance_incoming(node.stream);
    complete = complete && node.known && node.stream.complete();
  }
  for (Stream& stream : streams_) {
    moved |= advance_incoming(stream);
    complete = complete && stream.complete();
  }
  if (!own_node_taken_) moved |= take_own_node();
  if (awaited_ > 0 || !complete || !own_node_taken_) return moved;
  if (area_ != nullptr) area_->took(number_);
  return done_ = true;
}

bool LastGatherv::take_own_node() {
  if (area_->given(number_) != givers()) return false;
  for (std::size_t member = 0; member < members().size(); ++member) {
    const int rank = members()[member];
    if (member == my_place()) continue;
    const std::int64_t found = word(member);
    if (found < 0) {
      expect_long(rank);
    } else if (found != room_of(rank)) {
      note(host_.err_truncate);
    } else {
      copy_from_area(member, block_of(rank), found);
    }
  }
  return own_node_taken_ = true;
}

std::string LastGatherv::describe() const {
  const std::string text = "gather " + std::to_string(number_) + " of those that end with the last";
  if (!given_) return text + ": waiting for room that ranks of this node have not left";
  if (me() != root_) {
    return text + (words_.empty() ? ": with a long block" : ": last of its node") +
           ", waiting until the root has taken it";
  }
  return text + ": root, waiting for " + std::to_string(awaited_) +
         " nodes or ranks with long blocks" +
         (own_node_taken_ ? "" : ", and for ranks of this one");
}

}  // namespace od
