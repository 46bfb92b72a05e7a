// Reading pairs of ranks.
#include "node/separation.h"

#include <algorithm>
#include <charconv>

namespace od::node {

bool parse_pairs(const std::string& text, std::vector<std::pair<int, int>>* pairs) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0;
    int second = 0;
    auto result = std::from_chars(at, end, first);
    if (result.ec != std::errc() || result.ptr == end || *result.ptr != '-') return false;
    result = std::from_chars(result.ptr + 1, end, second);
    if (result.ec != std::errc() || first < 0 || second < 0) return false;
    pairs->push_back({std::min(first, second), std::max(first, second)});
    at = result.ptr;
    if (at != end && *at++ != ',') return false;
  }
  std::sort(pairs->begin(), pairs->end());
  return true;
}

}  // namespace od::node
