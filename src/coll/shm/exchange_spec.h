// What an exchange between the members of a team is: some of them show bytes, some of them copy or
// combine what they are shown. Every collective inside a node is one exchange or a sequence of
// them.
//
// A description does not change while the exchange is under way; where it stands is in exchange.h.
// ExchangeSpec is the same for all who take part, so that each member knows of the others who reads
// whom; ExchangePart is what one of them brings to it and wants of it.
#ifndef OVERDRIVE_COLL_SHM_EXCHANGE_SPEC_H_
#define OVERDRIVE_COLL_SHM_EXCHANGE_SPEC_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/shm/combiner.h"
#include "coll/shm/groups.h"

namespace od::coll::shm {

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

// How many rounds a block takes.
constexpr std::uint32_t pieces_in(std::uint64_t bytes, std::uint64_t piece_bytes) {
  return static_cast<std::uint32_t>((bytes + piece_bytes - 1) / piece_bytes);
}

// The same for all who take part.
struct ExchangeSpec {
  Pattern pattern = Pattern::everyone;
  Content content = Content::signal;
  Use use = Use::wait;
  int root = 0;
  std::uint64_t piece_bytes = 1;  // of a block, per round; elements are never cut
  // Who takes part, by position in ascending order; null: the whole team. What follows counts those
  // who take part: root, readers, sources, and blocks are numbered by place in this list.
  const std::vector<int>* circle = nullptr;
  // The sources are results of groups, and each member combines its slice of them.
  GroupSlices across;

  bool rooted() const { return pattern == Pattern::from_root || pattern == Pattern::to_root; }
  bool combines_groups() const { return across.groups != nullptr; }
  // The position of one who takes part.
  int member(int i) const { return circle == nullptr ? i : (*circle)[static_cast<std::size_t>(i)]; }
};

// What a member's block has been before it is shown.
enum class Origin : std::uint8_t {
  program,      // bytes of the program
  result,       // combined just now, in the program's buffer
  kept_result,  // combined just now, in the own slot (ExchangePart::shown_at)
};

// A result that is put into the own slot, because an exchange to come shows it there.
struct KeptResult {
  std::uint64_t* at = nullptr;    // told where it lies, from the slot's start; null: not kept
  std::uint32_t shown_later = 0;  // so many exchanges
  bool wanted() const { return at != nullptr; }
};

// One member's part.
//
// The flags are independent of each other: an alltoallv in place has two of them.
struct ExchangePart {
  Blocks out;  // `same`: base and total
  Blocks in;   // from_root, and combine: base and total; a kept result has no base
  Origin origin = Origin::program;  // of `out`
  std::uint64_t shown_at = 0;       // kept_result: from the slot's start
  KeptResult keep;                  // of `in`
  // Blocks of which only the source knows where they are.
  bool own_places = false;
  // The result overwrites what this member shows: shown through cells, filled before it is read.
  bool overwrites = false;
  const Combiner* combiner = nullptr;  // combine; has to stay where it is
  bool own_operand = false;            // combine: this member's own contribution is an operand
  // combine, `same`: of each contribution this member combines a share of `in.total` bytes, which
  // begins there. Whoever's is empty reads nothing, and tells nobody that it is through.
  bool takes_share = false;
  std::uint64_t share_at = 0;
  // A copy from this member to itself.
  struct {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::uint64_t bytes = 0;
  } own_copy;
};

// Whether this member finds its own contribution in its cells: where it lay may be overwritten.
inline bool own_in_cells(const ExchangeSpec& spec, const ExchangePart& part) {
  return part.overwrites && spec.use == Use::combine &&
         (spec.content == Content::each || part.takes_share);
}

// What an operation consists of, one exchange of it.
struct PlannedExchange {
  ExchangeSpec spec;
  ExchangePart part;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_EXCHANGE_SPEC_H_
