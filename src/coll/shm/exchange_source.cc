// A member as source of an exchange: where it shows its blocks, and filling cells.
//
// Order: the bytes, then `made` or the post's ticket (both release); a reader acquires one of them
// first. A cell is filled again when all its readers have told (release; acquired here) that they
// have read it.

#include <algorithm>
#include <cstring>

#include "coll/shm/team.h"
#include "memory/reach.h"

namespace od::coll::shm {

namespace {

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
constexpr std::uint32_t pieces(std::uint64_t bytes, std::uint64_t piece_bytes) {
  return static_cast<std::uint32_t>((bytes + piece_bytes - 1) / piece_bytes);
}

}  // namespace

// Of all its readers together.
std::uint64_t Team::shown_bytes(const Exchange& x) const {
  if (x.content == Content::same) return x.out.total;
  std::uint64_t bytes = 0;
  for (int i = x.readers.first; i < x.readers.last; ++i) {
    if (i != x.me) bytes += x.out.size(i);
  }
  return bytes;
}

bool Team::reachable_blocks(const Exchange& x) const {
  if (!all_reachable_) {
    for (int i = x.readers.first; i < x.readers.last; ++i) {
      if (i != x.me && !peer(x.member(i)).reaches_us) return false;
    }
  }
  if (x.out.sizes == nullptr || x.content == Content::same) {
    return memory::reach_offset(x.out.base, x.out.total) != memory::kUnreachable;
  }
  for (int i = x.readers.first; i < x.readers.last; ++i) {
    if (i == x.me || x.out.size(i) == 0) continue;
    if (memory::reach_offset(x.out.at(i), x.out.size(i)) == memory::kUnreachable) return false;
    // Without a table readers find their blocks relative to the base.
    if (!x.own_places &&
        memory::reach_offset(x.out.base, x.out.offset(i) + x.out.size(i)) == memory::kUnreachable) {
      return false;
    }
  }
  return true;
}

// Whether others should read in this member's own buffer.
bool Team::direct_pays(const Exchange& x, std::uint64_t bytes) {
  const Tuning::Row& row = tuning_.oversubscribed ? tuning_.oversubscribed_row
                           : tuning_.far          ? tuning_.far_row
                                                  : tuning_.near_row;
  const bool rooted = x.pattern == Pattern::from_root || x.pattern == Pattern::to_root;
  if (bytes < (rooted ? row.direct_rooted : row.direct_everyone)) return false;
  std::uint64_t rewritten_min = row.rewritten_everyone;
  if (rooted || x.pattern == Pattern::before) {
    rewritten_min = x.turning ? row.rewritten_turning : row.rewritten_rooted;
  } else if (x.use == Use::combine) {
    rewritten_min = x.content == Content::same ? row.rewritten_whole : row.rewritten_slices;
  }
  // Slices that were combined just now: written by us, if not by the program.
  if (x.is_result) return bytes >= row.results;
  if (bytes >= rewritten_min) return true;
  if (x.out.sizes != nullptr) return false;
  return history_.look(reinterpret_cast<const char*>(x.out.base), x.out.total) ==
         memory::BufferUse::unchanged;
}

Way Team::choose_way(const Exchange& x) {
  if (x.content == Content::signal) return Way::nothing;
  if (x.shows_result) return Way::cells;
  const std::uint64_t bytes = shown_bytes(x);
  if (bytes == 0) return Way::nothing;
  const bool own_cell = x.own_in_cells();
  // Operations of the program may want their elements aligned to more than a payload is.
  const bool wide = x.use == Use::combine && x.combiner->kernel == nullptr &&
                    x.combiner->extent_bytes % (2 * alignof(std::max_align_t)) == 0;
  if (wide) {
    // Cells begin at lines.
  } else if (x.content == Content::same) {
    if (bytes <= kInlineBytes) return Way::payload;
  } else if (x.out.sizes == nullptr && !own_cell) {
    const std::uint64_t line =
        x.size == 2 ? x.out.each : x.out.each * static_cast<std::uint64_t>(x.size);
    if (line <= kInlineBytes) return Way::payload;
  }
  if (x.overwrites || tuning_.way == WayChoice::cells) return Way::cells;
  if (tuning_.way == WayChoice::automatic && !direct_pays(x, bytes)) return Way::cells;
  return reachable_blocks(x) ? Way::direct : Way::cells;
}

// False while there is no room.
bool Team::prepare_source(Exchange& x) {
  if (x.keeps_result && x.in.base == nullptr) {
    std::uint64_t& shown_by = result_shown_by_[next_result_ % kResults];
    if (shown_by != 0 && !acknowledged(shown_by)) return false;
    shown_by = x.number + x.shown_later + 1;
    *x.result_at = kControlBytes + ring_.bytes() + next_result_++ % kResults * result_bytes_;
    x.in.base = peer(me_).slot + *x.result_at;
  }
  if (x.readers.first == x.readers.last) {
    x.posted = true;
    return true;
  }
  // The lane's words still show its last exchange to those who have not completed it.
  if (x.number >= kLanes && !acknowledged(x.number - kLanes + 1)) return false;
  if (x.posted) {  // by show_line()
    x.way = way_of_lines(shown_bytes(x));
    x.cells = x.rounds_out = x.filled = x.way == Way::cells ? 1 : 0;
    return true;
  }
  if (!x.way_chosen) {
    x.way = choose_way(x);
    x.way_chosen = true;
    if (x.way == Way::direct && x.own_places) {
      x.table_bytes = table_bytes();
      x.ring_bytes = x.table_bytes;
    }
    if (x.way == Way::cells) plan_cells(x);
  }
  if (x.ring_bytes != 0) {
    while ((x.ring_at = ring_.reserve(x.ring_bytes, x.number)) == SlotRing::kNoRoom) {
      if (!acknowledged(ring_.oldest() + 1)) return false;
    }
  }
  return true;
}

std::uint64_t Team::table_bytes() const {
  return round_up(static_cast<std::uint64_t>(size_) * sizeof(TableEntry), kFalseSharingBytes);
}

void Team::plan_cells(Exchange& x) {
  if (x.shows_result) {
    x.ring_at = x.shown_at - kControlBytes;
    x.cell_bytes = x.out.total;
    x.cells = x.rounds_out = x.filled = 1;
    return;
  }
  std::uint64_t longest = x.out.total;
  std::uint64_t parts = 1;
  if (x.content == Content::each) {
    const bool own_cell = x.own_in_cells();
    longest = own_cell ? x.out.size(x.me) : 0;
    for (int i = x.readers.first; i < x.readers.last; ++i) {
      if (i != x.me) longest = std::max(longest, x.out.size(i));
    }
    // A single reader needs no place among others.
    if (x.size > 2 || own_cell) parts = static_cast<std::uint64_t>(x.size);
  }
  x.rounds_out = pieces(longest, x.piece_bytes);
  const std::uint64_t part = round_up(std::min(longest, x.piece_bytes), kLineBytes);
  x.block_bytes = parts == 1 ? 0 : part;
  x.cell_bytes = part * parts;
  // Half of the ring: while the readers are behind with one exchange the next one finds room.
  const std::uint64_t most = std::max<std::uint64_t>(1, ring_.bytes() / 2 / x.cell_bytes);
  x.cells = static_cast<std::uint32_t>(std::min<std::uint64_t>(x.rounds_out, most));
  if (x.own_places) x.table_bytes = table_bytes();
  x.ring_bytes = x.table_bytes + x.cells * x.cell_bytes;
}

void Team::post(Exchange& x) {
  Lane& mine = lane(me_, x);
  Post& post = mine.post;
  post.completed = static_cast<std::uint32_t>(peer(me_).base + completed_);
  post.way = x.way;
  post.table = x.table_bytes != 0;
  post.payload_bytes = 0;
  x.awaits_readers = x.way == Way::direct;
  post.awaits_readers = x.awaits_readers || x.rounds_out > x.cells;
  switch (x.way) {
    case Way::nothing:
      break;
    case Way::payload:
      ++counters_.shown_payload;
      if (x.content == Content::same || x.size == 2) {
        const std::uint64_t bytes = x.content == Content::same ? x.out.total : x.out.each;
        const std::byte* from = x.content == Content::same ? x.out.base : x.out.at(1 - x.me);
        std::memcpy(post.payload, from, bytes);
        post.payload_bytes = static_cast<std::uint8_t>(x.content == Content::same ? bytes : 0);
      } else {
        for (int i = x.readers.first; i < x.readers.last; ++i) {
          if (i == x.me || x.out.size(i) == 0) continue;
          std::memcpy(post.payload + x.out.offset(i), x.out.at(i), x.out.size(i));
        }
        post.payload_bytes = static_cast<std::uint8_t>(x.out.each);
      }
      break;
    case Way::cells:
      ++counters_.shown_cells;
      post.place = {
          kControlBytes + x.ring_at, x.out.total, x.cell_bytes, x.block_bytes, x.cells, x.filled};
      break;
    case Way::direct:
      ++counters_.shown_direct;
      post.place = {};
      post.place.bytes = x.out.total;
      post.place.block_bytes = x.content == Content::each ? x.out.each : 0;
      if (x.table_bytes == 0) post.place.offset = memory::reach_offset(x.out.base, 1);
      break;
  }
  if (x.table_bytes != 0) {
    post.place.offset = kControlBytes + x.ring_at;
    auto* table = reinterpret_cast<TableEntry*>(peer(me_).slot + post.place.offset);
    for (int i = x.readers.first; i < x.readers.last; ++i) {
      if (i == x.me) continue;
      const std::uint64_t bytes = x.out.size(i);
      table[i] = {x.way == Way::direct && bytes != 0 ? memory::reach_offset(x.out.at(i), bytes) : 0,
                  bytes};
    }
  }
  // Release: all of the above, and the cells filled so far; pairs with the acquire in look().
  post.ticket.store(ticket(me_, x), std::memory_order_release);
  x.posted = true;
  x.news_post = any_news_ = true;
}

// One piece into its cell, if the cell is free; posts with the first one.
bool Team::fill(Exchange& x) {
  // This member itself reads in its cells.
  if (x.own_in_cells() && !x.drained && x.filled >= x.round + x.cells) return false;
  if (x.filled >= x.cells &&
      !readers_at(x, x.filled - x.cells + 1, x.reader_cursor, x.awaits_room)) {
    return false;
  }
  x.reader_cursor = x.readers.first;
  fill_piece(x);
  ++x.filled;
  if (!x.posted) {
    post(x);
  } else {
    // Pairs with the acquire in available().
    lane(me_, x).made.store(step_word(ticket(me_, x), x.filled), std::memory_order_release);
    x.news_made = any_news_ = true;
  }
  return true;
}

void Team::fill_piece(Exchange& x) {
  std::byte* cell = peer(me_).slot + kControlBytes + x.ring_at + x.table_bytes +
                    (x.filled % x.cells) * x.cell_bytes;
  const std::uint64_t position = x.filled * x.piece_bytes;
  const auto copy = [&](std::byte* to, const std::byte* from, std::uint64_t block_bytes) {
    if (position >= block_bytes) return;
    const std::uint64_t bytes = std::min(x.piece_bytes, block_bytes - position);
    std::memcpy(to, from + position, bytes);
    counters_.cell_bytes += bytes;
  };
  if (x.content == Content::same) {
    copy(cell, x.out.base, x.out.total);
    return;
  }
  const bool own_cell = x.own_in_cells();
  for (int i = x.readers.first; i < x.readers.last; ++i) {
    if (i == x.me && !own_cell) continue;
    copy(cell + static_cast<std::uint64_t>(i) * x.block_bytes, x.out.at(i), x.out.size(i));
  }
}

// Whether all readers that get anything have told of so many rounds.
bool Team::readers_at(Exchange& x, std::uint64_t steps, int& cursor, Awaited& awaited) {
  for (; cursor < x.readers.last; ++cursor) {
    if (cursor == x.me || (x.content == Content::each && x.out.size(cursor) == 0)) continue;
    const int reader = x.member(cursor);
    const Awaited needed{&lane(reader, x).read, step_word(ticket(reader, x), steps)};
    if (!needed.here()) {
      awaited = needed;
      return false;
    }
  }
  awaited = {};
  return true;
}

}  // namespace od::coll::shm
