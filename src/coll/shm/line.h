// A collective whose contributions fit a post or the few lines of its lane's own cell,
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
#include <vector>

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

  bool another_look() {
    if (interrupt != nullptr && interrupt->load(std::memory_order_relaxed) != 0) return false;
    return --looks >= 0;
  }
};

struct Line {
  Pattern pattern = Pattern::everyone;
  Content content = Content::signal;  // `each` in teams of two only
  Use use = Use::wait;
  int root = 0;
  // What this member shows, if it shows anything: with `each` the other's block.
  const std::byte* shown = nullptr;
  std::uint64_t bytes = 0;  // of every contribution
  // Where the blocks go, the first member's first and one after the other (copy), or the result
  // (combine). Null: this member gets nothing.
  std::byte* into = nullptr;
  // This member's own contribution: an operand, or copied to its place. Null: it is there already,
  // or no operand (exscan).
  const std::byte* own = nullptr;
  Combiner combiner;
};

// Where a line's bytes go: into the post, or into the cell that belongs to the lane.
constexpr Way way_of_line(std::uint64_t bytes) {
  if (bytes == 0) return Way::nothing;
  return bytes <= kInlineBytes ? Way::payload : Way::cells;
}
constexpr std::uint64_t line_offset(std::uint64_t number) {
  return kLinesOffset + number % kLanes * kLinesBytes;
}

// Serves lines as the channel's next exchange, while no other is under way.
class LineServer {
 public:
  LineServer(Channel& channel, const TeamShape& shape);

  // All at once, or false: the call has to be the next exchange, whose post may be there already.
  bool serve(const Line& line, Patience patience);
  // Whether the exchange that begins next has been shown by a line; forgotten when asked.
  bool take_shown_ahead() {
    const bool ahead = shown_ahead_;
    shown_ahead_ = false;
    return ahead;
  }

 private:
  void show(const Line& line);
  void tell_readers(const Line& line, Span readers);
  void take_next_lines(std::uint64_t bytes);
  void fetch_lines(const Line& line, Span sources) const;
  bool lines_here(const Line& line, Span sources, Patience patience);
  bool as_expected(const Line& line, const Post& post) const;
  void take(const Line& line, Span sources);
  void complete();

  Channel& channel_;
  const TeamShape& shape_;
  std::vector<const std::byte*> operands_;
  bool shown_ahead_ = false;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_LINE_H_
