// Half round trips of one message size in one shape:
//   usual    the same buffer, never written: what latency benchmarks do
//   rewrite  the sender writes all of its buffer before each send
//   app      the same, and the receiver reads all of what it got: what programs do
//   rotate   like usual with another buffer for each message
// A sample is the median of a few batches, so that a process that loses its core in one of them
// does not spoil it.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/clock.h"
#include "measure/pair.h"

namespace od::measure {
namespace {

constexpr std::size_t kRotatingBuffers = 16;
constexpr std::uint64_t kRotatingBytes = 32u << 20;
constexpr std::uint64_t kWarmUpRounds = 2;
constexpr std::size_t kBatches = 8;
constexpr std::uint64_t kMostRoundsPerBatch = 200;

struct Buffers {
  std::vector<std::span<unsigned char>> send;
  std::vector<std::span<unsigned char>> receive;
};

// One set for each size serves all shapes and paths, so that they differ in nothing else.
Buffers make_buffers(Pair& pair, std::uint64_t bytes, bool rotating) {
  Buffers buffers;
  const std::size_t count =
      rotating ? std::clamp<std::size_t>(kRotatingBytes / bytes, 2, kRotatingBuffers) : 1;
  for (std::size_t i = 0; i < count; ++i) {
    buffers.send.push_back(pair.allocate(bytes));
    buffers.receive.push_back(pair.allocate(bytes));
    write_all(buffers.send.back(), i);
    write_all(buffers.receive.back(), i);
  }
  return buffers;
}

class PingPong {
 public:
  PingPong(Pair& pair, Rank& rank, const std::string& shape, Buffers& buffers)
      : pair_(pair),
        rank_(rank),
        writes_(shape == "rewrite" || shape == "app"),
        reads_(shape == "app"),
        count_(shape == "rotate" ? buffers.send.size() : 1),
        buffers_(buffers) {}

  // Nanoseconds of a round trip in the median batch, as rank 0 sees them.
  double run_batches(std::uint64_t rounds) {
    std::array<double, kBatches> batches{};
    for (double& batch : batches) batch = run(rounds) / static_cast<double>(rounds);
    std::sort(batches.begin(), batches.end());
    return (batches[kBatches / 2 - 1] + batches[kBatches / 2]) / 2;
  }
  // Nanoseconds for `rounds` round trips.
  double run(std::uint64_t rounds) {
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < rounds; ++i) {
      if (pair_.me() == 0) {
        send();
        receive();
      } else {
        receive();
        send();
      }
      ++turn_;
    }
    return static_cast<double>(now_ns() - start);
  }

 private:
  void send() {
    std::span<unsigned char> data = buffers_.send[turn_ % count_];
    if (writes_) write_all(data, ++seed_);
    pair_.send(rank_, data);
  }
  void receive() {
    std::span<unsigned char> data = buffers_.receive[turn_ % count_];
    pair_.receive(rank_, data);
    if (reads_) sum_ = sum_ + read_all(data);
  }

  Pair& pair_;
  Rank& rank_;
  bool writes_;
  bool reads_;
  std::size_t count_;
  Buffers& buffers_;
  std::size_t turn_ = 0;
  std::uint64_t seed_ = 0;
  volatile std::uint64_t sum_ = 0;
};

}  // namespace

void run_ping_pong(Pair& pair, const Options& options) {
  Output output(pair, options);
  const bool rotating =
      std::find(options.shapes.begin(), options.shapes.end(), "rotate") != options.shapes.end();
  std::vector<Buffers> buffers;
  for (const std::uint64_t bytes : options.sizes_bytes) {
    buffers.push_back(make_buffers(pair, bytes, rotating));
  }
  const std::uint64_t start_ns = now_ns();
  const auto limit_ns = static_cast<std::uint64_t>(options.seconds * 1e9);
  const auto over = [&] {
    return pair.share(pair.stopped() || now_ns() - start_ns >= limit_ns ? 1 : 0) != 0;
  };
  // How long a round trip of each point took last time; by size, shape and path.
  const std::size_t shapes = options.shapes.size();
  const std::size_t paths = options.paths.size();
  std::vector<double> expected_ns(buffers.size() * shapes * paths);
  // The first round warms up everything (page tables, cells) and is not printed.
  for (std::uint64_t round = 0;; ++round) {
    for (std::size_t point = 0; point < buffers.size() * shapes; ++point) {
      if (over()) return output.flush();
      const std::size_t size = point / shapes;
      const std::string& shape = options.shapes[point % shapes];
      for (std::size_t turn = 0; turn < paths; ++turn) {
        // Each path comes first as often as last: what its predecessor left in the caches counts.
        const std::size_t path = (turn + round) % paths;
        double& expected = expected_ns[point * paths + path];
        const double before_ns = pair.probe_line_ns();
        PingPong test(pair, pair.rank(path), shape, buffers[size]);
        test.run(kWarmUpRounds);
        std::uint64_t rounds = 1;
        if (round > 0) {
          rounds = std::clamp<std::uint64_t>(
              static_cast<std::uint64_t>(static_cast<double>(options.sample_ns) /
                                         (kBatches * expected)),
              1, kMostRoundsPerBatch);
        }
        const std::uint64_t agreed = pair.share(rounds);
        const double round_trip_ns = test.run_batches(agreed);
        const double after_ns = pair.probe_line_ns();
        expected = round_trip_ns;
        if (round == 0) continue;
        output.print({"pingpong", path_name(options.paths[path]), shape.c_str(),
                      options.sizes_bytes[size], 0, before_ns, after_ns, round_trip_ns / 2,
                      static_cast<double>(agreed * kBatches)});
      }
    }
    output.flush();
  }
}

}  // namespace od::measure
