// A network that was taken for another one is found from what calls take.
#include "coll/plan/model/network_fit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "coll/plan/registry.h"
#include "coll/plan/select/selection.h"

namespace od::coll {
namespace {

constexpr Layout kFourByTwo{8, 4, 2};

// What the model with that machine says of an allreduce by that algorithm.
double cost_of(const char* algorithm, std::uint64_t bytes, const Machine& machine) {
  Selection selection;
  selection.set_machine(machine);
  const Decision decision = selection.complete(*find_algorithm(Collective::kAllreduce, algorithm),
                                               Mode::kHierarchical, {}, kFourByTwo, true);
  return selection.cost(decision, kFourByTwo, bytes);
}

// What three ways are seen to take, by a machine and some noise.
std::vector<Seen> seen_on(const Machine& machine, std::uint64_t bytes,
                          const std::vector<double>& noise = {1, 1, 1}) {
  std::vector<Seen> seen;
  for (const char* algorithm : {"recursive_doubling", "rabenseifner", "ring"}) {
    seen.push_back({cost_of(algorithm, bytes, machine) * noise[seen.size()],
                    [=](const Machine& other) { return cost_of(algorithm, bytes, other); }});
  }
  return seen;
}

TEST(NetworkFit, FindsMessagesAndBytes) {
  const Machine truly;
  for (const double messages : {0.01, 0.3, 1.0, 4.0, 100.0}) {
    for (const double bytes : {0.01, 0.3, 1.0, 4.0, 100.0}) {
      const Machine found =
          fit_network(with_network(truly, 1 / messages, 1 / bytes), seen_on(truly, 65536));
      for (const char* other : {"knomial", "reduce_bcast"}) {
        // Three ways do not tell exactly how much is the messages' and how much the bytes'.
        const double ratio = cost_of(other, 65536, found) / cost_of(other, 65536, truly);
        EXPECT_GT(ratio, 1 / 1.6) << other << ", " << messages << ", " << bytes;
        EXPECT_LT(ratio, 1.6) << other << ", " << messages << ", " << bytes;
      }
    }
  }
}

TEST(NetworkFit, LeavesWhatCallsDoNotTell) {
  const Machine machine;
  const Machine found = fit_network(machine, seen_on(with_network(machine, 10, 1), 8));
  EXPECT_NEAR(found.far.latency_ns / machine.far.latency_ns, 10, 3);
  EXPECT_EQ(found.far.byte_ns, machine.far.byte_ns);
}

TEST(NetworkFit, NoiseMovesItLittle) {
  const Machine machine;
  const Machine found = fit_network(machine, seen_on(machine, 65536, {1.15, 0.9, 1.1}));
  EXPECT_NEAR(found.far.latency_ns / machine.far.latency_ns, 1, 1.1);
  EXPECT_NEAR(found.far.byte_ns / machine.far.byte_ns, 1, 0.5);
}

TEST(NetworkFit, NothingSeenChangesNothing) {
  const Machine machine;
  EXPECT_EQ(fit_network(machine, {}), machine);
}

}  // namespace
}  // namespace od::coll
