// What choosing an algorithm and planning a call cost, for each collective, without MPI.
//
// Prints collective,ns_per_look_up,ns_to_make_the_table,ns_to_make_the_schedule. Sizes change from
// call to call and the next one depends on what was found, so that look-ups cannot overlap. The
// tables are those of 64 ranks on 8 nodes with some rules from the environment, as a user may give
// them. The schedule is that of a rank in the middle, with the algorithm of 64 KiB (each block)
// between 64 nodes of one rank; 0 where that is the host's own.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "coll/plan/registry.h"
#include "coll/plan/select/selection.h"

namespace {

using namespace od::coll;
using Clock = std::chrono::steady_clock;

constexpr int kBatches = 15;
constexpr int kLookUps = 20000;
constexpr int kRanks = 64;
constexpr std::int64_t kScheduleBytes = 64 << 10;

double nanoseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

double look_up_ns(Table& table) {
  std::vector<double> batches;
  std::uint64_t state = 1;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto begin = Clock::now();
    for (int i = 0; i < kLookUps; ++i) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      // Sizes of every magnitude up to 4 MiB.
      const std::uint64_t bytes = (state >> 33) >> (9 + (state >> 59) % 22);
      state += static_cast<std::uint64_t>(table.at(bytes).algorithm->number);
    }
    batches.push_back(nanoseconds_since(begin) / kLookUps);
  }
  std::sort(batches.begin(), batches.end());
  return state == 0 ? 0 : batches[kBatches / 2];
}

double schedule_ns(const Algorithm& algorithm) {
  if (algorithm.is_host()) return 0;
  const std::vector<std::int64_t> counts(kRanks, kScheduleBytes);
  Shape shape;
  shape.ranks = kRanks;
  shape.rank = kRanks / 3;
  shape.count = kScheduleBytes;
  if (info(algorithm.collective).has_counts()) shape.counts = counts.data();
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto begin = Clock::now();
    const Schedule schedule = make_schedule(algorithm, shape);
    times.push_back(nanoseconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  return times[kBatches / 2];
}

}  // namespace

int main() {
  std::vector<std::string> issues;
  const Selection::Environment environment = {
      {"OVERDRIVE_ADJUST_ALLREDUCE", "ring:64K-4M@8-64;rabenseifner:4K-%1;recursive_doubling:0-2K"},
      {"OVERDRIVE_ADJUST_BCAST", "binomial:0-8K"}};
  const Selection selection = Selection::load(environment, {}, issues);
  for (const std::string& issue : issues) std::fprintf(stderr, "od_select: %s\n", issue.c_str());
  if (!issues.empty()) return 1;
  Layout layout;
  layout.ranks = kRanks;
  layout.nodes = 8;
  layout.most_per_node = 8;
  for (std::size_t number = 0; number < kCollectives; ++number) {
    const auto collective = static_cast<Collective>(number);
    const auto begin = Clock::now();
    Table table = selection.compile(collective, layout, true);
    table.at(1024);  // what is decided at the first look-up counts for the table
    const double made_ns = nanoseconds_since(begin);
    Layout apart = layout;
    apart.nodes = kRanks;
    apart.most_per_node = 1;
    Table planned = selection.compile(collective, apart, true);
    const Algorithm& algorithm = *planned.at(kScheduleBytes).algorithm;
    std::printf("%s,%.2f,%.0f,%.0f\n", info(collective).name, look_up_ns(table), made_ns,
                schedule_ns(algorithm));
  }
  return 0;
}
