// Which way a message of some KiB or more takes from the sender's buffer to the receiver's.
//
// Every way carries every message that it can reach at all, so the choice is about speed only. What
// is best depends on the size, on whether the two cores share a cache, and on whether the sender
// rewrites its buffer between sends, or has not sent it before; the thresholds are settings, one
// set per distance class (docs/design/calibration.md tells where the values come from). They say
// what a rank begins with; from there it learns (path_choice.h).
#ifndef OVERDRIVE_P2P_COPY_PLAN_H_
#define OVERDRIVE_P2P_COPY_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "config/settings.h"
#include "memory/send_history.h"
#include "p2p/path/path.h"

namespace od::p2p {

class CopyPlan {
 public:
  explicit CopyPlan(const config::Settings& settings)
      : forced_(settings.copy_path), near_(settings, false), far_(settings, true) {
    for (const PathRow& row : kPathRows) {
      if (row.forced == forced_) forced_path_ = static_cast<Path>(&row - kPathRows);
    }
    floor_bytes_ = std::max(kLeastBytes, std::min(near_.smallest(), far_.smallest()));
    if (forced_ != config::CopyPath::kAuto) floor_bytes_ = kLeastBytes;
    if (forced_ == config::CopyPath::kCells) floor_bytes_ = ~std::uint64_t{0};
  }

  // Messages below this size always travel through boxes and cells: nobody need ask.
  std::uint64_t floor_bytes() const { return floor_bytes_; }

  // False: one path is forced.
  bool chooses() const { return forced_ == config::CopyPath::kAuto; }

  // Whether the choice depends on the buffer's use, which costs a look at it.
  bool wants_guess(std::uint64_t bytes, bool far) const {
    const Thresholds& least = far ? far_ : near_;
    return forced_ == config::CopyPath::kAuto && bytes >= least.pull_min_bytes &&
           bytes < least.pull_rewritten_min_bytes;
  }

  // `reachable`: the receiver can map the sender's buffer; only then `use` counts.
  Path choose(std::uint64_t bytes, bool far, bool reachable, memory::BufferUse use) const {
    if (forced_ != config::CopyPath::kAuto) {
      return reachable || !row_of(forced_path_).mapped ? forced_path_ : Path::cells;
    }
    const Thresholds& least = far ? far_ : near_;
    if (reachable && bytes >= least.pull_min_bytes_for(use)) {
      return bytes >= least.cooperative_min_bytes ? Path::cooperative : Path::pull;
    }
    if (bytes >= least.push_min_bytes_for(use)) return Path::push;
    if (!reachable && bytes >= least.kernel_min_bytes) return Path::kernel;
    return Path::cells;
  }

 private:
  struct Thresholds {  // the rows' min_bytes of one distance
    Thresholds(const config::Settings& settings, bool far)
        : pull_min_bytes(settings.*row_of(Path::pull).min_bytes[far ? 1 : 0]),
          pull_rewritten_min_bytes(settings.*row_of(Path::pull).rewritten_min_bytes[far ? 1 : 0]),
          cooperative_min_bytes(settings.*row_of(Path::cooperative).min_bytes[far ? 1 : 0]),
          push_min_bytes(settings.*row_of(Path::push).min_bytes[far ? 1 : 0]),
          push_received_min_bytes(far ? push_min_bytes : ~std::uint64_t{0}),
          kernel_min_bytes(settings.*row_of(Path::kernel).min_bytes[far ? 1 : 0]) {}

    // Who rewrites a part of a buffer pays for that part only when the peer reads it: some lines,
    // too many of the shortest messages (4 KiB, far: 0.87 us through cells, 0.95 read). Of what was
    // not sent before no line has gone to and fro, so copying it once is better than twice as soon
    // as both can take part. Measured, a line 60 ns, half a round trip in us, cells and
    // cooperative: an eighth rewritten, 128 KiB 5.1 and 3.2, 256 KiB 9.6 and 6.8; fresh, 13.2 and
    // 11.4, 25.6 and 22.6; received and sent back, 4.0 and 8.2, 7.2 and 11.8.
    std::uint64_t pull_min_bytes_for(memory::BufferUse use) const {
      switch (use) {
        case memory::BufferUse::unchanged:
          return pull_min_bytes;
        case memory::BufferUse::partly:
          return 2 * pull_min_bytes;
        case memory::BufferUse::fresh:
          return std::max(pull_min_bytes,
                          std::min(pull_rewritten_min_bytes, cooperative_min_bytes));
        case memory::BufferUse::rewritten:
        case memory::BufferUse::received:
          break;
      }
      return pull_rewritten_min_bytes;
    }
    std::uint64_t pull_min_bytes;            // of a buffer that is sent again unchanged
    std::uint64_t pull_rewritten_min_bytes;  // of any other
    std::uint64_t cooperative_min_bytes;     // of what is pulled
    // Near, the lines of what has come in a frame are in this core's cache, and it goes back in the
    // frame: 512 KiB received and sent back take 17 us so, 41 pushed.
    std::uint64_t push_min_bytes_for(memory::BufferUse use) const {
      return use == memory::BufferUse::received ? push_received_min_bytes : push_min_bytes;
    }
    std::uint64_t push_min_bytes;
    std::uint64_t push_received_min_bytes;
    std::uint64_t kernel_min_bytes;  // of what cannot be mapped
    std::uint64_t smallest() const {
      return std::min({pull_min_bytes, pull_rewritten_min_bytes, push_min_bytes, kernel_min_bytes});
    }
  };
  // Below it no path is taken, not even a forced one, whatever the thresholds are: the message fits
  // the line that would describe it. (And there is nothing to see of so few bytes, SendHistory.)
  static constexpr std::uint64_t kLeastBytes = 64;

  config::CopyPath forced_;
  Path forced_path_ = Path::cells;
  Thresholds near_;
  Thresholds far_;
  std::uint64_t floor_bytes_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_COPY_PLAN_H_
