// The two processes of a measurement: what they share beside the engine, and their ranks.
//
// Both run the same sequence of samples; rank 0 decides (how many rounds, when to end) and tells
// through the shared page. The barrier counts arrivals monotonically, so nothing is ever reset.
// Each path has a rank object of its own, joined to a node of its own: the paths can be interleaved
// and none inherits the warm cells of another.
#ifndef OVERDRIVE_MEASURE_PAIR_H_
#define OVERDRIVE_MEASURE_PAIR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/forked_host.h"
#include "measure/options.h"

namespace od::measure {

// In memory that both processes map.
struct SharedPage {
  alignas(128) std::atomic<std::uint64_t> arrived{0};
  alignas(128) std::atomic<std::uint64_t> ping{0};
  alignas(128) std::atomic<std::uint64_t> pong{0};
  alignas(128) std::atomic<std::uint64_t> value{0};  // see Pair::share
  alignas(128) std::atomic<std::uint64_t> other{0};
  alignas(128) std::atomic<int> stop{0};  // set from outside: Ctrl-C, or nobody reads the output
};

class Pair {
 public:
  // In each process. Never returns where the engine cannot be set up: it tells why and exits.
  Pair(SharedPage& page, const node::Exchange& exchange, const Options& options);
  ~Pair();

  int me() const { return me_; }
  bool sender() const { return me_ == 0; }
  bool stopped() const { return page_.stop.load(std::memory_order_relaxed) != 0; }
  void stop() { page_.stop.store(1, std::memory_order_relaxed); }

  // Both of the pair, in the same order.
  void barrier();
  std::uint64_t share(std::uint64_t value_of_rank_0);         // everybody gets rank 0's
  std::uint64_t share_from_1(std::uint64_t value_of_rank_1);  // everybody gets rank 1's
  double probe_line_ns();                                     // one way; equal in both

  // The rank object of a path, which takes the pair for near or far as the last probe said.
  Rank& rank(std::size_t path_index);
  void send(Rank& rank, std::span<unsigned char> data);
  void receive(Rank& rank, std::span<unsigned char> data);

  // Both send and receive at the same time.
  void exchange(Rank& rank, std::span<unsigned char> out, std::span<unsigned char> in);
  // The same with every fourth row of a matrix; the payload is as long as `like`.
  void exchange_rows(Rank& rank, std::span<unsigned char> like);
  void allocate_rows(const std::vector<std::uint64_t>& sizes_bytes);

  // Reachable, aligned to huge pages.
  std::span<unsigned char> allocate(std::size_t bytes);

 private:
  SharedPage& page_;
  int me_;
  std::uint64_t barriers_ = 0;
  std::uint64_t ball_ = 0;
  double last_probe_ns_ = 0;
  double far_threshold_ns_;
  p2p::LayoutRef bytes_;
  std::span<unsigned char> rows_out_;
  std::span<unsigned char> rows_in_;
  std::map<std::size_t, p2p::LayoutRef> rows_;  // by the bytes of the payload
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// One line of output; `before_ns` and `after_ns` are probes around the sample.
struct Sample {
  const char* test;
  const char* path;
  const char* shape;
  std::uint64_t bytes;
  std::int64_t parameter;
  double before_ns;
  double after_ns;
  double ns;
  double second_ns;
};

// What a test's loop needs: rank 0 prints.
class Output {
 public:
  Output(Pair& pair, const Options& options);
  void print(const Sample& sample);
  void flush();  // after each round; stops the measurement when nobody reads any more

 private:
  Pair& pair_;
  int cpu_a_;
  int cpu_b_;
};

// Whether run_ping_pong() has such a shape.
bool known_shape(const std::string& name);

// The tests; both processes call them, and they return when the time is over.
void run_ping_pong(Pair& pair, const Options& options);
void run_skew(Pair& pair, const Options& options);
void run_cache(Pair& pair, const Options& options);

// What stands for the program's own work on its data: wide stores and loads where there are any.
void write_all(std::span<unsigned char> data, std::uint64_t seed);
void add_all(std::span<unsigned char> to, std::span<const unsigned char> from);
std::uint64_t read_all(std::span<const unsigned char> data);

}  // namespace od::measure

#endif  // OVERDRIVE_MEASURE_PAIR_H_
