// What the root, winners, ranks with long blocks and the others do.

#include "coll/run/first_scatterv.h"

#include <algorithm>
#include <span>

#include "coll/run/collectives.h"
#include "memory/copy.h"

namespace od {

using coll::shm::ArrivalArea;

namespace {

std::int64_t size_of(const std::vector<std::int64_t>& words) {
  return static_cast<std::int64_t>(words.size() * sizeof(words[0]));
}

}  // namespace

FirstScatterv::FirstScatterv(ArrivalComm& shared, const CollectiveCall& call,
                             CollectiveBuffers& buffers)
    : FirstComers<ArrivalBlocks>(shared, call.root), buffers_(buffers) {
  if (me() == root_ && call.in_place) return;
  const coll::Place mine{0, me(), coll::Buffer::kOutput};
  output_ = buffers.address(mine);
  bytes_ = buffers.units(coll::kWholeBlock, mine);
}

std::vector<std::int64_t> FirstScatterv::words_of_node(int node) const {
  const std::span<const int> members = comm().collectives->nodes().members(node);
  std::vector<std::int64_t> words;
  for (const int rank : members) words.push_back(word_of(length_of(rank), members.size()));
  return words;
}

void FirstScatterv::find_role() {
  role_ = claim_role(bytes_, 0);
  if (role_ == Role::winner) {
    words_.resize(members().size());
    words_request_ = receive(words_.data(), size_of(words_), root_, kPart);
  }
  if (role_ != Role::root) return;
  words_ = words_of_node(comm().collectives->nodes().node_of(me()));
  for (std::size_t member = 0; member < members().size(); ++member) {
    if (words_[member] < 0 && member != my_place()) ++awaited_;
  }
  if (output_ == nullptr) return;
  if (bytes_ != length_of(me())) return note(host_.err_truncate);
  memory::copy_ordinary(output_, block_of(me()), static_cast<std::size_t>(bytes_));
}

bool FirstScatterv::finish_if(bool complete) {
  if (!complete || !told_all()) return false;
  if (area_ != nullptr) area_->took(number_);
  return done_ = true;
}

// --- root -----------------------------------------------------------------------------------

void FirstScatterv::send_long(int rank) {
  Stream& stream = streams_.emplace_back();
  stream.peer = rank;
  stream.tag = kLong;
  add_block(stream, block_of(rank), length_of(rank));
}

void FirstScatterv::take_in(const Ready& ready) {
  if (ready.segment_bytes == kLongBlock) {
    // Ranks that do not agree how long the block is.
    if (ready.bytes != length_of(ready.rank)) return note(host_.err_truncate);
    return send_long(ready.rank);
  }
  const coll::Nodes& nodes = comm().collectives->nodes();
  const int node = nodes.node_of(ready.rank);
  const std::span<const int> ranks = nodes.members(node);
  const std::vector<std::int64_t>& words = sent_words_.emplace_back(words_of_node(node));
  Stream& told = streams_.emplace_back();
  told.peer = ready.rank;
  told.tag = kPart;
  told.pieces.push_back(
      {reinterpret_cast<char*>(const_cast<std::int64_t*>(words.data())), size_of(words)});
  Stream& stream = streams_.emplace_back();
  stream.peer = ready.rank;
  for (std::size_t member = 0; member < ranks.size(); ++member) {
    const int rank = ranks[member];
    if (words[member] >= 0) {
      add_block(stream, block_of(rank), length_of(rank));
    } else if (rank == ready.rank) {
      send_long(rank);
    } else {
      ++awaited_;
    }
  }
}

// A block at a time, so that what goes to other nodes is not kept waiting.
bool FirstScatterv::publish_own() {
  if (!placed_ && !open_area(area_bytes(), ArrivalArea::kCellBytes)) return false;
  if (area_ == nullptr || published_ > members().size()) return false;
  if (published_ == 0) {
    for (std::size_t member = 0; member < words_.size(); ++member) set_word(member, words_[member]);
  } else {
    const std::size_t member = published_ - 1;
    const int rank = members()[member];
    if (rank != me() && words_[member] > 0) copy_into_area(member, block_of(rank), words_[member]);
  }
  area_->publish(number_, ++published_);
  wake_neighbours();
  return true;
}

bool FirstScatterv::advance_root() {
  bool moved = hear_ready();
  bool sent = awaited_ == 0;
  for (Stream& stream : streams_) {
    moved |= advance_outgoing(stream);
    sent = sent && stream.complete();
  }
  moved |= publish_own();
  moved |= settle_sent();
  const bool published = placed_ && (area_ == nullptr || published_ > members().size());
  return finish_if(sent && published) || moved;
}

// --- winner ---------------------------------------------------------------------------------

void FirstScatterv::begin_long(std::int64_t bytes) {
  ++counters().arrival_long;
  Stream& stream = streams_.emplace_back();
  stream.peer = root_;
  stream.tag = kLong;
  add_incoming(stream, output_, bytes_, bytes);
}

void FirstScatterv::hear_words() {
  const int before = error_;
  if (!test(words_request_)) return;
  words_known_ = true;
  // Nothing will come: the others of the node must not wait for it.
  if (error_ != before) words_.assign(words_.size(), 0);
}

bool FirstScatterv::advance_winner() {
  bool moved = settle_sent();
  if (!words_known_) {
    hear_words();
    if (!words_known_) return moved;
  }
  if (!placed_ && !open_area(area_bytes(), ArrivalArea::kCellBytes)) return moved;
  if (!began_) {
    began_ = moved = true;
    Stream& stream = streams_.emplace_back();
    stream.peer = root_;
    for (std::size_t member = 0; member < words_.size(); ++member) {
      const std::int64_t word = words_[member];
      if (area_ != nullptr) set_word(member, word);
      if (member == my_place()) {
        if (word >= 0) add_incoming(stream, output_, bytes_, word);
      } else if (word > 0) {
        add_share(stream, member, word);
      }
      ends_.push_back(stream.pieces.size());
    }
    if (words_[my_place()] < 0) begin_long(bytes_of(words_[my_place()]));
  }
  bool complete = true;
  for (Stream& stream : streams_) {
    moved |= advance_incoming(stream);
    complete = complete && stream.complete();
  }
  if (area_ != nullptr) {
    std::uint64_t there = 1;
    while (there <= ends_.size() && ends_[there - 1] <= streams_.front().done) ++there;
    if (there != published_) {
      published_ = there;
      area_->publish(number_, there);
      wake_neighbours();
    }
  }
  return finish_if(complete) || moved;
}

// --- the others -----------------------------------------------------------------------------

bool FirstScatterv::advance_reader() {
  bool moved = settle_sent();
  const ArrivalArea::Seen seen = area_->look(number_);
  if (!seen.placed || seen.segments == 0) return moved;
  const std::int64_t found = word(my_place());
  if (!word_known_) {
    word_known_ = moved = true;
    if (found < 0) {
      // The root is told in any case, since it waits for that.
      tell(root_, kReady, Ready{number_, bytes_, kLongBlock, me()});
      if (bytes_of(found) == bytes_) {
        begin_long(bytes_);
      } else {
        note(host_.err_truncate);
      }
      taken_ = true;
    } else if (seen.segments > members().size()) {
      ++counters().arrival_late;
    }
  }
  if (!taken_ && seen.segments > my_place() + 1) {
    if (found != bytes_) {
      note(host_.err_truncate);
    } else {
      copy_from_area(my_place(), output_, found);
    }
    taken_ = moved = true;
  }
  bool complete = taken_;
  for (Stream& stream : streams_) {
    moved |= advance_incoming(stream);
    complete = complete && stream.complete();
  }
  return finish_if(complete) || moved;
}

std::string FirstScatterv::describe() const {
  const std::string text =
      "scatter " + std::to_string(number_) + " of those that start with the first";
  switch (role_) {
    case Role::unknown:
      return text + ": waiting for ranks of this node that are far behind";
    case Role::root:
      return text + ": root, waiting for " + std::to_string(awaited_) +
             " nodes or ranks with long blocks";
    case Role::winner:
      if (!words_known_) return text + ": first of its node, waiting for the root";
      if (!placed_) return text + ": waiting for room that ranks of this node have not left";
      return text + ": first of its node, waiting for the rest of its blocks";
    case Role::reader:
      break;
  }
  return text + (word_known_ ? ": waiting for the rest of its block"
                             : ": waiting for the first of its node, or for the root");
}

}  // namespace od
