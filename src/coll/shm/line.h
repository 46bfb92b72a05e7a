// A collective whose contributions fit a post or a cell of a few lines,
// and that is waited for at once.
//
// On the wire it is the single exchange that the same collective is as an Operation, so members may
// take either way. What it saves is the state of an exchange: whoever calls shows its line, looks
// for those of the others, and computes. If they stay away, the call goes on as an Operation whose
// post is there already.
#ifndef OVERDRIVE_COLL_SHM_LINE_H_
#define OVERDRIVE_COLL_SHM_LINE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/pause.h"
#include "base/round.h"
#include "coll/shm/channel.h"
#include "coll/shm/combiner.h"
#include "coll/shm/exchange_spec.h"
#include "coll/shm/slot_layout.h"
#include "coll/shm/team_shape.h"

namespace od::coll::shm {

// How often to look for what the others show before giving up.
struct Patience {
  int looks = 0;
  // Gives up at once while this is not 0 (a hint, read relaxed); null: nothing interrupts.
  const std::atomic<std::uint32_t>* interrupt = nullptr;
  // After those looks: does something else until it is worth another one, given the word by which
  // the missing member says that it has given its core away; false: gives up. Null: gives up.
  bool (*meanwhile)(void* context, const std::atomic<std::uint32_t>& away) = nullptr;
  void* context = nullptr;

  // `awaited` finds the word of the missing member.
  template <typename Awaited>
  bool another_look(Awaited&& awaited) {
    if (interrupt != nullptr && interrupt->load(std::memory_order_relaxed) != 0) return false;
    if (looks > 0) {
      --looks;
      pause_processor();
      return true;
    }
    return meanwhile != nullptr && meanwhile(context, *awaited());
  }
};

// From one block behind a table to the next, if the longest one has so many bytes.
constexpr std::uint64_t table_spacing(std::uint64_t longest) {
  constexpr std::uint64_t kAlignment = 8;
  return round_up(longest, kAlignment);
}

struct Line {
  Pattern pattern = Pattern::everyone;
  Content content = Content::signal;
  Use use = Use::wait;
  int root = 0;
  // What this member shows, if it shows anything: with `each` the other's block, of more than two
  // members all blocks.
  const std::byte* shown = nullptr;
  std::uint64_t bytes = 0;  // of every contribution, as it is shown; with `places` of the own one
  // `each`, between more than two, of different lengths: what is shown is a table and the blocks
  // behind it, which are this member's if it shows any (it has to stay where it is); no `shown`.
  bool tabled = false;
  const Blocks* blocks = nullptr;
  std::uint64_t spacing = 0;  // from one of these to the next: no less than the longest one's bytes
  // What this member takes of each that it is shown: all of it, or its block.
  std::uint64_t taken_at = 0;
  std::uint64_t taken_bytes = 0;
  // Where what is taken goes, the first member's first and one after the other (copy), or the
  // result (combine). Null: this member gets nothing.
  std::byte* into = nullptr;
  // Copy, everyone or to_root: where each contribution goes instead, and how long it is, where
  // members show different lengths; it has to stay where it is.
  const Blocks* places = nullptr;
  // What this member takes of its own contribution: an operand, or copied to its place. Null: it is
  // there already, or no operand (exscan).
  const std::byte* own = nullptr;
  Combiner combiner;

  std::uint64_t bytes_of(int source) const {
    if (places != nullptr) return places->size(source);
    return tabled ? taken_bytes : bytes;
  }
  // Describes `blocks` of so many members; 0 if all but the own one are empty.
  std::uint64_t tabled_bytes(int members) const {
    if (spacing == 0) return 0;
    return table_bytes(members) + static_cast<std::uint64_t>(members) * spacing;
  }
};

// Where a line's bytes go: into the post, or into a cell.
constexpr Way way_of_line(std::uint64_t bytes) {
  if (bytes == 0) return Way::nothing;
  return bytes <= kInlineBytes ? Way::payload : Way::cells;
}

// Serves lines as the channel's next exchange, while no other is under way.
class LineServer {
 public:
  LineServer(Channel& channel, const TeamShape& shape);

  // All at once, or false: the call has to be the next exchange, whose post may be there already.
  bool serve(const Line& line, Patience patience);
  // Where the exchange that begins next has been shown by a line, if it has; forgotten when asked.
  std::optional<Way> take_shown_ahead() { return std::exchange(shown_ahead_, std::nullopt); }

 private:
  bool room_to_show(const Line& line);
  void leave_readers_alone(const Line& line) const;
  void show(const Line& line);
  void fill_table(const Line& line, std::byte* cell) const;
  void tell_readers(const Line& line, Span readers);
  void take_next_lines(std::uint64_t bytes);
  void fetch_lines(const Line& line, Span sources) const;
  void fetch_cell(const Line& line, int source) const;
  void fetch_later_post(const Line& line, int source) const;
  bool lines_here(const Line& line, Span sources, Patience& patience);
  const std::atomic<std::uint32_t>* awaited_member(Span sources) const;
  static bool nothing_from(const Line& line, int source);
  bool as_expected(const Line& line, int source, const Post& post) const;
  bool table_as_expected(std::uint64_t bytes, int source, const Post& post) const;
  // Of blocks that a member shows to each of several others; 0: it shows all of them the same.
  std::uint64_t block_bytes(const Line& line) const {
    if (line.tabled) return line.spacing;
    if (line.content != Content::each || shape_.size == 2) return 0;
    return line.bytes / static_cast<std::uint64_t>(shape_.size);
  }
  // Of the block that each reader is shown.
  std::uint64_t told_bytes(const Line& line) const {
    const std::uint64_t block = block_bytes(line);
    return block != 0 ? block : line.bytes;
  }
  void take(const Line& line, Span sources);
  void complete();

  Channel& channel_;
  const TeamShape& shape_;
  std::vector<const std::byte*> operands_;
  std::optional<Way> shown_ahead_;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_LINE_H_
