// Finds the last-level cache of the processors that a rank may use.

#include "topology/cache_claim.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "topology/machine.h"

namespace od::topology {

namespace {

bool covers(const CpuSet& outer, const CpuSet& inner) {
  for (int cpu = inner.first(); cpu >= 0; cpu = inner.next(cpu)) {
    if (!outer.contains(cpu)) return false;
  }
  return true;
}

// Whether a level of a description has one of these names; hwloc ignores case and accepts
// beginnings such as "pack" and "l3cache".
bool is_level(std::string_view level, std::string_view name) {
  return level.substr(0, name.size()) == name;
}

struct Level {
  std::string name;
  long count = 1;
};

// "pack:2 [numa] l3:1(size=32MB) 4 pu:1": levels from the outside, attributes left out.
std::vector<Level> read_levels(const std::string& description) {
  std::string plain;
  int depth = 0;
  for (const char c : description) {
    if (c == '(' || c == '[') ++depth;
    if (depth == 0) plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if ((c == ')' || c == ']') && depth > 0) --depth;
  }
  std::vector<Level> levels;
  std::istringstream words(plain);
  for (std::string word; words >> word;) {
    Level level;
    const std::size_t colon = word.find(':');
    if (colon != std::string::npos) level.name = word.substr(0, colon);
    const std::string count = colon == std::string::npos ? word : word.substr(colon + 1);
    level.count = std::strtol(count.c_str(), nullptr, 10);
    constexpr long kMost = 1 << 16;
    if (level.count < 1 || level.count > kMost) return {};
    levels.push_back(level);
  }
  return levels;
}

}  // namespace

CacheClaim read_cache_claim(const CpuSet& affinity, const std::string& root) {
  CacheClaim claim;
  const int first = affinity.first();
  if (first < 0) return claim;
  const Cpu cpu = read_cpu(first, root);
  for (const Cache& cache : cpu.caches) {  // nearest first
    // Threads of one core share its caches, and ranks are seldom bound to threads of one core.
    const bool own = cache.level <= 2 && cache.shared_by.count() <= 2;
    if (own) claim.private_bytes = std::max(claim.private_bytes, cache.size_bytes);
    claim.shared_bytes = cache.size_bytes;
    claim.group =
        covers(cache.shared_by, affinity) ? cache.shared_by.first() : CacheClaim::kUnknown;
  }
  return claim;
}

std::int32_t synthetic_group(const std::string& description, int index, int ranks) {
  const std::vector<Level> levels = read_levels(description);
  if (levels.empty() || index < 0 || index >= ranks) return CacheClaim::kUnknown;
  const auto find = [&](std::initializer_list<std::string_view> names) {
    return std::find_if(levels.begin(), levels.end(), [&](const Level& level) {
      return std::any_of(names.begin(), names.end(),
                         [&](std::string_view name) { return is_level(level.name, name); });
    });
  };
  auto sharing = find({"l3"});
  if (sharing == levels.end()) sharing = find({"pack", "socket"});
  if (sharing == levels.end()) return 0;
  long groups = 1, processors = 1;
  for (auto level = levels.begin(); level != levels.end(); ++level) {
    if (level <= sharing) groups *= level->count;
    processors *= level->count;
    constexpr long kMost = 1 << 20;
    if (processors > kMost) return CacheClaim::kUnknown;
  }
  // One processor after the other; several ranks share one where there are more of them.
  const long place = ranks <= processors ? index : static_cast<long>(index) * processors / ranks;
  return static_cast<std::int32_t>(place / (processors / groups));
}

CacheClaim own_cache_claim(int index, int ranks) {
  const CpuSet affinity = own_affinity();
  CacheClaim claim = read_cache_claim(affinity);
  const char* const synthetic = std::getenv("HWLOC_SYNTHETIC");
  if (synthetic != nullptr && *synthetic != 0) {
    claim.group = synthetic_group(synthetic, index, ranks);
  }
  return claim;
}

}  // namespace od::topology
