// One message at a time, with sender and receiver apart by a given time: how long the sender's call
// takes, and how long after the later of the two the message is there.
#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "measure/pair.h"

namespace od::measure {
namespace {

// From the agreement on a start to the start: both are back from the barrier by then.
constexpr std::uint64_t kHeadStartNs = 20'000;

std::uint64_t spin_until(std::uint64_t ns) {
  std::uint64_t now = now_ns();
  while (now < ns) now = now_ns();
  return now;
}

}  // namespace

void run_skew(Pair& pair, const Options& options) {
  Output output(pair, options);
  std::vector<std::span<unsigned char>> buffers;
  for (const std::uint64_t bytes : options.sizes_bytes) {
    buffers.push_back(pair.allocate(bytes));
    write_all(buffers.back(), 1);
  }
  const std::uint64_t start_ns = now_ns();
  const auto limit_ns = static_cast<std::uint64_t>(options.seconds * 1e9);
  std::uint64_t seed = 0;
  for (std::uint64_t round = 0;; ++round) {
    for (std::size_t size = 0; size < options.sizes_bytes.size(); ++size) {
      for (const std::int64_t delay_ns : options.delays_ns) {
        if (pair.share(pair.stopped() || now_ns() - start_ns >= limit_ns ? 1 : 0) != 0) {
          return output.flush();
        }
        for (std::size_t turn = 0; turn < options.paths.size(); ++turn) {
          const std::size_t path = (turn + round) % options.paths.size();
          const double before_ns = pair.probe_line_ns();
          Rank& rank = pair.rank(path);
          if (pair.sender()) write_all(buffers[size], ++seed);
          const std::uint64_t zero = pair.share(now_ns() + kHeadStartNs);
          const std::uint64_t own_delay =
              static_cast<std::uint64_t>(pair.sender() ? std::max<std::int64_t>(0, -delay_ns)
                                                       : std::max<std::int64_t>(0, delay_ns));
          const std::uint64_t began = spin_until(zero + own_delay);
          if (pair.sender()) {
            pair.send(rank, buffers[size]);
          } else {
            pair.receive(rank, buffers[size]);
          }
          const std::uint64_t ended = now_ns();
          const std::uint64_t receiver_began = pair.share_from_1(began);
          const std::uint64_t receiver_ended = pair.share_from_1(ended);
          const double after_ns = pair.probe_line_ns();
          if (round == 0) continue;
          output.print({"skew", path_name(options.paths[path]), "skew", options.sizes_bytes[size],
                        delay_ns, before_ns, after_ns, static_cast<double>(ended - began),
                        static_cast<double>(receiver_ended - std::max(began, receiver_began))});
        }
      }
    }
    output.flush();
  }
}

}  // namespace od::measure
