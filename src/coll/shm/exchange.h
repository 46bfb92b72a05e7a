// One exchange between the members of a team: some of them show bytes, some of them copy or combine
// what they are shown. Every collective inside a node is one exchange or a sequence of them.
//
// This is the state of one member's part; Team drives it. All members give an exchange the same
// pattern, content, use and piece size.
#ifndef OVERDRIVE_COLL_SHM_EXCHANGE_H_
#define OVERDRIVE_COLL_SHM_EXCHANGE_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/shm/combiner.h"
#include "coll/shm/groups.h"
#include "coll/shm/slot_layout.h"

namespace od::coll::shm {

class Operation;

// Who reads from whom.
enum class Pattern : std::uint8_t {
  everyone,   // each member from all others
  from_root,  // all others from the root
  to_root,    // the root from all others
  before,     // each member from those at lower positions
};

// What a source shows.
enum class Content : std::uint8_t {
  signal,  // that it has come
  same,    // one block, to all its readers
  each,    // one block for each reader
};

enum class Use : std::uint8_t { wait, copy, combine };

// Blocks of a buffer, one per position: of equal size (the last ones cut off at `total`), or
// wherever the arrays say.
struct Blocks {
  std::byte* base = nullptr;
  std::uint64_t each = 0;
  std::uint64_t total = 0;  // bytes from base to the end of the last block, unless there are arrays
  const std::int64_t* offsets = nullptr;  // bytes from base; both arrays or none
  const std::int64_t* sizes = nullptr;

  std::uint64_t offset(int i) const {
    return offsets != nullptr ? static_cast<std::uint64_t>(offsets[i])
                              : static_cast<std::uint64_t>(i) * each;
  }
  std::byte* at(int i) const { return base + static_cast<std::int64_t>(offset(i)); }
  std::uint64_t size(int i) const {
    if (sizes != nullptr) return static_cast<std::uint64_t>(sizes[i]);
    const std::uint64_t start = static_cast<std::uint64_t>(i) * each;
    return start >= total ? 0 : std::min(each, total - start);
  }
};

inline const std::byte* bytes_of(const void* address) {
  return static_cast<const std::byte*>(address);
}
inline std::byte* bytes_of(void* address) { return static_cast<std::byte*>(address); }
// Sources are not written, but one type serves both directions.
inline std::byte* source_of(const void* address) {
  return const_cast<std::byte*>(bytes_of(address));
}

inline Blocks one_block(std::byte* base, std::uint64_t bytes) {
  Blocks blocks;
  blocks.base = base;
  blocks.each = blocks.total = bytes;
  return blocks;
}

// A range of those who take part.
struct Span {
  int first = 0;
  int last = 0;  // the one after the last
  bool has(int i) const { return i >= first && i < last; }
  bool has_another_than(int i) const { return last - first > (has(i) ? 1 : 0); }
};

// Who reads what the one at `position` of `size` shows, and whose contributions it uses. Either may
// include the position itself, which shows itself nothing: whoever walks the range passes it over,
// or takes its own contribution there.
inline Span readers_of(Pattern pattern, int root, int position, int size) {
  switch (pattern) {
    case Pattern::everyone:
      return {0, size};
    case Pattern::from_root:
      return position == root ? Span{0, size} : Span{};
    case Pattern::to_root:
      return position == root ? Span{} : Span{root, root + 1};
    case Pattern::before:
      return {position + 1, size};
  }
  return {};
}
inline Span sources_of(Pattern pattern, int root, int position, int size) {
  switch (pattern) {
    case Pattern::everyone:
      return {0, size};
    case Pattern::from_root:
      return position == root ? Span{} : Span{root, root + 1};
    case Pattern::to_root:
      return position == root ? Span{0, size} : Span{};
    case Pattern::before:
      return {0, position + 1};
  }
  return {};
}

// Waiting for a word of another member.
struct Awaited {
  const std::atomic<std::uint64_t>* word = nullptr;  // null: not waiting
  std::uint64_t at_least = 0;
  // Pairs with the release of whoever shows or acknowledges something by the word.
  bool here() const { return word == nullptr || word->load(std::memory_order_acquire) >= at_least; }
};

// What a source has shown to this member.
struct Shown {
  const std::byte* start = nullptr;  // of this member's block, or of its part of the first cell
  std::uint64_t bytes = 0;
  std::uint64_t cell_bytes = 0;
  std::uint32_t cells = 0;
  std::uint32_t filled = 0;  // pieces known to be there
  std::uint32_t rounds = 0;  // of this member's block
  std::uint32_t taken = 0;   // rounds that have been copied
  Way way = Way::nothing;
  bool seen = false;
};

struct Exchange {
  // --- What it is: the same for all who take part.
  Pattern pattern = Pattern::everyone;
  Content content = Content::signal;
  Use use = Use::wait;
  int root = 0;
  std::uint64_t piece_bytes = 1;  // of a block, per round; elements are never cut
  // Who takes part, by position in ascending order; null: the whole team. What follows counts those
  // who take part: root, readers, sources, and blocks are numbered by place in this list.
  const std::vector<int>* circle = nullptr;

  // --- This member's part.
  Blocks out;  // `same`: base and total
  Blocks in;   // from_root, and combine: base and total
  // Blocks of which only the source knows where they are.
  bool own_places = false;
  // Another size at each source (gatherv): `in` says what this member expects.
  const Combiner* combiner = nullptr;
  bool own_operand = false;  // combine: this member's own contribution is an operand
  // The result overwrites what this member shows: shown through cells, filled before it is read.
  bool overwrites = false;
  bool is_result = false;  // what is shown has just been combined
  // A copy from this member to itself.
  const std::byte* own_from = nullptr;
  std::byte* own_to = nullptr;
  std::uint64_t own_bytes = 0;
  // The block is a result that lies in the own slot already, at this offset.
  bool shows_result = false;
  std::uint64_t shown_at = 0;
  // The result is to be put there (in.base is then set by the team), to be shown so many exchanges
  // later; where is told to *result_at.
  bool keeps_result = false;
  std::uint32_t shown_later = 0;
  std::uint64_t* result_at = nullptr;

  // The sources are results of groups, and this member combines its slice of them.
  GroupSlices across;

  // --- State.
  Operation* operation = nullptr;
  std::uint64_t number = 0;
  int size = 0;  // how many take part
  int me = 0;
  Span readers, sources;  // may include this member itself
  Way way = Way::nothing;
  bool active = false, prepared = false, way_chosen = false, posted = false, own_done = false,
       drained = false;
  bool awaits_readers = false, told_end = false;
  bool turning = false;    // another root than that of the last exchange that had one
  bool irregular = false;  // a source's blocks are of different sizes, some of them may be empty
  bool must_tell_rounds = false, must_tell_end = false;
  // What has changed since sleepers were last looked for.
  bool news_post = false, news_made = false, news_round = false, news_end = false;
  std::uint64_t ring_at = 0, ring_bytes = 0, table_bytes = 0;
  std::uint64_t cell_bytes = 0, block_bytes = 0;
  std::uint32_t cells = 0, filled = 0, rounds_out = 0;
  std::uint32_t round = 0, rounds_in = 0;
  int reader_cursor = 0, end_cursor = 0;
  std::uint64_t cursor_steps = 0;
  Awaited awaits_room, awaits_content;
  Shown* shown = nullptr;  // one per member

  // The position of one who takes part.
  int member(int i) const { return circle == nullptr ? i : (*circle)[static_cast<std::size_t>(i)]; }
  bool combines_groups() const { return across.groups != nullptr; }
  // Whether this member finds its own contribution in its cells: where it lay may be overwritten.
  bool own_in_cells() const {
    return overwrites && use == Use::combine && content == Content::each;
  }
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_EXCHANGE_H_
