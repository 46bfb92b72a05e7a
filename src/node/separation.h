// The pairs of ranks that a test setting treats as if on different nodes, as text.
#ifndef OVERDRIVE_NODE_SEPARATION_H_
#define OVERDRIVE_NODE_SEPARATION_H_

#include <string>
#include <utility>
#include <vector>

namespace od::node {

// "0-1,2-3", sorted and each with the lower rank first; false when the text is something else.
bool parse_pairs(const std::string& text, std::vector<std::pair<int, int>>* pairs);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_SEPARATION_H_
