// Test support: random cases. The same ones every time, others with the seed in
// OVERDRIVE_TEST_SEED: `make check` must not fail by chance, `make check-all` tries new ones.
#ifndef OVERDRIVE_COLL_PLAN_TESTING_RANDOM_CASES_H_
#define OVERDRIVE_COLL_PLAN_TESTING_RANDOM_CASES_H_

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <string>

#include "coll/plan/registry.h"
#include "coll/plan/shape.h"
#include "coll/plan/testing/all_ranks.h"

namespace od::coll::testing {

inline std::uint64_t first_seed() {
  if (const char* text = std::getenv("OVERDRIVE_TEST_SEED")) return std::strtoull(text, nullptr, 0);
  return 1;
}

// How many cases a test of one generator makes. What it computes is judged without sanitizers; its
// accesses to memory are the same few in every case.
constexpr int cases_of_generator(int cases) {
#if defined(__SANITIZE_ADDRESS__)
  return cases / 4;
#else
  return cases;
#endif
}

template <class T>
T pick(std::mt19937_64& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

// Empty if all is well; else what went wrong in case `number` of this seed, and the smallest case
// in which something does.
inline std::string report_of_case(const Case& test, std::uint64_t seed, int number) {
  const std::string wrong = run_case(test);
  if (wrong.empty()) return {};
  const Case smallest = shrink(test);
  return "OVERDRIVE_TEST_SEED=" + std::to_string(seed) + ", case " + std::to_string(number) +
         "\n  " + test.text() + "\n  " + wrong + "\nsmallest case\n  " + smallest.text() + "\n  " +
         run_case(smallest);
}

// The name of an instance of a test.
inline std::string name_of(const Algorithm& algorithm) {
  return std::string(info(algorithm.collective).name) + "_" + algorithm.name;
}

}  // namespace od::coll::testing

#endif  // OVERDRIVE_COLL_PLAN_TESTING_RANDOM_CASES_H_
