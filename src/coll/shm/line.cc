// Serving collectives of a line (line.h).
//
// The same words in the same order as an exchange: the bytes, the post, then its ticket (release);
// what the others show is read after their tickets (acquire); `completed` (release) comes last.

#include "coll/shm/line.h"

#include <algorithm>
#include <cstring>

#include "base/prefetch.h"
#include "coll/shm/team.h"
#include "node/wait.h"

namespace od::coll::shm {

bool Team::serve_line(const Line& line, Patience patience) {
  if (first_open_ != nullptr || completed_ != next_number_ || broken_) return false;
  // As an exchange it is one round.
  if (line.bytes > std::min<std::uint64_t>(kLinesBytes, piece_bytes(line.content, size_, 1)))
    return false;
  const Span readers = readers_of(line.pattern, line.root, me_, size_);
  const Span sources = sources_of(line.pattern, line.root, me_, size_);
  if (readers.has_another_than(me_)) {
    if (next_number_ >= kLanes && !acknowledged(next_number_ - kLanes + 1)) return false;
    show_line(line);
    tell_of_line(line, readers);
  }
  if (!lines_here(line, sources, patience)) return false;
  take_lines(line, sources);
  complete_line();
  return true;
}

// Where a line's bytes go: into the post, or into the cell that belongs to the lane.
Way Team::way_of_lines(std::uint64_t bytes) {
  if (bytes == 0) return Way::nothing;
  return bytes <= kInlineBytes ? Way::payload : Way::cells;
}
std::uint64_t Team::lines_offset(std::uint64_t number) {
  return kLinesOffset + number % kLanes * kLinesBytes;
}

void Team::show_line(const Line& line) {
  Post& post = lane(me_, next_number_).post;
  post.completed = static_cast<std::uint32_t>(peer(me_).base + completed_);
  post.way = way_of_lines(line.bytes);
  post.awaits_readers = post.table = false;
  post.payload_bytes = 0;
  if (post.way == Way::payload) {
    std::memcpy(post.payload, line.shown, line.bytes);
    if (line.content == Content::same) post.payload_bytes = static_cast<std::uint8_t>(line.bytes);
  } else if (post.way == Way::cells) {
    const std::uint64_t at = lines_offset(next_number_);
    std::memcpy(peer(me_).slot + at, line.shown, line.bytes);
    post.place = {at, line.bytes, kLinesBytes, 0, 1, 1};
  }
  // Pairs with the acquire in lines_here() and look().
  post.ticket.store(ticket(me_, next_number_), std::memory_order_release);
  shown_ahead_ = true;
  take_next_lines(line.bytes);
}

// Where ranks share cores whoever finds that nothing is missing wakes a reader, as after an
// exchange's post (tell_sleepers).
void Team::tell_of_line(const Line& line, Span readers) {
  if (wake_mode_.expedited) {
    tell_others(false);
    return;
  }
  // Free: all exchanges are over.
  Exchange& x = exchanges_[next_number_ % kLanes] = {};
  x.pattern = line.pattern;
  x.root = line.root;
  x.number = next_number_;
  x.size = size_;
  x.me = me_;
  x.readers = readers;
  x.news_post = any_news_ = true;
  tell_sleepers();
}

// The others read this lane's next lines eight exchanges ago and still hold them: taken back while
// we wait, they do not have to be fetched when there is something to show.
void Team::take_next_lines(std::uint64_t bytes) {
  const std::uint64_t next = next_number_ + 1;
  Post& post = lane(me_, next).post;
  prefetch_for_writing(&post);
  if (bytes <= kFirstLineBytes) return;
  if (bytes <= kInlineBytes) {
    prefetch_for_writing(post.payload + kFirstLineBytes);
    return;
  }
  const std::byte* const lines = peer(me_).slot + lines_offset(next);
  for (std::uint64_t at = 0; at < bytes; at += kLineBytes) {
    prefetch_for_writing(lines + at);
  }
}

// Whether the lines of all sources are there, and are what this member expects.
bool Team::lines_here(const Line& line, Span sources, Patience patience) {
  for (int i = sources.first; i < sources.last; ++i) {
    if (i == me_) continue;
    const Post& post = lane(i, next_number_).post;
    const std::uint64_t expected = ticket(i, next_number_);
    // Pairs with the release in show_line() and post().
    while (post.ticket.load(std::memory_order_acquire) != expected) {
      if (!patience.another_look()) return false;
      pause_processor();
    }
    if (!as_expected(line, post)) return false;
    note_completed(peer(i), post.completed);
  }
  return true;
}

// False for what an Operation has to settle: lengths that disagree, and blocks that a member shows
// elsewhere, because it has taken the general way.
bool Team::as_expected(const Line& line, const Post& post) const {
  if (post.way != way_of_lines(line.bytes)) return false;
  if (post.way != Way::cells) {
    return post.payload_bytes == (line.content == Content::same ? line.bytes : 0);
  }
  return post.place.offset == lines_offset(next_number_) && post.place.bytes == line.bytes;
}

void Team::take_lines(const Line& line, Span sources) {
  const auto shown_by = [&](int i) -> const std::byte* {
    if (i == me_) return line.own;
    if (line.bytes > kInlineBytes) return peer(i).slot + lines_offset(next_number_);
    return lane(i, next_number_).post.payload;
  };
  const auto copy = [&](std::byte* to, const std::byte* from) {
    if (to != nullptr && from != nullptr && to != from) std::memcpy(to, from, line.bytes);
  };
  switch (line.use) {
    case Use::wait:
      break;
    case Use::combine: {
      std::size_t count = 0;
      for (int i = sources.first; i < sources.last; ++i) {
        const std::byte* const operand = shown_by(i);
        if (operand != nullptr) operands_[count++] = operand;
      }
      // None: the first of an exscan, or whoever only gives.
      if (count == 0) break;
      line.combiner.combine(line.into, operands_.data(), count,
                            line.bytes / line.combiner.extent_bytes, nullptr);
      break;
    }
    case Use::copy:
      if (line.pattern == Pattern::from_root) {
        copy(line.into, shown_by(line.root));
        break;
      }
      for (int i = sources.first; i < sources.last; ++i) {
        copy(line.into + static_cast<std::uint64_t>(i) * line.bytes, shown_by(i));
      }
      break;
  }
}

void Team::complete_line() {
  shown_ahead_ = false;
  ++counters_.operations;
  ++counters_.lines;
  ++reserved_;
  ++next_number_;
  ++completed_;
  publish_completed();
  tell_others(true);
}

// Wakes those who may sleep on what has just been published; `ends`: that an exchange is over.
void Team::tell_others(bool ends) {
  order_for_sleepers();
  for (int i = 0; i < size_; ++i) {
    const Peer& p = peer(i);
    if (i == me_ || (ends && p.control->wants_acks.load(std::memory_order_relaxed) == 0)) continue;
    wake_if_asleep(p);
  }
}

}  // namespace od::coll::shm
