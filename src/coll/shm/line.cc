// Serving collectives of a line (line.h).
//
// The same words in the same order as an exchange: the bytes, the post, then its ticket (release);
// what the others show is read after their tickets (acquire); `completed` (release) comes last.

#include "coll/shm/line.h"

#include <cstring>

#include "base/pause.h"
#include "base/prefetch.h"
#include "coll/shm/waking.h"

namespace od::coll::shm {

LineServer::LineServer(Channel& channel, const TeamShape& shape)
    : channel_(channel), shape_(shape), operands_(static_cast<std::size_t>(shape.size)) {}

bool LineServer::serve(const Line& line, Patience patience) {
  // As an exchange it is one round.
  const std::uint64_t block = block_bytes(line);
  if (line.bytes > channel_.lanes().cell_bytes() ||
      (block != 0 ? block : line.bytes) > shape_.piece_bytes(line.content, shape_.size, 1)) {
    return false;
  }
  const Span readers = readers_of(line.pattern, line.root, shape_.me, shape_.size);
  Span sources = sources_of(line.pattern, line.root, shape_.me, shape_.size);
  // An empty share, or block.
  const bool one_block = line.use == Use::combine || line.pattern == Pattern::from_root;
  if (one_block && line.content != Content::signal && line.taken_bytes == 0) sources = {};
  if (readers.has_another_than(shape_.me)) {
    bool was_ahead = false;
    for (; !room_to_show(line); was_ahead = true) {
      const int late = channel_.owner_of(channel_.awaits_acknowledgement().word);
      if (late < 0 || !patience.another_look([&] { return channel_.away(late); })) return false;
    }
    if (was_ahead) leave_readers_alone(line);
    show(line);
    tell_readers(line, readers);
  }
  if (!lines_here(line, sources, patience)) return false;
  take(line, sources);
  complete();
  return true;
}

bool LineServer::room_to_show(const Line& line) {
  const std::uint64_t number = channel_.next();
  return way_of_line(line.bytes) == Way::cells ? channel_.cell_free(number)
                                               : channel_.post_free(number);
}

// Whoever is ahead of its readers would find one cell free at a time, and ask each time for the
// line that they tell it by, while they want to write it: between far cores that takes as long as
// the call itself. A few cells more are worth a moment. Without a core for each rank it is the
// readers'.
void LineServer::leave_readers_alone(const Line& line) const {
  constexpr int kLooks = 4;
  constexpr int kPauses = 32;  // about half a microsecond
  if (!channel_.wakes_at_once() || way_of_line(line.bytes) != Way::cells) return;
  const std::uint64_t later = channel_.next() + kLanes / 2;
  for (int look = 0; look < kLooks && !channel_.cell_seems_free(later); ++look) {
    for (int i = 0; i < kPauses; ++i) pause_processor();
  }
}

void LineServer::show(const Line& line) {
  const std::uint64_t number = channel_.next();
  Post& post = channel_.own_post(number);
  post.completed = channel_.completed_low();
  post.way = way_of_line(line.bytes);
  post.awaits_readers = post.table = false;
  post.payload_bytes = 0;
  if (post.way == Way::payload) {
    std::memcpy(post.payload, line.shown, line.bytes);
    post.payload_bytes = static_cast<std::uint8_t>(told_bytes(line));
  } else if (post.way == Way::cells) {
    const std::uint64_t at = channel_.lanes().cell_offset(number);
    std::byte* const cell = channel_.slot(shape_.me) + at;
    if (line.tabled) {
      fill_table(line, cell);
    } else {
      std::memcpy(cell, line.shown, line.bytes);
    }
    post.table = line.tabled;
    post.place = {at, told_bytes(line), channel_.lanes().cell_bytes(), block_bytes(line), 1, 1};
  }
  channel_.publish(number);
  shown_ahead_ = post.way;
  take_next_lines(line.bytes);
}

// As an exchange does where only the source knows its blocks.
void LineServer::fill_table(const Line& line, std::byte* cell) const {
  auto* const table = reinterpret_cast<TableEntry*>(cell);
  std::byte* to = cell + table_bytes(shape_.size);
  for (int i = 0; i < shape_.size; ++i, to += line.spacing) {
    const std::uint64_t bytes = i != shape_.me ? line.blocks->size(i) : 0;
    table[i] = {0, bytes};
    if (bytes != 0) std::memcpy(to, line.blocks->at(i), bytes);
  }
}

// Where ranks share cores whoever finds that nothing is missing wakes a reader, as after an
// exchange's post.
void LineServer::tell_readers(const Line& line, Span readers) {
  if (channel_.wakes_at_once()) {
    channel_.wake_for_post();
    return;
  }
  ExchangeSpec spec;
  spec.pattern = line.pattern;
  spec.root = line.root;
  channel_.order_for_sleepers();
  mark_readers(channel_, spec, {shape_.size, shape_.me, readers, {}}, channel_.next());
  channel_.wake_marked();
}

// The others read this lane's next lines when it was last used and still hold them: taken back
// while we wait, they do not have to be fetched when there is something to show.
void LineServer::take_next_lines(std::uint64_t bytes) {
  const std::uint64_t next = channel_.next() + 1;
  Post& post = channel_.own_post(next);
  prefetch_for_writing(&post);
  if (bytes <= kFirstLineBytes) return;
  if (bytes <= kInlineBytes) {
    prefetch_for_writing(post.payload + kFirstLineBytes);
    return;
  }
  const std::byte* const lines = channel_.slot(shape_.me) + channel_.lanes().cell_offset(next);
  for (std::uint64_t at = 0; at < bytes; at += kLineBytes) {
    prefetch_for_writing(lines + at);
  }
}

// Where everyone copies from many: one after the other, each line costs the whole way to its
// owner's cache. Reductions and a gather's root gain nothing by it (16 ranks: 0.97 and 0.86).
void LineServer::fetch_lines(const Line& line, Span sources) const {
  if (line.use != Use::copy || line.pattern != Pattern::everyone) return;
  if (sources.last - sources.first <= kFewSources) return;
  const std::uint64_t number = channel_.next();
  for (int i = sources.first; i < sources.last; ++i) {
    if (i == shape_.me || nothing_from(line, i)) continue;
    const Post& post = channel_.post(i, number);
    prefetch_for_reading(&post);
    if (line.tabled) {
      prefetch_for_reading(channel_.slot(i) + channel_.lanes().cell_offset(number) +
                           static_cast<std::size_t>(shape_.me) * sizeof(TableEntry));
      continue;
    }
    const std::uint64_t bytes = line.bytes_of(i);
    const std::uint64_t end = line.places != nullptr ? bytes : line.taken_at + line.taken_bytes;
    if (end <= kFirstLineBytes) continue;
    prefetch_for_reading(bytes <= kInlineBytes
                             ? post.payload + kFirstLineBytes
                             : channel_.slot(i) + channel_.lanes().cell_offset(number) +
                                   line.taken_at);
  }
}

// Whose posts do not wait for ours is usually some exchanges ahead: the line of one to come is
// fetched while this one is worked on. The next one's would come too late where cores are far apart
// (8 bytes by a root: 271 ns without, 130 so), and cells gain nothing.
void LineServer::fetch_later_post(const Line& line, int source) const {
  constexpr std::uint64_t kAhead = 2;
  const std::uint64_t bytes = line.bytes_of(source);
  if (line.pattern == Pattern::everyone || bytes > kInlineBytes || line.tabled) return;
  const Post& post = channel_.post(source, channel_.next() + kAhead);
  prefetch_for_reading(&post);
  if (bytes > kFirstLineBytes) prefetch_for_reading(post.payload + kFirstLineBytes);
}

// From far away the lines of a cell are asked for all at once: whatever reads them one by one waits
// longer than the processor's own prefetchers need to start.
void LineServer::fetch_cell(const Line& line, int source) const {
  const std::uint64_t bytes = line.bytes_of(source);
  if (bytes <= kInlineBytes || line.tabled) return;
  const std::uint64_t number = channel_.next();
  const std::byte* const cell =
      channel_.slot(source) + channel_.lanes().cell_offset(number) + line.taken_at;
  const std::uint64_t taken = line.places != nullptr ? bytes : line.taken_bytes;
  for (std::uint64_t at = 0; at < taken; at += kLineBytes) prefetch_for_reading(cell + at);
}

// As Team::awaited_member(); the first of these is missing.
const std::atomic<std::uint32_t>* LineServer::awaited_member(Span sources) const {
  for (int i = sources.first; i < sources.last; ++i) {
    if (i == shape_.me || channel_.has_posted(i, channel_.next())) continue;
    // A hint that orders nothing.
    if (channel_.away(i)->load(std::memory_order_relaxed) != 0) return channel_.away(i);
  }
  return channel_.away(sources.first);
}

// Nobody waits for empty blocks.
bool LineServer::nothing_from(const Line& line, int source) {
  return line.tabled && line.bytes_of(source) == 0;
}

// Whether the lines of all sources are there, and are what this member expects.
bool LineServer::lines_here(const Line& line, Span sources, Patience& patience) {
  const std::uint64_t number = channel_.next();
  fetch_lines(line, sources);
  for (int i = sources.first; i < sources.last; ++i) {
    if (i == shape_.me || nothing_from(line, i)) continue;
    const Post& post = channel_.post(i, number);
    const std::uint64_t expected = channel_.ticket(i, number);
    bool was_there = true;
    // Pairs with the release in Channel::publish().
    while (post.ticket.load(std::memory_order_acquire) != expected) {
      was_there = false;
      if (!patience.another_look([&] { return awaited_member({i, sources.last}); })) return false;
    }
    if (was_there) fetch_later_post(line, i);
    if (!as_expected(line, i, post)) return false;
    if (shape_.tuning.far) fetch_cell(line, i);
    channel_.note_completed(i, post.completed);
  }
  return true;
}

// False for what an Operation has to settle: lengths that disagree, and blocks that a member shows
// elsewhere, because it has taken the general way.
bool LineServer::as_expected(const Line& line, int source, const Post& post) const {
  const std::uint64_t bytes = line.bytes_of(source);
  if (line.tabled) return table_as_expected(bytes, source, post);
  if (post.way != way_of_line(bytes)) return false;
  const std::uint64_t told = line.places != nullptr ? bytes : told_bytes(line);
  if (post.way != Way::cells) return post.way == Way::nothing || post.payload_bytes == told;
  return post.place.offset == channel_.lanes().cell_offset(channel_.next()) &&
         post.place.bytes == told && post.place.block_bytes == block_bytes(line);
}

bool LineServer::table_as_expected(std::uint64_t bytes, int source, const Post& post) const {
  const std::uint64_t at = channel_.lanes().cell_offset(channel_.next());
  if (post.way != Way::cells || !post.table || post.place.offset != at) return false;
  const auto* const table = reinterpret_cast<const TableEntry*>(channel_.slot(source) + at);
  const auto members = static_cast<std::uint64_t>(shape_.size);
  return table[shape_.me].bytes == bytes && bytes <= post.place.block_bytes &&
         post.place.block_bytes <=
             (channel_.lanes().cell_bytes() - table_bytes(shape_.size)) / members;
}

void LineServer::take(const Line& line, Span sources) {
  const std::uint64_t number = channel_.next();
  const auto shown_by = [&](int i) -> const std::byte* {
    if (i == shape_.me) return line.own;
    if (line.tabled) {
      if (nothing_from(line, i)) return nullptr;
      return channel_.slot(i) + channel_.lanes().cell_offset(number) + table_bytes(shape_.size) +
             static_cast<std::uint64_t>(shape_.me) * channel_.post(i, number).place.block_bytes;
    }
    if (line.bytes_of(i) > kInlineBytes)
      return channel_.slot(i) + channel_.lanes().cell_offset(number) + line.taken_at;
    return channel_.post(i, number).payload + line.taken_at;
  };
  const auto copy = [](std::byte* to, const std::byte* from, std::uint64_t bytes) {
    if (to != nullptr && from != nullptr && to != from) std::memcpy(to, from, bytes);
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
                            line.taken_bytes / line.combiner.extent_bytes, nullptr);
      break;
    }
    case Use::copy:
      if (line.pattern == Pattern::from_root) {
        copy(line.into, shown_by(line.root), line.taken_bytes);
        break;
      }
      for (int i = sources.first; i < sources.last; ++i) {
        if (line.places != nullptr) {
          copy(line.places->at(i), shown_by(i), line.places->size(i));
        } else {
          copy(line.into + static_cast<std::uint64_t>(i) * line.taken_bytes, shown_by(i),
               line.taken_bytes);
        }
      }
      break;
  }
}

void LineServer::complete() {
  shown_ahead_.reset();
  channel_.begin();
  channel_.complete(channel_.next());
  channel_.wake_for_completed();
}

}  // namespace od::coll::shm
