// Greedy cover of the failed pairs: remove the candidate with the most failures until none is left.
#include "node/agreement.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

namespace od::node {

std::vector<bool> survivors(const std::vector<MapReport>& reports) {
  const std::size_t count = reports.size();
  std::vector<bool> stays(count, true);
  for (std::size_t i = 0; i < count; ++i) {
    // Who failed with many is the cause, not the victim; and its list is incomplete.
    if (reports[i].took_part == 0 || reports[i].failures > MapReport::kMostNamed) stays[i] = false;
  }
  std::vector<std::set<std::size_t>> failed_with(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!stays[i]) continue;
    for (int k = 0; k < reports[i].failures; ++k) {
      const std::size_t other = reports[i].positions[k];
      if (other >= count || other == i || !stays[other]) continue;
      failed_with[i].insert(other);
      failed_with[other].insert(i);
    }
  }
  for (;;) {
    // The highest position among equals, so that low ranks tend to stay together.
    std::size_t worst = 0;
    for (std::size_t i = 1; i < count; ++i) {
      if (failed_with[i].size() >= failed_with[worst].size()) worst = i;
    }
    if (count == 0 || failed_with[worst].empty()) return stays;
    stays[worst] = false;
    for (const std::size_t other : failed_with[worst]) failed_with[other].erase(worst);
    failed_with[worst].clear();
  }
}

}  // namespace od::node
