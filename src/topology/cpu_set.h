// A set of logical processors of fixed size, so that ranks can exchange it as plain bytes.
#ifndef OVERDRIVE_TOPOLOGY_CPU_SET_H_
#define OVERDRIVE_TOPOLOGY_CPU_SET_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace od::topology {

// Linux is built for at most 8192; machines in use stay below this. Processors beyond it are
// ignored.
inline constexpr int kMaxCpus = 4096;

class CpuSet {
 public:
  void add(int cpu) {
    if (valid(cpu)) words_[index(cpu)] |= bit(cpu);
  }
  bool contains(int cpu) const { return valid(cpu) && (words_[index(cpu)] & bit(cpu)) != 0; }
  int count() const {
    int total = 0;
    for (const std::uint64_t word : words_) total += std::popcount(word);
    return total;
  }
  bool empty() const { return count() == 0; }
  // Lowest member, or -1.
  int first() const { return next(-1); }
  // Lowest member above `cpu`, or -1.
  int next(int cpu) const {
    for (int candidate = cpu + 1; candidate < kMaxCpus;) {
      const std::uint64_t rest = words_[index(candidate)] >> (candidate % 64);
      if (rest != 0) return candidate + std::countr_zero(rest);
      candidate = (candidate / 64 + 1) * 64;
    }
    return -1;
  }
  CpuSet& operator|=(const CpuSet& other);
  bool operator==(const CpuSet&) const = default;

 private:
  static bool valid(int cpu) { return cpu >= 0 && cpu < kMaxCpus; }
  static std::size_t index(int cpu) { return static_cast<std::size_t>(cpu) / 64; }
  static std::uint64_t bit(int cpu) { return std::uint64_t{1} << (cpu % 64); }

  std::array<std::uint64_t, kMaxCpus / 64> words_{};
};

// Reads the kernel's notation, such as "0-3,8"; anything that is not in it ends the reading.
CpuSet parse_cpu_list(std::string_view text);

// Writes the kernel's notation.
std::string format_cpu_list(const CpuSet& set);

// The processors the calling thread may run on; empty if the kernel does not tell.
CpuSet own_affinity();

}  // namespace od::topology

#endif  // OVERDRIVE_TOPOLOGY_CPU_SET_H_
