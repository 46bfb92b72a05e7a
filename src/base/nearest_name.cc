// Edit distance with transpositions (optimal string alignment) and the choice of the nearest name.
#include "base/nearest_name.h"

#include <algorithm>

namespace od {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t width = b.size() + 1;
  // Three rows suffice: a swap of neighbours looks two rows back.
  std::vector<std::size_t> before(width), above(width), row(width);
  for (std::size_t j = 0; j < width; ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      const std::size_t replace = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replace, above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  // More than a third of the letters wrong is a different word, not a slip.
  const std::size_t tolerated = std::max<std::size_t>(2, name.size() / 3);
  std::size_t best_distance = tolerated + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    // Every letter too many or too few is one step.
    const auto [shorter, longer] = std::minmax({name.size(), candidate.size()});
    if (longer - shorter >= best_distance) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace od
