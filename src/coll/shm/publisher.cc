// The choice of a way, cells, tables and posts.

#include "coll/shm/publisher.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/populate.h"
#include "base/round.h"
#include "memory/reach.h"

namespace od::coll::shm {

namespace {

// Blocks of which only this member knows where they are and how long: of two the post says so of
// the one that is read.
bool tells_one_block(const Exchange& x) { return x.part.own_places && x.seat.size == 2; }
bool needs_table(const Exchange& x) { return x.part.own_places && x.seat.size > 2; }

}  // namespace

Publisher::Publisher(Channel& channel, const TeamShape& shape, TeamCounters& counters,
                     std::vector<bool> reach_us, Carrier* carrier)
    : channel_(channel),
      shape_(shape),
      counters_(counters),
      reach_us_(std::move(reach_us)),
      carrier_(carrier),
      all_reach_us_(true),
      ring_(shape.ring_bytes) {
  for (int i = 0; i < shape_.size; ++i) {
    if (i != shape_.me && !reach_us_[static_cast<std::size_t>(i)]) all_reach_us_ = false;
  }
}

// Of all its readers together.
std::uint64_t Publisher::shown_bytes(const Exchange& x) {
  const Blocks& out = x.part.out;
  if (x.spec.content == Content::same) return out.total;
  std::uint64_t bytes = 0;
  for (int i = x.seat.readers.first; i < x.seat.readers.last; ++i) {
    if (i != x.seat.me) bytes += out.size(i);
  }
  return bytes;
}

// What one of two shows the other; equal blocks are told by their common length, also where the
// last one is cut off.
std::uint64_t Publisher::block_of_pair(const Exchange& x) {
  const Blocks& out = x.part.out;
  return out.sizes != nullptr ? out.size(1 - x.seat.me) : out.each;
}

bool Publisher::reachable_blocks(const Exchange& x) const {
  const Blocks& out = x.part.out;
  const Span readers = x.seat.readers;
  if (!all_reach_us_) {
    for (int i = readers.first; i < readers.last; ++i) {
      if (i != x.seat.me && !reach_us_[static_cast<std::size_t>(x.member(i))]) return false;
    }
  }
  if (out.sizes == nullptr || x.spec.content == Content::same) {
    return memory::reach_offset(out.base, out.total) != memory::kUnreachable;
  }
  for (int i = readers.first; i < readers.last; ++i) {
    if (i == x.seat.me || out.size(i) == 0) continue;
    if (memory::reach_offset(out.at(i), out.size(i)) == memory::kUnreachable) return false;
    // Without a table readers find their blocks relative to the base.
    if (!x.part.own_places &&
        memory::reach_offset(out.base, out.offset(i) + out.size(i)) == memory::kUnreachable) {
      return false;
    }
  }
  return true;
}

const Tuning::Row& Publisher::row() const {
  const Tuning& tuning = shape_.tuning;
  return tuning.oversubscribed ? tuning.oversubscribed_row
         : tuning.far          ? tuning.far_row
                               : tuning.near_row;
}

// Whether the transport moves a block faster: it lets both sides copy, or the source push, and
// measures which.
bool Publisher::message_pays(const Exchange& x, std::uint64_t bytes, bool direct) const {
  if (carrier_ == nullptr || x.seat.size != 2 || x.spec.use != Use::copy) return false;
  // Slices of a reduction come and go beside each other: as messages, which both sides attend to,
  // an allreduce of 600 KiB takes 107 us between far cores instead of 60.
  if (x.part.origin != Origin::program) return false;
  if (x.spec.rooted()) return bytes >= row().message_rooted;
  return bytes >= (direct ? row().message_everyone : row().message_rewritten);
}

// Of two the other one reads.
bool Publisher::begin_message(const Exchange& x) {
  const Blocks& out = x.part.out;
  const int reader = 1 - x.seat.me;
  const bool same = x.spec.content == Content::same;
  return carrier_->send(x.number, x.member(reader), same ? out.base : out.at(reader),
                        same ? out.total : out.size(reader));
}

// Whether others should read in this member's own buffer.
bool Publisher::direct_pays(const Exchange& x, std::uint64_t bytes) {
  const Tuning::Row& row = this->row();
  const bool rooted = x.spec.rooted();
  const std::uint64_t least = !rooted            ? row.direct_everyone
                              : x.seat.size == 2 ? row.direct_rooted_pair
                                                 : row.direct_rooted;
  if (bytes < least) return false;
  std::uint64_t rewritten_min = row.rewritten_everyone;
  if (rooted) {
    rewritten_min = x.turning ? row.rewritten_turning : row.rewritten_rooted;
  } else if (x.spec.pattern == Pattern::before) {
    rewritten_min = row.rewritten_before;
  } else if (x.spec.use == Use::combine) {
    rewritten_min = x.spec.content == Content::same ? row.rewritten_whole : row.rewritten_slices;
  }
  // Slices that were combined just now: written by us, if not by the program.
  if (x.part.origin == Origin::result) return bytes >= row.results;
  if (bytes >= rewritten_min) return true;
  return used_before(x) == memory::BufferUse::unchanged;
}

// What has happened to the blocks since they were last shown. Of blocks that lie anywhere the
// longest one stands for all: what is between them may be no memory of the program's.
memory::BufferUse Publisher::used_before(const Exchange& x) {
  const Blocks& out = x.part.out;
  if (out.sizes == nullptr) {
    return history_.look(reinterpret_cast<const char*>(out.base), out.total);
  }
  int longest = x.seat.me;
  for (int i = x.seat.readers.first; i < x.seat.readers.last; ++i) {
    if (i != x.seat.me && (longest == x.seat.me || out.size(i) > out.size(longest))) longest = i;
  }
  constexpr std::uint64_t kShortestLooked = 64;
  if (out.size(longest) < kShortestLooked) return memory::BufferUse::rewritten;
  return history_.look(reinterpret_cast<const char*>(out.at(longest)), out.size(longest));
}

Way Publisher::choose_way(const Exchange& x) {
  if (x.spec.content == Content::signal) return Way::nothing;
  if (x.part.origin == Origin::kept_result) return Way::cells;
  const std::uint64_t bytes = shown_bytes(x);
  if (bytes == 0) return Way::nothing;
  const Blocks& out = x.part.out;
  const Combiner* const combiner = x.part.combiner;
  // Operations of the program may want their elements aligned to more than a payload is.
  const bool wide = x.spec.use == Use::combine && combiner->kernel == nullptr &&
                    combiner->extent_bytes % (2 * alignof(std::max_align_t)) == 0;
  if (wide) {
    // Cells begin at lines.
  } else if (x.spec.content == Content::same) {
    if (bytes <= kInlineBytes) return Way::payload;
  } else if (!x.own_in_cells()) {
    const bool pair = x.seat.size == 2;
    const std::uint64_t line =
        pair ? block_of_pair(x) : out.each * static_cast<std::uint64_t>(x.seat.size);
    if ((pair || out.sizes == nullptr) && line <= kInlineBytes) return Way::payload;
  }
  const WayChoice allowed = shape_.tuning.way;
  // The owner of a buffer could not tell who reads in it of those that take a share.
  if (x.part.overwrites || x.part.takes_share || allowed == WayChoice::cells) return Way::cells;
  if (allowed == WayChoice::automatic) {
    const bool direct = direct_pays(x, bytes);
    if (message_pays(x, bytes, direct)) return Way::message;
    if (!direct) return Way::cells;
  }
  return reachable_blocks(x) ? Way::direct : Way::cells;
}

bool Publisher::prepare(Exchange& x) {
  Showing& show = x.show;
  if (x.part.keep.wanted() && x.read.into == nullptr && !place_result(x)) return false;
  if (x.seat.readers.first == x.seat.readers.last) {
    show.phase = Showing::Phase::posted;
    return true;
  }
  // The post still shows an earlier exchange to those who have not completed it.
  if (!channel_.post_free(x.number)) return false;
  if (show.posted()) {  // as a line
    show.cells = show.rounds = show.filled = show.way == Way::cells ? 1 : 0;
    return true;
  }
  if (show.phase == Showing::Phase::undecided) {
    show.way = choose_way(x);
    if (show.way == Way::message && !begin_message(x)) show.way = Way::cells;
    show.phase = Showing::Phase::decided;
    if (show.way == Way::direct && needs_table(x)) {
      show.ring_bytes = show.table_bytes = table_bytes(shape_.size);
    }
    if (show.way == Way::cells) plan_cells(x);
  }
  if (show.ring_bytes != 0 && !reserve(x)) return false;
  show.phase = Showing::Phase::ready;
  return true;
}

// A place for the result that an exchange to come shows; false while there is none.
bool Publisher::place_result(Exchange& x) {
  std::uint64_t& shown_by = result_shown_by_[next_result_ % kResults];
  if (shown_by != 0 && !channel_.acknowledged(shown_by)) return false;
  shown_by = x.number + x.part.keep.shown_later + 1;
  const std::uint64_t at =
      kControlBytes + ring_.bytes() + next_result_++ % kResults * shape_.result_bytes;
  *x.part.keep.at = at;
  x.read.into = channel_.slot(shape_.me) + at;
  return true;
}

bool Publisher::reserve(Exchange& x) {
  ring_.release(channel_.acknowledged_below());
  while ((x.show.ring_at = ring_.reserve(x.show.ring_bytes, x.number)) == SlotRing::kNoRoom) {
    if (!channel_.acknowledged(ring_.oldest() + 1)) return false;
    ring_.release(channel_.acknowledged_below());
  }
  if (ring_.window() != populated_bytes_) populate_window();
  return true;
}

// Pages that come one by one as cells are filled are found one by one by every reader: with 16
// ranks and cells of 1 KiB some 4 us of faults for each exchange. Of a stretch that is there
// readers map 64 KiB with one fault.
void Publisher::populate_window() {
  const std::uint64_t from = populated_bytes_;
  populated_bytes_ = ring_.window();
  populate_pages(channel_.slot(shape_.me) + kControlBytes + from, populated_bytes_ - from, true);
}

void Publisher::plan_cells(Exchange& x) {
  Showing& show = x.show;
  const Blocks& out = x.part.out;
  if (x.part.origin == Origin::kept_result) {
    show.ring_at = x.part.shown_at - kControlBytes;
    show.cell_bytes = out.total;
    show.cells = show.rounds = show.filled = 1;
    return;
  }
  const Seat& seat = x.seat;
  std::uint64_t longest = out.total;
  std::uint64_t parts = 1;
  if (x.spec.content == Content::each) {
    const bool own_cell = x.own_in_cells();
    longest = own_cell ? out.size(seat.me) : 0;
    for (int i = seat.readers.first; i < seat.readers.last; ++i) {
      if (i != seat.me) longest = std::max(longest, out.size(i));
    }
    // A single reader needs no place among others.
    if (seat.size > 2 || own_cell) parts = static_cast<std::uint64_t>(seat.size);
  }
  const std::uint64_t piece_bytes = x.spec.piece_bytes;
  show.rounds = pieces_in(longest, piece_bytes);
  const std::uint64_t part = round_up(std::min(longest, piece_bytes), kLineBytes);
  show.block_bytes = parts == 1 ? 0 : part;
  show.cell_bytes = part * parts;
  // Half of the ring: while the readers are behind with one exchange the next one finds room.
  const std::uint64_t most = std::max<std::uint64_t>(1, ring_.bytes() / 2 / show.cell_bytes);
  show.cells = static_cast<std::uint32_t>(std::min<std::uint64_t>(show.rounds, most));
  if (needs_table(x)) show.table_bytes = table_bytes(shape_.size);
  show.ring_bytes = show.table_bytes + show.cells * show.cell_bytes;
}

// What a post says of its length, so that readers see whether they expect the same.
std::uint64_t Publisher::told_bytes(const Exchange& x) {
  const Blocks& out = x.part.out;
  if (tells_one_block(x)) return block_of_pair(x);
  return x.spec.content == Content::each && out.sizes == nullptr ? out.each : out.total;
}

void Publisher::post(Exchange& x) {
  Showing& show = x.show;
  const Blocks& out = x.part.out;
  Post& post = channel_.own_post(x.number);
  post.completed = channel_.completed_low();
  post.way = show.way;
  post.table = show.table_bytes != 0;
  post.payload_bytes = 0;
  post.awaits_readers = show.awaits_readers() || show.rounds > show.cells;
  switch (show.way) {
    case Way::nothing:
      break;
    case Way::payload:
      ++counters_.shown_payload;
      fill_payload(x, post);
      break;
    case Way::cells:
      ++counters_.shown_cells;
      post.place = {kControlBytes + show.ring_at,
                    told_bytes(x),
                    show.cell_bytes,
                    show.block_bytes,
                    show.cells,
                    show.filled};
      break;
    case Way::direct:
      ++counters_.shown_direct;
      post.place = {};
      post.place.bytes = told_bytes(x);
      post.place.block_bytes = x.spec.content == Content::each ? out.each : 0;
      if (!post.table) {
        const std::byte* const from = tells_one_block(x) ? out.at(1 - x.seat.me) : out.base;
        post.place.offset = memory::reach_offset(from, 1);
      }
      break;
    case Way::message:
      ++counters_.shown_message;
      post.place = {};
      post.place.bytes = told_bytes(x);
      break;
  }
  if (post.table) {
    post.place.offset = kControlBytes + show.ring_at;
    fill_table(x, post.place.offset);
  }
  if (std::byte* const timed = channel_.timed_line(shape_.me, x.number, post)) {
    // Relaxed: nobody cares what it holds.
    std::atomic_ref<std::byte>(*timed).store(std::byte{}, std::memory_order_relaxed);
  }
  channel_.publish(x.number);
  show.phase = Showing::Phase::posted;
  x.news.post = true;
}

void Publisher::fill_payload(const Exchange& x, Post& post) {
  const Blocks& out = x.part.out;
  const Seat& seat = x.seat;
  if (x.spec.content == Content::same) {
    std::memcpy(post.payload, out.base, out.total);
    post.payload_bytes = static_cast<std::uint8_t>(out.total);
    return;
  }
  if (seat.size == 2) {
    post.payload_bytes = static_cast<std::uint8_t>(block_of_pair(x));
    std::memcpy(post.payload, out.at(1 - seat.me), block_of_pair(x));
    return;
  }
  post.payload_bytes = static_cast<std::uint8_t>(out.each);
  for (int i = seat.readers.first; i < seat.readers.last; ++i) {
    if (i == seat.me || out.size(i) == 0) continue;
    std::memcpy(post.payload + out.offset(i), out.at(i), out.size(i));
  }
}

void Publisher::fill_table(const Exchange& x, std::uint64_t offset) {
  const Blocks& out = x.part.out;
  auto* const table = reinterpret_cast<TableEntry*>(channel_.slot(shape_.me) + offset);
  for (int i = x.seat.readers.first; i < x.seat.readers.last; ++i) {
    if (i == x.seat.me) continue;
    const std::uint64_t bytes = out.size(i);
    const bool direct = x.show.way == Way::direct && bytes != 0;
    table[i] = {direct ? memory::reach_offset(out.at(i), bytes) : 0, bytes};
  }
}

bool Publisher::fill(Exchange& x) {
  Showing& show = x.show;
  // This member itself reads in its cells.
  if (x.own_in_cells() && !x.read.over() && show.filled >= x.read.round + show.cells) return false;
  if (show.filled >= show.cells &&
      !readers_at(x, show.filled - show.cells + 1, show.reader_cursor)) {
    return false;
  }
  show.reader_cursor = x.seat.readers.first;
  fill_piece(x);
  ++show.filled;
  if (!show.posted()) {
    post(x);
  } else {
    channel_.tell_made(x.number, show.filled);
    x.news.made = true;
  }
  return true;
}

void Publisher::fill_piece(Exchange& x) {
  const Showing& show = x.show;
  const Blocks& out = x.part.out;
  std::byte* const cell = channel_.slot(shape_.me) + show.cell_offset(show.filled);
  const std::uint64_t position = show.filled * x.spec.piece_bytes;
  const auto copy = [&](std::byte* to, const std::byte* from, std::uint64_t block_bytes) {
    if (position >= block_bytes) return;
    const std::uint64_t bytes = std::min(x.spec.piece_bytes, block_bytes - position);
    std::memcpy(to, from + position, bytes);
    counters_.cell_bytes += bytes;
  };
  if (x.spec.content == Content::same) {
    copy(cell, out.base, out.total);
    return;
  }
  const bool own_cell = x.own_in_cells();
  for (int i = x.seat.readers.first; i < x.seat.readers.last; ++i) {
    if (i == x.seat.me && !own_cell) continue;
    copy(cell + static_cast<std::uint64_t>(i) * show.block_bytes, out.at(i), out.size(i));
  }
}

// Whether all readers that get anything have told of so many rounds.
bool Publisher::readers_at(Exchange& x, std::uint64_t rounds, int& cursor) {
  for (; cursor < x.seat.readers.last; ++cursor) {
    if (cursor == x.seat.me) continue;
    if (x.spec.content == Content::each && x.part.out.size(cursor) == 0) continue;
    const Awaited needed = channel_.rounds_of(x.member(cursor), x.number, rounds);
    if (!needed.here()) {
      x.show.room = needed;
      return false;
    }
  }
  x.show.room = {};
  return true;
}

}  // namespace od::coll::shm
