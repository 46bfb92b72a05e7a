// Finding what the sources show, copying and combining it.

#include "coll/shm/reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "memory/copy.h"

namespace od::coll::shm {

namespace {

constexpr std::uint32_t kAllTaken = ~std::uint32_t{0};

// Of each block; further lines are found by the processor's own prefetchers.
constexpr std::uint64_t kFetchedAhead = 4 * kLineBytes;

// What this member expects of a source.
std::uint64_t expected_bytes(const Exchange& x, int source) {
  const ExchangeSpec& spec = x.spec;
  if (spec.use == Use::wait) return 0;
  if (spec.combines_groups()) return spec.across.bytes(source);
  if (spec.use == Use::combine || spec.pattern == Pattern::from_root) return x.part.in.total;
  return x.part.in.size(source);
}

// Members that do not agree how long a block is: the program's mistake, which it is told at the
// end.
void note_length(Exchange& x, std::uint64_t expected, std::uint64_t shown) {
  if (x.spec.use != Use::wait && shown != expected) x.read.lengths_agree = false;
}

// Whether this member can combine `bytes` of a contribution of which that much is shown. Where
// members cut what they show into equal blocks and do not agree how long those are, each would
// combine others.
bool can_combine(Exchange& x, std::uint64_t bytes, std::uint64_t shown) {
  const Blocks& out = x.part.out;
  if (x.spec.content == Content::each) return out.sizes != nullptr || shown == out.each;
  if (shown < x.part.share_at + bytes) return false;
  if (!x.spec.combines_groups()) note_length(x, x.part.takes_share ? out.total : bytes, shown);
  return true;
}

// How much this member reads of what is shown; false if nothing can be done with it.
bool settle_length(Exchange& x, Shown& s, std::uint64_t shown) {
  if (x.spec.use == Use::combine) return can_combine(x, s.bytes, shown);
  note_length(x, s.bytes, shown);
  s.bytes = std::min(s.bytes, shown);
  return true;
}

// Where the source's block goes.
std::byte* place_of(const Exchange& x, int source) {
  const Blocks& in = x.part.in;
  return x.spec.pattern == Pattern::from_root ? in.base : in.at(source);
}

void copy_out(bool far, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  if (far) {
    memory::copy_from_far_cache(to, from, bytes);
  } else {
    memory::copy_from_cache(to, from, bytes);
  }
}

}  // namespace

Reader::Reader(Channel& channel, const TeamShape& shape, TeamCounters& counters,
               std::vector<ReachFile> reach, CorruptHandler corrupt, DistanceHandler distance,
               Carrier* carrier)
    : channel_(channel),
      shape_(shape),
      counters_(counters),
      reach_(std::move(reach)),
      corrupt_(corrupt),
      distance_(distance),
      carrier_(carrier),
      shown_(kLanes * static_cast<std::size_t>(shape.size)),
      operands_(static_cast<std::size_t>(shape.size)) {}

void Reader::prepare(Exchange& x) {
  const ExchangeSpec& spec = x.spec;
  const Span sources = x.seat.sources;
  x.read.shown = &shown_[x.number % kLanes * static_cast<std::size_t>(shape_.size)];
  std::uint32_t rounds = 0;
  for (int i = sources.first; i < sources.last; ++i) {
    x.read.shown[i].seen = x.read.shown[i].expected = false;
    x.read.shown[i].taken = 0;
    if (i != x.seat.me) {
      rounds = std::max(rounds, pieces_in(expected_bytes(x, i), spec.piece_bytes));
    }
  }
  const std::uint64_t total = x.part.in.total;
  if (spec.use == Use::combine && total != 0) rounds = pieces_in(total, spec.piece_bytes);
  if (spec.combines_groups()) rounds = total != 0 ? 1 : 0;
  if (spec.use == Use::wait) rounds = 1;
  if (sources.first == sources.last) rounds = 0;
  x.read.rounds = rounds;
  if (spec.use == Use::combine && x.part.combiner->function != nullptr) make_scratch(x);
}

// For operations of the program.
void Reader::make_scratch(const Exchange& x) {
  const std::uint64_t whole =
      shape_.piece_bytes(Content::same, shape_.size, x.part.combiner->extent_bytes);
  const std::uint64_t scratch = std::max(x.spec.piece_bytes, whole) + kLineBytes;
  if (scratch_.size() >= scratch) return;
  scratch_.resize(scratch);
  const auto start = reinterpret_cast<std::uintptr_t>(scratch_.data());
  aligned_scratch_ = scratch_.data() + (kLineBytes - start % kLineBytes) % kLineBytes;
}

// With many sources: what they show beside their posts is fetched all at once. One after the other,
// each post and then each block would cost the whole way to its owner's cache.
void Reader::look_at_all(Exchange& x) {
  const Span sources = x.seat.sources;
  if (x.read.round != 0 || sources.last - sources.first <= kFewSources) return;
  // Of the groups' results a member needs few.
  if (x.spec.use == Use::wait || x.spec.combines_groups()) return;
  const auto unseen = [&](int i) {
    if (i == x.seat.me || x.read.shown[i].seen) return false;
    const std::uint64_t bytes = expected_bytes(x, i);
    const std::uint64_t blocks =
        x.spec.content == Content::same ? 1 : static_cast<std::uint64_t>(x.seat.size);
    return bytes * blocks > kInlineBytes;
  };
  for (int i = sources.first; i < sources.last; ++i) {
    if (unseen(i)) prefetch_for_reading(&channel_.post(x.member(i), x.number));
  }
  for (int i = sources.first; i < sources.last; ++i) {
    if (!unseen(i) || !look(x, i)) continue;
    const Shown& s = x.read.shown[i];
    const std::uint64_t bytes = std::min(s.bytes, kFetchedAhead);
    for (std::uint64_t at = 0; at < bytes; at += kLineBytes) prefetch_for_reading(s.start + at);
  }
  // Whom to wait for is found where what is missing is needed.
  x.read.content = {};
}

// Whether the source has posted; what it shows is then in x.read.shown.
bool Reader::look(Exchange& x, int source) {
  Shown& s = x.read.shown[source];
  if (s.seen) return true;
  const int position = x.member(source);
  if (!channel_.shows(position, x.number)) {
    if (!x.read.content.waiting()) x.read.content = channel_.post_of(position, x.number);
    return false;
  }
  const Post& post = channel_.post(position, x.number);
  channel_.note_completed(position, post.completed);
  const void* const line = channel_.timed_line(position, x.number, post);
  if (line != nullptr && distance_.function != nullptr) {
    distance_.function(distance_.context, position, line);
  }
  s.seen = true;
  if (!resolve(x, source, post)) {
    broken_ = true;
    if (corrupt_.function != nullptr) corrupt_.function(corrupt_.context, position);
    return false;
  }
  return true;
}

// False when what the source says cannot be.
bool Reader::resolve(Exchange& x, int source, const Post& post) {
  const ExchangeSpec& spec = x.spec;
  Shown& s = x.read.shown[source];
  s.way = post.way;
  s.bytes = expected_bytes(x, source);
  s.rounds = pieces_in(s.bytes, spec.piece_bytes);
  s.cells = s.filled = 0;
  if (post.way == Way::nothing || spec.use == Use::wait) {
    note_length(x, s.bytes, 0);
    s.way = Way::nothing;
    s.taken = kAllTaken;
    s.bytes = 0;
    return spec.use != Use::combine;
  }
  if (post.way == Way::payload) return resolve_payload(x, s, post);
  const int position = x.member(source);
  const Post::Place place = post.place;
  std::uint64_t shown = place.bytes;
  std::uint64_t after_table = 0;
  TableEntry entry{};
  if (post.table) {
    x.read.irregular = true;
    after_table = table_bytes(shape_.size);
    const std::uint64_t slot_bytes = channel_.slot_bytes();
    if (place.offset > slot_bytes || after_table > slot_bytes - place.offset) return false;
    const std::byte* const table = channel_.slot(position) + place.offset;
    entry = reinterpret_cast<const TableEntry*>(table)[x.seat.me];
    shown = entry.bytes;
  }
  if (!settle_length(x, s, shown)) return false;
  s.rounds = pieces_in(s.bytes, spec.piece_bytes);
  if (post.way == Way::message) return carrier_ != nullptr && spec.use == Use::copy;
  if (post.way != Way::direct) return resolve_cells(x, source, post, after_table);
  std::uint64_t offset = place.offset;
  if (post.table) {
    offset = entry.offset;
  } else if (spec.content == Content::each) {
    // Of reductions all members have the same places; of others with places of their own the post
    // tells the block itself.
    const Blocks& out = x.part.out;
    const bool same_places = spec.use == Use::combine && out.offsets != nullptr;
    offset += same_places ? out.offset(x.seat.me)
                          : static_cast<std::uint64_t>(x.seat.me) * place.block_bytes;
  }
  const ReachFile& reach = reach_[static_cast<std::size_t>(position)];
  if (reach.start == nullptr || offset > reach.bytes || s.bytes > reach.bytes - offset) {
    return false;
  }
  s.start = reach.start + offset;
  if (post.awaits_readers) x.read.tell(Reading::Tells::end);
  return true;
}

bool Reader::resolve_payload(Exchange& x, Shown& s, const Post& post) {
  const std::uint64_t shown = post.payload_bytes;
  std::uint64_t at = x.part.share_at;
  if (x.spec.content == Content::each) {
    at = x.seat.size > 2 ? static_cast<std::uint64_t>(x.seat.me) * shown : 0;
  }
  if (!settle_length(x, s, shown)) return false;
  s.start = post.payload + at;
  return at + s.bytes <= kInlineBytes;
}

bool Reader::resolve_cells(Exchange& x, int source, const Post& post, std::uint64_t after_table) {
  const Post::Place place = post.place;
  if (post.way != Way::cells || place.cells == 0) return false;
  Shown& s = x.read.shown[source];
  const std::uint64_t slot_bytes = channel_.slot_bytes();
  const std::uint64_t part = std::min(s.bytes, x.spec.piece_bytes);
  const bool each = x.spec.content == Content::each;
  const std::uint64_t at =
      each ? static_cast<std::uint64_t>(x.seat.me) * place.block_bytes : x.part.share_at;
  if (place.offset > slot_bytes || place.cell_bytes > slot_bytes || at + part > place.cell_bytes ||
      place.cells * place.cell_bytes > slot_bytes - place.offset ||
      after_table > slot_bytes - place.offset - place.cells * place.cell_bytes) {
    return false;
  }
  s.start = channel_.slot(x.member(source)) + place.offset + after_table + at;
  s.cell_bytes = place.cell_bytes;
  s.cells = place.cells;
  s.filled = place.filled;
  if (post.awaits_readers) x.read.tell(Reading::Tells::rounds);
  return true;
}

// Whether the source's piece of this round can be read.
bool Reader::available(Exchange& x, int source, std::uint32_t round) {
  if (!look(x, source)) return false;
  Shown& s = x.read.shown[source];
  if (s.way == Way::message) return arrived(x, source, s);
  if (s.way != Way::cells || round < s.filled || round >= s.rounds) return true;
  const int position = x.member(source);
  const std::uint32_t made = channel_.made_by(position, x.number);
  if (made != 0) s.filled = made;
  if (round < s.filled) return true;
  if (!x.read.content.waiting()) {
    x.read.content = channel_.pieces_of(position, x.number, round + 1);
  }
  return false;
}

// Whether the source's message is in its place.
bool Reader::arrived(Exchange& x, int source, Shown& s) {
  if (!s.expected) {
    s.expected = carrier_->receive(x.number, x.member(source), place_of(x, source), s.bytes);
  }
  return s.expected && carrier_->received(x.number);
}

// Copies what is there of this round; true when nothing of it is missing.
bool Reader::copy_round(Exchange& x) {
  bool complete = true;
  bool more = false;
  const Span sources = x.seat.sources;
  const int count = sources.last - sources.first;
  for (int k = 0; k < count; ++k) {
    // Readers begin at different sources, those of the same distance in turn.
    int source = x.seat.me + 1 + k;
    source = sources.first + (source - sources.first) % count;
    if (source == x.seat.me) continue;
    Shown& s = x.read.shown[source];
    if (s.taken > x.read.round) {
      more = more || s.taken != kAllTaken;
      continue;
    }
    if (expected_bytes(x, source) == 0 && x.spec.use != Use::wait) {
      s.taken = kAllTaken;
      continue;
    }
    if (!available(x, source, x.read.round)) {
      complete = false;
      continue;
    }
    if (s.taken == kAllTaken) continue;
    copy_shown(x, source, s);
    more = more || s.taken != kAllTaken;
  }
  if (!complete) return false;
  if (!more) x.read.round = x.read.rounds - 1;
  return true;
}

// This round's piece, or all of what lies in one place.
void Reader::copy_shown(Exchange& x, int source, Shown& s) {
  std::byte* const to = place_of(x, source);
  if (s.way == Way::cells) {
    const std::uint32_t round = x.read.round;
    const std::uint64_t position = round * x.spec.piece_bytes;
    if (position < s.bytes) {
      copy_out(shape_.tuning.far, to + position, s.start + (round % s.cells) * s.cell_bytes,
               std::min(x.spec.piece_bytes, s.bytes - position));
    }
    s.taken = round + 1 >= s.rounds ? kAllTaken : round + 1;
    return;
  }
  if (s.way == Way::direct) {
    copy_out(shape_.tuning.far, to, s.start, s.bytes);
    counters_.direct_bytes += s.bytes;
  } else if (s.way == Way::payload) {
    std::memcpy(to, s.start, s.bytes);
  }
  s.taken = kAllTaken;
}

// The own contribution to this member's share, from where the others see it if the result goes
// where it lies: blocks may be of different sizes.
const std::byte* Reader::own_share(const Exchange& x) const {
  const std::uint64_t at = x.part.share_at;
  if (!x.own_in_cells()) return x.part.out.base + at;
  if (x.show.way == Way::payload) return channel_.own_post(x.number).payload + at;
  return channel_.slot(shape_.me) + x.show.cell_offset(0) + at;
}

// This round's piece of the own contribution.
const std::byte* Reader::own_operand(const Exchange& x) const {
  const std::uint64_t position = x.read.round * x.spec.piece_bytes;
  if (x.part.takes_share) return own_share(x);
  if (x.spec.content == Content::same) return x.part.out.base + position;
  if (!x.own_in_cells() || x.show.way != Way::cells) return x.part.out.at(x.seat.me) + position;
  return channel_.slot(shape_.me) + x.show.cell_offset(x.read.round) +
         static_cast<std::uint64_t>(x.seat.me) * x.show.block_bytes;
}

// Combines a piece of all operands once all are there.
bool Reader::combine_round(Exchange& x) {
  const std::uint32_t round = x.read.round;
  const std::uint64_t position = round * x.spec.piece_bytes;
  const std::uint64_t bytes = std::min(x.spec.piece_bytes, x.part.in.total - position);
  std::size_t operands = 0;
  for (int i = x.seat.sources.first; i < x.seat.sources.last; ++i) {
    if (i == x.seat.me) {
      if (x.part.own_operand) operands_[operands++] = own_operand(x);
      continue;
    }
    if (!available(x, i, round)) return false;
    const Shown& s = x.read.shown[i];
    operands_[operands++] =
        s.start + (s.way == Way::cells ? (round % s.cells) * s.cell_bytes : position);
    if (s.way == Way::direct) counters_.direct_bytes += bytes;
  }
  const Combiner& combiner = *x.part.combiner;
  combiner.combine(x.read.into + position, operands_.data(), operands,
                   bytes / combiner.extent_bytes, aligned_scratch_);
  return true;
}

// Combines this member's slice of the results of all groups once they are there.
bool Reader::combine_groups(Exchange& x) {
  const GroupSlices& parts = x.spec.across;
  const int me = shape_.me;
  const std::uint64_t from = parts.final_each() * static_cast<std::uint64_t>(me);
  const std::uint64_t to = from + x.part.in.total;
  for (int i = 0; i < shape_.size; ++i) {
    if (i != me && parts.holds(i, from, to) && !available(x, i, 0)) return false;
  }
  const std::uint64_t most = shape_.piece_bytes(Content::same, shape_.size, parts.extent);
  const int groups = parts.groups->count();
  for (std::uint64_t at = from; at < to;) {
    std::uint64_t next = std::min(to, at + most);
    for (int group = 0; group < groups; ++group) {
      const int i = parts.holder(group, at);
      const std::byte* const start =
          i == me ? channel_.slot(me) + x.part.shown_at : x.read.shown[i].start;
      operands_[static_cast<std::size_t>(group)] = start + (at - parts.start(i));
      next = std::min(next, parts.start(i) + parts.bytes(i));
    }
    x.part.combiner->combine(x.read.into + (at - from), operands_.data(),
                             static_cast<std::size_t>(groups), (next - at) / parts.extent,
                             aligned_scratch_);
    at = next;
  }
  return true;
}

bool Reader::read_round(Exchange& x) {
  const Showing& show = x.show;
  Reading& read = x.read;
  // What this member shows lies where the result goes.
  if (x.part.overwrites && show.way == Way::cells && show.filled <= read.round &&
      !show.filled_all()) {
    return false;
  }
  read.content = {};
  look_at_all(x);
  const bool done = x.spec.use != Use::combine ? copy_round(x)
                    : x.spec.combines_groups() ? combine_groups(x)
                                               : combine_round(x);
  if (!done || broken_) return false;
  read.content = {};
  ++read.round;
  if (read.over()) {
    if (read.tells == Reading::Tells::nothing) return true;
    channel_.tell_read(x.number, kAllSteps);
    x.news.end = true;
    // A source may wait for this member alone before it goes on for the others.
    x.news.round = read.tells == Reading::Tells::rounds;
  } else if (read.tells == Reading::Tells::rounds) {
    channel_.tell_read(x.number, read.round);
    x.news.round = true;
  }
  return true;
}

}  // namespace od::coll::shm
