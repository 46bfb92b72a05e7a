// Sets of processors: the kernel's list notation and its affinity mask.
#include "topology/cpu_set.h"

#include <sched.h>

#include <charconv>
#include <vector>

namespace od::topology {

CpuSet& CpuSet::operator|=(const CpuSet& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  return *this;
}

CpuSet parse_cpu_list(std::string_view text) {
  CpuSet set;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int first = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc{} || first < 0) break;
    int last = first;
    at = parsed.ptr;
    if (at < end && *at == '-') {
      parsed = std::from_chars(at + 1, end, last);
      if (parsed.ec != std::errc{}) break;
      at = parsed.ptr;
    }
    for (int cpu = first; cpu <= last && cpu < kMaxCpus; ++cpu) set.add(cpu);
    if (at == end || *at != ',') break;
    ++at;
  }
  return set;
}

std::string format_cpu_list(const CpuSet& set) {
  std::string text;
  for (int first = set.first(); first >= 0;) {
    int last = first;
    while (set.contains(last + 1)) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text += '-' + std::to_string(last);
    first = set.next(last);
  }
  return text;
}

CpuSet own_affinity() {
  CpuSet set;
  // The kernel refuses masks shorter than its own (EINVAL), so ask with the longest there is.
  constexpr std::size_t kMaskBytes = 8192 / 8;
  std::vector<cpu_set_t> mask(kMaskBytes / sizeof(cpu_set_t));
  if (sched_getaffinity(0, kMaskBytes, mask.data()) != 0) return set;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), kMaskBytes, mask.data())) set.add(cpu);
  }
  return set;
}

}  // namespace od::topology
