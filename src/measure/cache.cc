// How much of the receiver's working set is still in its caches after a message.
//
// The receiver goes round its working set in random order, one line after the other, until it is
// warm; then comes the message; then it goes round once more and that is timed. Beside the paths
// there are two rows for comparison: "none" (a message of 8 bytes) and "flushed" (every line of the
// working set has been thrown out).
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/clock.h"
#include "base/line_sizes.h"
#include "measure/pair.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace od::measure {
namespace {

// Lines that point to each other in one random circle.
class WorkingSet {
 public:
  explicit WorkingSet(std::uint64_t bytes) : lines_(bytes / kLineBytes) {
    std::vector<std::uint32_t> order(lines_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin() + 1, order.end(), std::mt19937(7));
    for (std::size_t i = 0; i < order.size(); ++i) {
      lines_[order[i]].next = order[(i + 1) % order.size()];
    }
  }
  double round_ns() {
    const std::uint64_t start = now_ns();
    std::uint32_t at = 0;
    for (std::size_t i = 0; i < lines_.size(); ++i) at = lines_[at].next;
    last_ = at;  // so that the loop is not left out
    return static_cast<double>(now_ns() - start);
  }
  void flush() {
#if defined(__x86_64__)
    for (const Line& line : lines_) _mm_clflush(&line);
    _mm_mfence();
#endif
  }

 private:
  struct alignas(kLineBytes) Line {
    std::uint32_t next = 0;
  };
  std::vector<Line> lines_;
  volatile std::uint32_t last_ = 0;
};

}  // namespace

void run_cache(Pair& pair, const Options& options) {
  Output output(pair, options);
  constexpr int kWarmRounds = 3;
  const auto small = pair.allocate(8);
  std::vector<std::span<unsigned char>> buffers;
  for (const std::uint64_t bytes : options.sizes_bytes) {
    buffers.push_back(pair.allocate(bytes));
    write_all(buffers.back(), 1);
  }
  std::vector<WorkingSet> sets;
  for (const std::uint64_t bytes : options.working_sets_bytes) sets.emplace_back(bytes);
  const std::uint64_t start_ns = now_ns();
  const auto limit_ns = static_cast<std::uint64_t>(options.seconds * 1e9);
  std::uint64_t seed = 0;
  // Rows: the paths, then "none" and "flushed" over the first path.
  const std::size_t paths = options.paths.size();
  for (std::uint64_t round = 0;; ++round) {
    for (std::size_t set = 0; set < sets.size(); ++set) {
      for (std::size_t size = 0; size < buffers.size(); ++size) {
        if (pair.share(pair.stopped() || now_ns() - start_ns >= limit_ns ? 1 : 0) != 0) {
          return output.flush();
        }
        for (std::size_t row = 0; row < paths + 2; ++row) {
          const bool plain = row >= paths;
          const double before_ns = pair.probe_line_ns();
          Rank& rank = pair.rank(plain ? 0 : row);
          const auto data = plain ? small : buffers[size];
          double warm_ns = 0;
          double after_message_ns = 0;
          if (pair.sender()) {
            write_all(data, ++seed);
          } else {
            for (int i = 0; i < kWarmRounds; ++i) warm_ns = sets[set].round_ns();
            if (row == paths + 1) sets[set].flush();
          }
          pair.barrier();
          if (pair.sender()) {
            pair.send(rank, data);
          } else {
            pair.receive(rank, data);
            after_message_ns = sets[set].round_ns();
          }
          warm_ns = static_cast<double>(pair.share_from_1(static_cast<std::uint64_t>(warm_ns)));
          after_message_ns =
              static_cast<double>(pair.share_from_1(static_cast<std::uint64_t>(after_message_ns)));
          const double after_ns = pair.probe_line_ns();
          if (round == 0) continue;
          const char* name = !plain         ? path_name(options.paths[row])
                             : row == paths ? "none"
                                            : "flushed";
          output.print({"cache", name, "cache", options.sizes_bytes[size],
                        static_cast<std::int64_t>(options.working_sets_bytes[set]), before_ns,
                        after_ns, after_message_ns, warm_ns});
        }
      }
    }
    output.flush();
  }
}

}  // namespace od::measure
