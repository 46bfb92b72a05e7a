// Half round trips of one message size in one shape:
//   usual    the same buffer, never written: what latency benchmarks do
//   rewrite  the sender writes all of its buffer before each send
//   app      the same, and the receiver reads all of what it got: what programs do
//   rotate   like usual with another buffer for each message
//   fresh    like rewrite, each message from memory that has not been sent for long
//   echo     what has been received is sent back from where it is
//   update   the same, every word changed in between
//   accumulate  what has been received is added to another buffer, which is sent
//   partial  the sender writes an eighth of its buffer before each send
//   many     one buffer sent eight times, then a short answer
//   ring     both send at the same time what they have received last
//   halo     both exchange rows of a matrix at the same time, a derived datatype
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
constexpr std::uint64_t kFreshBytes = 64u << 20;
constexpr std::uint64_t kWarmUpRounds = 2;
constexpr std::size_t kBatches = 8;
constexpr std::uint64_t kMostRoundsPerBatch = 200;

// What a shape does, beside sending and receiving.
struct Pattern {
  const char* name;
  enum class Kind { dialogue, ring, halo, many } kind = Kind::dialogue;
  enum class Write { nothing, all, part, update, accumulate } write = Write::nothing;
  bool reads = false;
  bool rotates = false;
  bool in_place = false;  // it sends the buffer into which it receives
  bool fresh = false;
};

constexpr Pattern kPatterns[] = {
    {.name = "usual"},
    {.name = "rewrite", .write = Pattern::Write::all},
    {.name = "app", .write = Pattern::Write::all, .reads = true},
    {.name = "rotate", .rotates = true},
    {.name = "fresh", .write = Pattern::Write::all, .fresh = true},
    {.name = "echo", .in_place = true},
    {.name = "update", .write = Pattern::Write::update, .in_place = true},
    {.name = "accumulate", .write = Pattern::Write::accumulate},
    {.name = "partial", .write = Pattern::Write::part},
    {.name = "many", .kind = Pattern::Kind::many},
    {.name = "ring", .kind = Pattern::Kind::ring},
    {.name = "halo", .kind = Pattern::Kind::halo},
};

const Pattern& pattern_of(const std::string& shape) {
  return *std::find_if(std::begin(kPatterns), std::end(kPatterns),
                       [&](const Pattern& pattern) { return shape == pattern.name; });
}

struct Buffers {
  std::vector<std::span<unsigned char>> send;
  std::vector<std::span<unsigned char>> receive;
  std::span<unsigned char> area;  // for messages from fresh memory
  // The next of it, over all samples and paths: one that always began at the front would send the
  // same few places again and again.
  std::size_t next_fresh = 0;
};

// One set for each size serves all shapes and paths, so that they differ in nothing else.
Buffers make_buffers(Pair& pair, std::uint64_t bytes, bool rotating,
                     std::span<unsigned char> area) {
  Buffers buffers;
  buffers.area = area;
  const std::size_t count =
      rotating ? std::clamp<std::size_t>(kRotatingBytes / bytes, 2, kRotatingBuffers) : 1;
  for (std::size_t i = 0; i < count; ++i) {
    buffers.send.push_back(pair.allocate(bytes));
    buffers.receive.push_back(pair.allocate(bytes));
    write_all(buffers.send.back(), i);
    write_all(buffers.receive.back(), i + 1);
  }
  return buffers;
}

class PingPong {
 public:
  PingPong(Pair& pair, Rank& rank, const Pattern& pattern, Buffers& buffers)
      : pair_(pair), rank_(rank), pattern_(pattern), buffers_(buffers) {}

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
      round();
      ++turn_;
    }
    return static_cast<double>(now_ns() - start);
  }

 private:
  void round() {
    switch (pattern_.kind) {
      case Pattern::Kind::dialogue:
        if (pair_.me() == 0) {
          send();
          receive();
        } else {
          receive();
          send();
        }
        break;
      case Pattern::Kind::ring: {
        // What has come is passed on while the next comes.
        const bool odd = turn_ % 2 != 0;
        std::span<unsigned char> out = odd ? buffers_.receive[0] : buffers_.send[0];
        std::span<unsigned char> in = odd ? buffers_.send[0] : buffers_.receive[0];
        pair_.exchange(rank_, out, in);
        break;
      }
      case Pattern::Kind::halo:
        pair_.exchange_rows(rank_, buffers_.send[0]);
        break;
      case Pattern::Kind::many:
        // One buffer goes out again and again, as to many receivers.
        for (int i = 0; i < kManySends; ++i) {
          pair_.me() == 0 ? pair_.send(rank_, buffers_.send[0])
                          : pair_.receive(rank_, buffers_.receive[0]);
        }
        pair_.me() == 0 ? pair_.receive(rank_, buffers_.receive[0].first(kAnswerBytes))
                        : pair_.send(rank_, buffers_.send[0].first(kAnswerBytes));
        break;
    }
  }
  void send() {
    std::span<unsigned char> data =
        pattern_.in_place ? buffers_.receive[0] : buffers_.send[turn_ % count()];
    if (pattern_.fresh) {
      const std::size_t size = buffers_.send[0].size();
      data =
          buffers_.area.subspan(buffers_.next_fresh++ % (buffers_.area.size() / size) * size, size);
    }
    switch (pattern_.write) {
      case Pattern::Write::nothing:
        break;
      case Pattern::Write::all:
        write_all(data, ++seed_);
        break;
      case Pattern::Write::part: {
        const std::size_t part = std::max<std::size_t>(data.size() / 8, 8);
        write_all(data.subspan(turn_ % 8 * part % data.size(), part), ++seed_);
        break;
      }
      case Pattern::Write::update:
        add_all(data, data);
        break;
      case Pattern::Write::accumulate:
        add_all(data, buffers_.receive[0]);
        break;
    }
    pair_.send(rank_, data);
  }
  void receive() {
    std::span<unsigned char> data = buffers_.receive[turn_ % count()];
    pair_.receive(rank_, data);
    if (pattern_.reads) sum_ = sum_ + read_all(data);
  }
  std::size_t count() const { return pattern_.rotates ? buffers_.send.size() : 1; }

  static constexpr int kManySends = 8;
  static constexpr std::size_t kAnswerBytes = 8;

  Pair& pair_;
  Rank& rank_;
  const Pattern& pattern_;
  Buffers& buffers_;
  std::size_t turn_ = 0;
  std::uint64_t seed_ = 0;
  volatile std::uint64_t sum_ = 0;
};

}  // namespace

bool known_shape(const std::string& name) {
  return std::any_of(std::begin(kPatterns), std::end(kPatterns),
                     [&](const Pattern& pattern) { return name == pattern.name; });
}

void run_ping_pong(Pair& pair, const Options& options) {
  Output output(pair, options);
  const auto wants = [&](const char* shape) {
    return std::find(options.shapes.begin(), options.shapes.end(), shape) != options.shapes.end();
  };
  std::span<unsigned char> area;
  if (wants("fresh")) area = pair.allocate(kFreshBytes);
  if (wants("halo")) pair.allocate_rows(options.sizes_bytes);
  std::vector<Buffers> buffers;
  for (const std::uint64_t bytes : options.sizes_bytes) {
    buffers.push_back(make_buffers(pair, bytes, wants("rotate"), area));
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
  const auto rounds_in = [&](double ns, double expected) {
    return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(ns / expected), 1,
                                     kMostRoundsPerBatch);
  };
  // The first round warms up everything (page tables, cells) and is not printed.
  for (std::uint64_t round = 0;; ++round) {
    for (std::size_t point = 0; point < buffers.size() * shapes; ++point) {
      if (over()) return output.flush();
      const std::size_t size = point / shapes;
      const Pattern& pattern = pattern_of(options.shapes[point % shapes]);
      for (std::size_t path = 0; path < paths && round > 0; ++path) {
        // What a program that goes on like this for a while gets.
        if (options.paths[path] != config::CopyPath::kAuto) continue;
        PingPong test(pair, pair.rank(path), pattern, buffers[size]);
        const double expected = expected_ns[point * paths + path];
        for (double left = static_cast<double>(options.settle_ns); left > 0;) {
          const std::uint64_t agreed = pair.share(rounds_in(left, expected));
          test.run(agreed);
          left = static_cast<double>(pair.share(static_cast<std::uint64_t>(
              std::max(left - static_cast<double>(agreed) * expected, 0.0))));
        }
      }
      const std::uint64_t visits = round == 0 ? 1 : options.visits;
      for (std::size_t turn = 0; turn < paths * visits; ++turn) {
        // Each path comes first as often as last: what its predecessor left in the caches counts.
        const std::size_t path = (turn + round) % paths;
        double& expected = expected_ns[point * paths + path];
        const double before_ns = pair.probe_line_ns();
        PingPong test(pair, pair.rank(path), pattern, buffers[size]);
        test.run(kWarmUpRounds);
        std::uint64_t rounds = 1;
        if (round > 0)
          rounds = rounds_in(static_cast<double>(options.sample_ns) / kBatches, expected);
        const std::uint64_t agreed = pair.share(rounds);
        const double round_trip_ns = test.run_batches(agreed);
        const double after_ns = pair.probe_line_ns();
        expected = round_trip_ns;
        if (round == 0) continue;
        output.print({"pingpong", path_name(options.paths[path]), pattern.name,
                      options.sizes_bytes[size], 0, before_ns, after_ns, round_trip_ns / 2,
                      static_cast<double>(agreed * kBatches)});
      }
    }
    output.flush();
  }
}

}  // namespace od::measure
