// Which way a message of some KiB or more takes from the sender's buffer to the receiver's.
//
// Every way carries every message that it can reach at all, so the choice is about speed only. What
// is best depends on the size, on whether the two cores share a cache, and on whether the sender
// rewrites its buffer between sends; the thresholds are settings, one set per distance class
// (docs/design/calibration.md tells where the values come from). They say what a rank begins with;
// from there it learns (path_choice.h).
#ifndef OVERDRIVE_P2P_COPY_PLAN_H_
#define OVERDRIVE_P2P_COPY_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "config/settings.h"

namespace od::p2p {

// What the sender offers.
enum class Path : std::uint8_t {
  cells,        // copy in, copy out, piece by piece
  pull,         // the receiver reads the sender's buffer through shared memory
  cooperative,  // the same, and the sender helps by writing parts of it into the receiver's buffer
  push,         // cells until the receiver has come, then straight into its buffer
  kernel,       // the receiver reads the sender's buffer with process_vm_readv
};

class CopyPlan {
 public:
  explicit CopyPlan(const config::Settings& settings)
      : forced_(settings.copy_path),
        near_{settings.near_pull_min_bytes, settings.near_pull_rewritten_min_bytes,
              settings.near_cooperative_min_bytes, settings.near_push_min_bytes,
              settings.near_kernel_min_bytes},
        far_{settings.far_pull_min_bytes, settings.far_pull_rewritten_min_bytes,
             settings.far_cooperative_min_bytes, settings.far_push_min_bytes,
             settings.far_kernel_min_bytes} {
    floor_bytes_ = std::min(near_.smallest(), far_.smallest());
    if (forced_ != config::CopyPath::kAuto) floor_bytes_ = kForcedMinBytes;
    if (forced_ == config::CopyPath::kCells) floor_bytes_ = ~std::uint64_t{0};
  }

  // Messages below this size always travel through boxes and cells: nobody need ask.
  std::uint64_t floor_bytes() const { return floor_bytes_; }

  // False: one path is forced.
  bool chooses() const { return forced_ == config::CopyPath::kAuto; }

  // Whether the choice depends on `rewritten`, which costs a look at the buffer.
  bool wants_guess(std::uint64_t bytes, bool far) const {
    const Row& row = far ? far_ : near_;
    return forced_ == config::CopyPath::kAuto && bytes >= row.pull_min_bytes &&
           bytes < row.pull_rewritten_min_bytes;
  }

  // `reachable`: the receiver can map the sender's buffer.
  Path choose(std::uint64_t bytes, bool far, bool reachable, bool rewritten) const {
    switch (forced_) {
      case config::CopyPath::kAuto:
        break;
      case config::CopyPath::kCells:
        return Path::cells;
      case config::CopyPath::kPull:
        return reachable ? Path::pull : Path::cells;
      case config::CopyPath::kPush:
        return Path::push;
      case config::CopyPath::kCooperative:
        return reachable ? Path::cooperative : Path::cells;
      case config::CopyPath::kKernel:
        return Path::kernel;
    }
    const Row& row = far ? far_ : near_;
    if (reachable) {
      const std::uint64_t pull_min = rewritten ? row.pull_rewritten_min_bytes : row.pull_min_bytes;
      if (bytes >= pull_min) {
        return bytes >= row.cooperative_min_bytes ? Path::cooperative : Path::pull;
      }
    }
    if (bytes >= row.push_min_bytes) return Path::push;
    if (!reachable && bytes >= row.kernel_min_bytes) return Path::kernel;
    return Path::cells;
  }

 private:
  struct Row {
    std::uint64_t pull_min_bytes;            // of a buffer that is sent again unchanged
    std::uint64_t pull_rewritten_min_bytes;  // of any other
    std::uint64_t cooperative_min_bytes;     // of what is pulled
    std::uint64_t push_min_bytes;
    std::uint64_t kernel_min_bytes;  // of what cannot be mapped
    std::uint64_t smallest() const {
      return std::min({pull_min_bytes, pull_rewritten_min_bytes, push_min_bytes, kernel_min_bytes});
    }
  };
  // Below it even a forced path is not taken: the message fits the line that would describe it.
  static constexpr std::uint64_t kForcedMinBytes = 64;

  config::CopyPath forced_;
  Row near_;
  Row far_;
  std::uint64_t floor_bytes_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_COPY_PLAN_H_
