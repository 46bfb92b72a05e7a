// A member as reader of an exchange: finding what the sources show, copying and combining it.

#include <algorithm>
#include <cstring>

#include "coll/shm/team.h"
#include "memory/copy.h"

namespace od::coll::shm {

namespace {

constexpr std::uint32_t pieces(std::uint64_t bytes, std::uint64_t piece_bytes) {
  return static_cast<std::uint32_t>((bytes + piece_bytes - 1) / piece_bytes);
}

// What this member expects of a source.
std::uint64_t expected_bytes(const Exchange& x, int source) {
  if (x.use == Use::wait) return 0;
  if (x.combines_groups()) return x.across.bytes(source);
  if (x.use == Use::combine || x.pattern == Pattern::from_root) return x.in.total;
  return x.in.size(source);
}

void copy_out(bool far, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  if (far) {
    memory::copy_from_far_cache(to, from, bytes);
  } else {
    memory::copy_from_cache(to, from, bytes);
  }
}

constexpr std::uint32_t kAllTaken = ~std::uint32_t{0};

}  // namespace

void Team::prepare_reader(Exchange& x) {
  x.shown = &shown_[x.number % kLanes * static_cast<std::size_t>(size_)];
  std::uint32_t rounds = 0;
  for (int i = x.sources.first; i < x.sources.last; ++i) {
    x.shown[i].seen = false;
    x.shown[i].taken = 0;
    if (i != x.me) rounds = std::max(rounds, pieces(expected_bytes(x, i), x.piece_bytes));
  }
  if (x.use == Use::combine && x.in.total != 0) rounds = pieces(x.in.total, x.piece_bytes);
  if (x.combines_groups()) rounds = x.in.total != 0 ? 1 : 0;
  if (x.use == Use::wait) rounds = 1;
  if (x.sources.first == x.sources.last) rounds = 0;
  x.rounds_in = rounds;
  x.drained = rounds == 0;
}

// Whether the source has posted; what it shows is then in x.shown.
bool Team::look(Exchange& x, int source) {
  Shown& s = x.shown[source];
  if (s.seen) return true;
  const int position = x.member(source);
  const Post& post = lane(position, x).post;
  const std::uint64_t expected = ticket(position, x);
  // Pairs with the release in post(). Not overtaken: the source overwrites its post only when this
  // member has completed the exchange.
  if (post.ticket.load(std::memory_order_acquire) != expected) {
    if (x.awaits_content.word == nullptr) x.awaits_content = {&post.ticket, expected};
    return false;
  }
  note_completed(peer(position), post.completed);
  s.seen = true;
  if (!resolve(x, source, post)) {
    broken_ = true;
    if (corrupt_ != nullptr) corrupt_(context_, position);
    return false;
  }
  return true;
}

// Members that do not agree how long a block is: the program's mistake, which it is told at the
// end.
void Team::note_length(const Exchange& x, std::uint64_t expected, std::uint64_t shown) {
  if (x.use == Use::copy && shown != expected) x.operation->lengths_agree_ = false;
}

// False when what the source says cannot be.
bool Team::resolve(Exchange& x, int source, const Post& post) {
  Shown& s = x.shown[source];
  const Peer& from = peer(x.member(source));
  const auto me = static_cast<std::uint64_t>(x.me);
  s.way = post.way;
  s.bytes = expected_bytes(x, source);
  s.rounds = pieces(s.bytes, x.piece_bytes);
  s.cells = s.filled = 0;
  if (post.way == Way::nothing || x.use == Use::wait) {
    s.way = Way::nothing;
    s.taken = kAllTaken;
    s.bytes = 0;
    return x.use != Use::combine;
  }
  if (post.way == Way::payload) {
    std::uint64_t at = 0;
    if (x.content == Content::same) {
      if (x.use == Use::combine && post.payload_bytes < s.bytes) return false;
      note_length(x, s.bytes, post.payload_bytes);
      s.bytes = std::min<std::uint64_t>(s.bytes, post.payload_bytes);
    } else {
      at = me * post.payload_bytes;
    }
    s.start = post.payload + at;
    return at + s.bytes <= kInlineBytes;
  }
  const Post::Place place = post.place;
  std::uint64_t shown = x.content == Content::same ? place.bytes : s.bytes;
  std::uint64_t after_table = 0;
  TableEntry entry{};
  if (post.table) {
    x.irregular = true;
    after_table = table_bytes();
    if (place.offset > layout_.slot_bytes || after_table > layout_.slot_bytes - place.offset) {
      return false;
    }
    entry = reinterpret_cast<const TableEntry*>(from.slot + place.offset)[x.me];
    shown = entry.bytes;
  }
  if (x.use == Use::combine && shown < s.bytes) return false;
  note_length(x, s.bytes, shown);
  s.bytes = std::min(s.bytes, shown);
  s.rounds = pieces(s.bytes, x.piece_bytes);
  if (post.way == Way::direct) {
    std::uint64_t offset = place.offset;
    if (post.table) {
      offset = entry.offset;
    } else if (x.content == Content::each) {
      offset += x.out.offsets != nullptr ? x.out.offset(x.me) : me * place.block_bytes;
    }
    if (from.reach == nullptr || offset > from.reach_bytes || s.bytes > from.reach_bytes - offset) {
      return false;
    }
    s.start = from.reach + offset;
    if (post.awaits_readers) x.must_tell_end = true;
    return true;
  }
  if (post.way != Way::cells || place.cells == 0) return false;
  const std::uint64_t part = std::min(s.bytes, x.piece_bytes);
  const std::uint64_t at = x.content == Content::each ? me * place.block_bytes : 0;
  if (place.offset > layout_.slot_bytes || place.cell_bytes > layout_.slot_bytes ||
      at + part > place.cell_bytes ||
      place.cells * place.cell_bytes > layout_.slot_bytes - place.offset ||
      after_table > layout_.slot_bytes - place.offset - place.cells * place.cell_bytes) {
    return false;
  }
  s.start = from.slot + place.offset + after_table + at;
  s.cell_bytes = place.cell_bytes;
  s.cells = place.cells;
  s.filled = place.filled;
  if (post.awaits_readers) x.must_tell_rounds = x.must_tell_end = true;
  return true;
}

// Whether the source's piece of this round can be read.
bool Team::available(Exchange& x, int source, std::uint32_t round) {
  if (!look(x, source)) return false;
  Shown& s = x.shown[source];
  if (s.way != Way::cells || round < s.filled || round >= s.rounds) return true;
  const int position = x.member(source);
  const std::atomic<std::uint64_t>& made = lane(position, x).made;
  // Pairs with the release in fill().
  const std::uint64_t word = made.load(std::memory_order_acquire);
  const std::uint64_t none = step_word(ticket(position, x), 0);
  if (word > none) s.filled = static_cast<std::uint32_t>(word - none);
  if (round < s.filled) return true;
  if (x.awaits_content.word == nullptr) x.awaits_content = {&made, none + round + 1};
  return false;
}

// Copies what is there of this round; true when nothing of it is missing.
bool Team::copy_round(Exchange& x) {
  bool complete = true;
  bool more = false;
  const int count = x.sources.last - x.sources.first;
  for (int k = 0; k < count; ++k) {
    // Readers begin at different sources, those of the same distance in turn.
    int source = x.me + 1 + k;
    source = x.sources.first + (source - x.sources.first) % count;
    if (source == x.me) continue;
    Shown& s = x.shown[source];
    if (s.taken > x.round) {
      more = more || s.taken != kAllTaken;
      continue;
    }
    if (expected_bytes(x, source) == 0 && x.use != Use::wait) {
      s.taken = kAllTaken;
      continue;
    }
    if (!available(x, source, x.round)) {
      complete = false;
      continue;
    }
    if (s.taken == kAllTaken) continue;
    std::byte* to = x.pattern == Pattern::from_root ? x.in.base : x.in.at(source);
    if (s.way != Way::cells) {
      if (s.way == Way::direct) {
        copy_out(tuning_.far, to, s.start, s.bytes);
        counters_.direct_bytes += s.bytes;
      } else {
        std::memcpy(to, s.start, s.bytes);
      }
      s.taken = kAllTaken;
    } else {
      const std::uint64_t position = x.round * x.piece_bytes;
      if (position < s.bytes) {
        copy_out(tuning_.far, to + position, s.start + (x.round % s.cells) * s.cell_bytes,
                 std::min(x.piece_bytes, s.bytes - position));
      }
      s.taken = x.round + 1 >= s.rounds ? kAllTaken : x.round + 1;
      more = more || s.taken != kAllTaken;
    }
  }
  if (!complete) return false;
  if (!more) x.round = x.rounds_in - 1;
  return true;
}

// Combines a piece of all operands once all are there.
bool Team::combine_round(Exchange& x) {
  const std::uint64_t position = x.round * x.piece_bytes;
  std::size_t operands = 0;
  for (int i = x.sources.first; i < x.sources.last; ++i) {
    const std::byte* operand;
    if (i == x.me) {
      if (!x.own_operand) continue;
      if (x.content == Content::same) {
        operand = x.out.base + position;
      } else if (x.own_in_cells() && x.way == Way::cells) {
        operand = peer(me_).slot + kControlBytes + x.ring_at + x.table_bytes +
                  (x.round % x.cells) * x.cell_bytes +
                  static_cast<std::uint64_t>(x.me) * x.block_bytes;
      } else {
        operand = x.out.at(x.me) + position;
      }
    } else {
      if (!available(x, i, x.round)) return false;
      const Shown& s = x.shown[i];
      operand =
          s.way == Way::cells ? s.start + (x.round % s.cells) * s.cell_bytes : s.start + position;
      if (s.way == Way::direct) {
        counters_.direct_bytes += std::min(x.piece_bytes, x.in.total - position);
      }
    }
    operands_[operands++] = operand;
  }
  const std::uint64_t bytes = std::min(x.piece_bytes, x.in.total - position);
  x.combiner->combine(x.in.base + position, operands_.data(), operands,
                      bytes / x.combiner->extent_bytes, aligned_scratch_);
  return true;
}

// Combines this member's slice of the results of all groups once they are there.
bool Team::combine_groups(Exchange& x) {
  const GroupSlices& parts = x.across;
  const std::uint64_t from = parts.final_each() * static_cast<std::uint64_t>(me_);
  const std::uint64_t to = from + x.in.total;
  for (int i = 0; i < size_; ++i) {
    if (i != me_ && parts.holds(i, from, to) && !available(x, i, 0)) return false;
  }
  const std::uint64_t most = piece_bytes(Content::same, size_, parts.extent);
  for (std::uint64_t at = from; at < to;) {
    std::uint64_t next = std::min(to, at + most);
    for (int group = 0; group < parts.groups->count(); ++group) {
      const int i = parts.holder(group, at);
      const std::byte* const start = i == me_ ? peer(me_).slot + x.shown_at : x.shown[i].start;
      operands_[static_cast<std::size_t>(group)] = start + (at - parts.start(i));
      next = std::min(next, parts.start(i) + parts.bytes(i));
    }
    x.combiner->combine(x.in.base + (at - from), operands_.data(),
                        static_cast<std::size_t>(parts.groups->count()), (next - at) / parts.extent,
                        aligned_scratch_);
    at = next;
  }
  return true;
}

// One round of reading; false when it has to wait.
bool Team::read_round(Exchange& x) {
  // What this member shows lies where the result goes.
  if (x.overwrites && x.way == Way::cells && x.filled <= x.round && x.filled < x.rounds_out) {
    return false;
  }
  x.awaits_content = {};
  const bool read = x.use != Use::combine ? copy_round(x)
                    : x.combines_groups() ? combine_groups(x)
                                          : combine_round(x);
  if (!read || broken_) return false;
  x.awaits_content = {};
  ++x.round;
  if (x.round == x.rounds_in) {
    x.drained = true;
    if (x.must_tell_end) {
      // Release: everything has been read; pairs with the acquire in readers_at().
      lane(me_, x).read.store(step_word(ticket(me_, x), kAllSteps), std::memory_order_release);
      x.news_end = any_news_ = true;
      // A source may wait for this member alone before it goes on for the others.
      x.news_round = x.must_tell_rounds;
    }
  } else if (x.must_tell_rounds) {
    lane(me_, x).read.store(step_word(ticket(me_, x), x.round), std::memory_order_release);
    x.news_round = any_news_ = true;
  }
  return true;
}

// Whatever can be done next of an exchange that has begun; true if anything has moved.
bool Team::step(Exchange& x) {
  bool moved = false;
  if (x.way == Way::cells && x.filled < x.rounds_out) moved = fill(x);
  if (!x.own_done) {
    if (x.own_bytes != 0) std::memcpy(x.own_to, x.own_from, x.own_bytes);
    x.own_done = moved = true;
  }
  if (!x.drained) moved = read_round(x) || moved;
  if (!x.drained || x.filled < x.rounds_out) return moved;
  if (x.awaits_readers && !readers_at(x, kAllSteps, x.end_cursor, x.awaits_room)) return moved;
  retire(x);
  return true;
}

}  // namespace od::coll::shm
