// overdrive-node-bench: collectives of forked processes in shared memory alone, one variant of the
// tuning beside the other, for choosing thresholds.
//
//   overdrive-node-bench RANKS SECONDS COLLECTIVE[,...] BYTES[,...] [VARIANT[,...]]
// Variants, joined by + where several apply: auto, cells, direct, whole, slices, generic,
// segment64K (slices of that size), piece4K (what cells hold), groups (each half of the ranks as if
// it shared a cache). Prints for each distance that the cores had meanwhile, collective, size,
// shape (usual: buffers stay unchanged; app: written before and read after each call, without the
// time of that) and variant the median time of a call in microseconds.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "coll/ops/kernels.h"
#include "coll/shm/test_team.h"
#include "p2p/distance.h"

namespace od::coll::shm {
namespace {

// From what a cache line takes on the cores count as far: as for the setting far_threshold.
constexpr std::uint64_t kFarNs = 100;

std::vector<std::string> split(const char* text) {
  std::vector<std::string> words(1);
  for (; *text != 0; ++text) {
    if (*text == ',') {
      words.emplace_back();
    } else {
      words.back() += *text;
    }
  }
  return words;
}

std::uint64_t bytes_of(const std::string& text) {
  char* end;
  const std::uint64_t number = std::strtoull(text.c_str(), &end, 10);
  return *end == 'K' ? number << 10 : *end == 'M' ? number << 20 : number;
}

// Variants joined by + are all applied.
Tuning tuning_of(const std::string& variant, bool oversubscribed) {
  const auto has = [&](const char* word) { return variant.find(word) != std::string::npos; };
  Tuning tuning = Tuning::built_in();
  tuning.oversubscribed = oversubscribed;
  const auto set = [&](const char* word, std::uint64_t& bytes) {
    const std::size_t at = variant.find(word);
    if (at != std::string::npos) bytes = bytes_of(variant.substr(at + std::strlen(word)));
  };
  set("segment", tuning.segment_slice_bytes);
  set("piece", tuning.piece_bytes);
  if (has("cells")) tuning.way = WayChoice::cells;
  if (has("direct")) tuning.way = WayChoice::direct;
  if (has("whole")) set_whole(tuning, std::uint64_t{1} << 40);
  if (has("slices")) set_whole(tuning, 0);
  if (has("generic")) tuning.driver = Driver::generic;
  return tuning;
}

void write_all(std::byte* data, std::uint64_t bytes, std::uint64_t seed) {
  std::memset(data, static_cast<int>(seed & 63), bytes);
}
std::uint64_t read_all(const std::byte* data, std::uint64_t bytes) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i + 8 <= bytes; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, data + i, 8);
    sum += word;
  }
  return sum;
}

struct Buffers {
  std::byte* send;
  std::byte* recv;
};

class Bench {
 public:
  Bench(TestNode& node, const od::node::Exchange& exchange) : node_(node), exchange_(exchange) {
    sum_.kernel = ops::find_kernel(ops::Op::sum, ops::Kind::float64);
    sum_.extent_bytes = 8;
  }

  // What the collective reads and writes at this rank.
  std::uint64_t in_bytes(const std::string& what, std::uint64_t bytes) const {
    const auto p = static_cast<std::uint64_t>(exchange_.size);
    if (what == "barrier") return 0;
    if (what == "bcast") return root() ? bytes : 0;
    return what == "alltoall" || what == "reduce_scatter" ? bytes * p : bytes;
  }
  std::uint64_t out_bytes(const std::string& what, std::uint64_t bytes) const {
    const auto p = static_cast<std::uint64_t>(exchange_.size);
    if (what == "barrier") return 0;
    if (what == "bcast") return root() ? 0 : bytes;
    if (what == "reduce") return root() ? bytes : 0;
    return what == "alltoall" || what == "allgather" ? bytes * p : bytes;
  }

  void call(Team& team, const std::string& what, std::uint64_t bytes, Buffers b) {
    Operation op;
    const auto p = static_cast<std::uint64_t>(exchange_.size);
    const Blocks in{b.send, bytes, bytes * p, nullptr, nullptr};
    const Blocks out{b.recv, bytes, bytes * p, nullptr, nullptr};
    if (what == "barrier") team.barrier(op);
    if (what == "bcast") team.bcast(op, root_, root() ? b.send : b.recv, bytes);
    if (what == "reduce") team.reduce(op, root_, b.send, b.recv, bytes / 8, sum_);
    if (what == "allreduce") team.allreduce(op, b.send, b.recv, bytes / 8, sum_);
    if (what == "allgather") team.allgather(op, b.send, bytes, out);
    if (what == "alltoall") team.alltoall(op, in, out);
    if (what == "reduce_scatter") team.reduce_scatter(op, in, b.recv, sum_);
    if (what == "scan") team.scan(op, b.send, b.recv, bytes / 8, sum_);
    node_.wait_for(team, op);
  }

  // Microseconds per call, of the slowest rank.
  double sample(Team& team, const std::string& what, std::uint64_t bytes, Buffers b, bool app) {
    const auto write = [&] { write_all(b.send, in_bytes(what, bytes), ++seed_); };
    const auto read = [&] { sink_ = sink_ + read_all(b.recv, out_bytes(what, bytes)); };
    // Another root in each call, so that no rank can run ahead.
    const auto next_root = [&](int call) { root_ = call % exchange_.size; };
    const int rounds = bytes >= 1 << 20 ? 10 : bytes >= 64 << 10 ? 20 : 200;
    exchange_.barrier();
    std::uint64_t own = 0;
    call(team, what, bytes, b);
    const std::uint64_t start = now_ns();
    for (int i = 0; i < rounds; ++i) {
      next_root(i);
      if (app) write();
      call(team, what, bytes, b);
      if (app) read();
    }
    own = now_ns() - start;
    if (app) {
      const std::uint64_t again = now_ns();
      for (int i = 0; i < rounds; ++i) {
        next_root(i);
        write();
        read();
      }
      const std::uint64_t work = now_ns() - again;
      own = own > work ? own - work : 0;
    }
    std::vector<std::uint64_t> all(static_cast<std::size_t>(exchange_.size));
    exchange_.allgather(&own, all.data(), sizeof own);
    return 1e-3 * static_cast<double>(*std::max_element(all.begin(), all.end())) / rounds;
  }

 private:
  TestNode& node_;
  const od::node::Exchange& exchange_;
  Combiner sum_;
  int root_ = 0;
  bool root() const { return exchange_.rank == root_; }
  std::uint64_t seed_ = 0;
  volatile std::uint64_t sink_ = 0;
};

// Samples by distance, what was measured, and variant.
using Results = std::map<std::tuple<bool, std::string, std::size_t>, std::vector<double>>;

void print(Results& results, bool far, const std::string& what,
           const std::vector<std::string>& variants) {
  std::string text;
  std::size_t fewest = ~std::size_t{0};
  for (std::size_t v = 0; v < variants.size(); ++v) {
    std::vector<double>& samples = results[{far, what, v}];
    if (samples.empty()) return;
    fewest = std::min(fewest, samples.size());
    std::sort(samples.begin(), samples.end());
    char cell[80];
    std::snprintf(cell, sizeof cell, "  %s %8.2f", variants[v].c_str(),
                  samples[samples.size() / 2]);
    text += cell;
  }
  std::printf("%-4s %-24s%s  (%zu samples)\n", far ? "far" : "near", what.c_str(), text.c_str(),
              fewest);
}

// What a cache line takes between the first two ranks; known to all.
std::uint64_t line_ns(TestNode& node, const od::node::Exchange& exchange) {
  std::uint64_t line = 0;
  exchange.barrier();  // the probe waits for a few ms only
  if (exchange.rank < 2) {
    line = static_cast<std::uint64_t>(p2p::probe_line_ns(node.node(), 1 - exchange.rank));
  }
  std::vector<std::uint64_t> lines(static_cast<std::size_t>(exchange.size));
  exchange.allgather(&line, lines.data(), sizeof line);
  return lines[0];
}

int run_rank(const od::node::Exchange& exchange, double seconds,
             const std::vector<std::string>& collectives, const std::vector<std::string>& sizes,
             const std::vector<std::string>& variants) {
  if (exchange.size == 2) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(exchange.rank), &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  if (!memory::BumpArena::begin(1u << 30)) return 1;
  TestTeamOptions options;
  options.slot_count = 16;
  TestNode node(exchange, options);
  std::uint64_t most = 0;
  for (const std::string& size : sizes) most = std::max(most, bytes_of(size));
  most *= static_cast<std::uint64_t>(exchange.size);
  const auto allocate = [&] {
    auto* start =
        reinterpret_cast<std::byte*>(memory::BumpArena::allocate(most + 8, 2 << 20).data());
    std::memset(start, 1, most + 8);
    return start;
  };
  const Buffers buffers{allocate(), allocate()};
  Bench bench(node, exchange);
  std::vector<std::unique_ptr<Team>> teams;
  for (const std::string& variant : variants) {
    node.set_tuning(tuning_of(variant, exchange.size > 2));
    std::vector<int> groups;
    for (int i = 0; i < exchange.size && variant.find("groups") != std::string::npos; ++i) {
      groups.push_back(2 * i / exchange.size);
    }
    node.set_groups(std::move(groups));
    teams.push_back(node.make_team());
  }
  Results results;
  const std::uint64_t end = now_ns() + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t line = line_ns(node, exchange);
  for (std::uint64_t stop = 0; stop == 0;) {
    for (const std::string& what : collectives) {
      for (const std::string& size : sizes) {
        for (const bool app : {false, true}) {
          for (std::size_t v = 0; v < variants.size(); ++v) {
            teams[v]->set_far(line >= kFarNs);
            const double us = bench.sample(*teams[v], what, bytes_of(size), buffers, app);
            const std::uint64_t after = line_ns(node, exchange);
            // A sample during which the distance changed says nothing.
            if ((line >= kFarNs) == (after >= kFarNs)) {
              results[{line >= kFarNs, what + " " + size + (app ? " app" : " usual"), v}].push_back(
                  us);
            }
            line = after;
          }
        }
      }
    }
    stop = now_ns() > end ? 1 : 0;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(exchange.size));
    exchange.allgather(&stop, all.data(), sizeof stop);
    stop = all[0];
  }
  if (exchange.rank != 0) return 0;
  for (const bool far : {false, true}) {
    for (const std::string& what : collectives) {
      for (const std::string& size : sizes) {
        for (const char* shape : {" usual", " app"}) {
          print(results, far, what + " " + size + shape, variants);
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace od::coll::shm

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr,
                 "usage: overdrive-node-bench RANKS SECONDS COLLECTIVES SIZES [VARIANTS]\n");
    return 2;
  }
  using od::coll::shm::split;
  const auto collectives = split(argv[3]), sizes = split(argv[4]);
  const auto variants = split(argc > 5 ? argv[5] : "auto");
  const double seconds = std::atof(argv[2]);
  const auto codes = od::node::run_forked_job(
      std::atoi(argv[1]),
      [&](int, const od::node::Exchange& exchange) {
        return od::coll::shm::run_rank(exchange, seconds, collectives, sizes, variants);
      },
      seconds + 60);
  for (const int code : codes) {
    if (code != 0) return 1;
  }
  return 0;
}
