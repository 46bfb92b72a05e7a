// Barrier, probe and ranks of the two measuring processes.
#include "measure/pair.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "config/settings.h"
#include "engine/rank_state.h"
#include "memory/bump_arena.h"
#include "node/wait.h"
#include "topology/fingerprint.h"

namespace od::measure {
namespace {

// The largest shape has 16 pairs of buffers of 2 MiB, or two of the largest size.
constexpr std::uint64_t kArenaBytes = 512u << 20;
constexpr std::size_t kHugeBytes = 2u << 20;

// About 5 us near and 25 far each: short against a sample, long against the clock.
constexpr int kProbeBatches = 3;
constexpr std::uint64_t kProbeRoundTrips = 48;

// Rows of a matrix, of which every fourth is sent.
constexpr std::uint64_t kRowBytes = 512;
constexpr std::int64_t kRowDistance = 4;

constexpr std::uint64_t kForever = 10'000'000'000;

config::Settings settings_for(config::CopyPath path, const Options& options) {
  // What the user has set counts (sizes of pools and cells, for instance); what would not be a
  // measurement of this path does not.
  config::Paths paths = config::standard_paths(environ);
  paths.fingerprint = [] { return topology::fingerprint(); };
  config::Settings settings = config::load(config::overdrive_environment(environ), paths).settings;
  settings.disable = settings.verify = false;
  settings.stats = config::Settings{}.stats;
  settings.test_remote = {};
  settings.copy_path = path;
  if (options.test != Options::Test::kSkew) {
    // Both sides are there: a preempted receiver must not turn the sample into one of another path.
    settings.pull_wait_ns = settings.unmatched_wait_ns = kForever;
  }
  return settings;
}

}  // namespace

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define OD_WIDE __attribute__((target_clones("avx2", "default"), noinline))
#else
#define OD_WIDE __attribute__((noinline))
#endif

OD_WIDE static void write_words(std::uint64_t* words, std::size_t count, std::uint64_t first) {
  for (std::size_t i = 0; i < count; ++i) words[i] = first + i;
}

OD_WIDE static std::uint64_t sum_words(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

void write_all(std::span<unsigned char> data, std::uint64_t seed) {
  write_words(reinterpret_cast<std::uint64_t*>(data.data()), data.size() / 8, seed);
}

OD_WIDE static void add_words(std::uint64_t* to, const std::uint64_t* from, std::size_t count) {
  // One more, so that every word changes whatever comes.
  for (std::size_t i = 0; i < count; ++i) to[i] += from[i] + 1;
}

void add_all(std::span<unsigned char> to, std::span<const unsigned char> from) {
  add_words(reinterpret_cast<std::uint64_t*>(to.data()),
            reinterpret_cast<const std::uint64_t*>(from.data()), to.size() / 8);
}

std::uint64_t read_all(std::span<const unsigned char> data) {
  return sum_words(reinterpret_cast<const std::uint64_t*>(data.data()), data.size() / 8);
}

Pair::Pair(SharedPage& page, const node::Exchange& exchange, const Options& options)
    : page_(page), me_(exchange.rank), bytes_(byte_layout()) {
  if (!memory::BumpArena::begin(kArenaBytes)) {
    std::fprintf(stderr, "overdrive-measure: no memory file of %llu MiB can be made\n",
                 static_cast<unsigned long long>(kArenaBytes >> 20));
    std::_Exit(1);
  }
  for (const config::CopyPath path : options.paths) {
    ranks_.push_back(Rank::create(forked_host(exchange), settings_for(path, options), false));
    const node::Node* node = ranks_.back() ? ranks_.back()->state().node.get() : nullptr;
    if (node == nullptr || node->size() != exchange.size) {
      std::fprintf(stderr, "overdrive-measure: the two processes cannot share memory: %s\n",
                   node != nullptr ? node->why().c_str() : "out of memory");
      std::_Exit(1);
    }
  }
  far_threshold_ns_ = static_cast<double>(ranks_.front()->settings().far_threshold_ns);
}

Pair::~Pair() {
  for (const auto& rank : ranks_) rank->finalize();
}

void Pair::barrier() {
  const std::uint64_t goal = 2 * ++barriers_;
  // What one has written before the barrier, the other sees after it: each addition pairs with the
  // other one's loads.
  page_.arrived.fetch_add(1, std::memory_order_acq_rel);
  for (std::uint64_t spins = 1; page_.arrived.load(std::memory_order_acquire) < goal; ++spins) {
    pause_processor();
    if (spins % 20000 == 0) sched_yield();
  }
}

std::uint64_t Pair::share(std::uint64_t value_of_rank_0) {
  // Relaxed: the barriers order it.
  if (me_ == 0) page_.value.store(value_of_rank_0, std::memory_order_relaxed);
  barrier();
  const std::uint64_t value = page_.value.load(std::memory_order_relaxed);
  barrier();
  return value;
}

std::uint64_t Pair::share_from_1(std::uint64_t value_of_rank_1) {
  if (me_ == 1) page_.other.store(value_of_rank_1, std::memory_order_relaxed);
  barrier();
  const std::uint64_t value = page_.other.load(std::memory_order_relaxed);
  barrier();
  return value;
}

double Pair::probe_line_ns() {
  std::array<double, kProbeBatches> batches{};
  barrier();
  for (double& batch : batches) {
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < kProbeRoundTrips; ++i) {
      ++ball_;
      // Each store pairs with the other one's load, only for the order of the two words; no pause:
      // the line is measured, not the wait.
      if (me_ == 0) {
        page_.ping.store(ball_, std::memory_order_release);
        while (page_.pong.load(std::memory_order_acquire) < ball_) {
        }
      } else {
        while (page_.ping.load(std::memory_order_acquire) < ball_) {
        }
        page_.pong.store(ball_, std::memory_order_release);
      }
    }
    batch = static_cast<double>(now_ns() - start) / (2.0 * kProbeRoundTrips);
  }
  std::sort(batches.begin(), batches.end());
  // In whole nanoseconds; equal in both.
  last_probe_ns_ =
      static_cast<double>(share(static_cast<std::uint64_t>(batches[kProbeBatches / 2] * 100))) /
      100;
  return last_probe_ns_;
}

Rank& Pair::rank(std::size_t path_index) {
  Rank& rank = *ranks_[path_index];
  RankState& state = rank.state();
  for (int i = 0; i < state.node->size(); ++i) {
    state.transport->fix_distance(static_cast<std::uint32_t>(i),
                                  last_probe_ns_ >= far_threshold_ns_);
  }
  return rank;
}

void Pair::send(Rank& rank, std::span<unsigned char> data) {
  rank.send(data.data(), static_cast<std::int64_t>(data.size()), bytes_, 1 - me_, 0, *rank.world(),
            SendMode::standard);
}

void Pair::receive(Rank& rank, std::span<unsigned char> data) {
  host::Status status;
  rank.recv(data.data(), static_cast<std::int64_t>(data.size()), bytes_, 1 - me_, 0, *rank.world(),
            &status);
}

void Pair::exchange(Rank& rank, std::span<unsigned char> out, std::span<unsigned char> in) {
  Request* request = nullptr;
  rank.isend(out.data(), static_cast<std::int64_t>(out.size()), bytes_, 1 - me_, 0, *rank.world(),
             SendMode::standard, &request);
  receive(rank, in);
  rank.wait(*request);
  rank.release(*request);
}

void Pair::allocate_rows(const std::vector<std::uint64_t>& sizes_bytes) {
  std::uint64_t longest = 0;
  for (const std::uint64_t bytes : sizes_bytes) {
    auto* layout = new p2p::Layout;
    layout->shape = p2p::Shape::strided;
    layout->block_bytes = static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, kRowBytes));
    layout->block_count = static_cast<std::int64_t>(bytes) / layout->block_bytes;
    layout->stride = kRowDistance * layout->block_bytes;
    layout->size = layout->block_count * layout->block_bytes;
    layout->extent = (layout->block_count - 1) * layout->stride + layout->block_bytes;
    rows_.insert_or_assign(bytes, p2p::LayoutRef(layout));
    longest = std::max(longest, static_cast<std::uint64_t>(layout->extent));
  }
  rows_out_ = allocate(longest);
  rows_in_ = allocate(longest);
}

void Pair::exchange_rows(Rank& rank, std::span<unsigned char> like) {
  const p2p::LayoutRef& rows = rows_.at(like.size());
  Request* request = nullptr;
  rank.isend(rows_out_.data(), 1, rows, 1 - me_, 0, *rank.world(), SendMode::standard, &request);
  host::Status status;
  rank.recv(rows_in_.data(), 1, rows, 1 - me_, 0, *rank.world(), &status);
  rank.wait(*request);
  rank.release(*request);
}

std::span<unsigned char> Pair::allocate(std::size_t bytes) {
  const auto block =
      memory::BumpArena::allocate(bytes, bytes >= kHugeBytes ? kHugeBytes : std::size_t{4096});
  if (block.empty()) {
    std::fprintf(stderr, "overdrive-measure: the buffers do not fit %llu MiB\n",
                 static_cast<unsigned long long>(kArenaBytes >> 20));
    std::_Exit(1);
  }
  return block;
}

Output::Output(Pair& pair, const Options& options)
    : pair_(pair), cpu_a_(options.cpu_a), cpu_b_(options.cpu_b) {
  if (pair.me() == 0) {
    std::printf(
        "test,cpu_a,cpu_b,path,shape,bytes,parameter,probe_before_ns,probe_after_ns,ns,second_"
        "ns\n");
  }
}

void Output::print(const Sample& s) {
  if (pair_.me() != 0) return;
  std::printf("%s,%d,%d,%s,%s,%llu,%lld,%.1f,%.1f,%.1f,%.1f\n", s.test, cpu_a_, cpu_b_, s.path,
              s.shape, static_cast<unsigned long long>(s.bytes),
              static_cast<long long>(s.parameter), s.before_ns, s.after_ns, s.ns, s.second_ns);
}

void Output::flush() {
  if (pair_.me() != 0) return;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) pair_.stop();
}

}  // namespace od::measure
