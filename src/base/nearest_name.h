// Finds the known name that a mistyped one most likely stands for.
#ifndef OVERDRIVE_BASE_NEAREST_NAME_H_
#define OVERDRIVE_BASE_NEAREST_NAME_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace od {

// Number of insertions, deletions, replacements and swaps of neighbours that turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate closest to `name`, or an empty string if none is close enough to be meant.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace od

#endif  // OVERDRIVE_BASE_NEAREST_NAME_H_
