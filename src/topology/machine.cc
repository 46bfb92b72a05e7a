// Reads /sys/devices/system/cpu and compares processors.
#include "topology/machine.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "topology/system_file.h"

namespace od::topology {
namespace {

int read_int(const std::string& path, int missing) {
  const std::string text = read_system_file(path);
  int number = missing;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The kernel writes cache sizes as "1024K".
std::uint64_t read_size_bytes(const std::string& path) {
  const std::string text = read_system_file(path);
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc{} || parsed.ptr == text.data() + text.size()) return number;
  if (*parsed.ptr == 'K') return number << 10;
  if (*parsed.ptr == 'M') return number << 20;
  return number;
}

// A processor's directory holds a link "node<N>".
int find_numa_node(const std::string& directory) {
  int node = -1;
  DIR* const listing = opendir(directory.c_str());
  if (listing == nullptr) return node;
  while (const dirent* entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name.size() > 4 && name.substr(0, 4) == "node") {
      int number = -1;
      const auto parsed = std::from_chars(name.data() + 4, name.data() + name.size(), number);
      if (parsed.ec == std::errc{} && parsed.ptr == name.data() + name.size()) node = number;
    }
  }
  closedir(listing);
  return node;
}

constexpr const char* kCpuDirectory = "/sys/devices/system/cpu";

std::uint64_t from_sysconf(int name) {
  const long value = sysconf(name);
  return value > 0 ? static_cast<std::uint64_t>(value) : 0;
}

}  // namespace

std::uint64_t Cpu::cache_bytes(int level) const {
  for (const Cache& cache : caches) {
    if (cache.level == level) return cache.size_bytes;
  }
  return 0;
}

Cpu read_cpu(int id, const std::string& root) {
  Cpu cpu;
  cpu.id = id;
  const std::string directory = root + kCpuDirectory + "/cpu" + std::to_string(id);
  cpu.core = read_int(directory + "/topology/core_id", -1);
  cpu.package = read_int(directory + "/topology/physical_package_id", -1);
  cpu.numa_node = find_numa_node(directory);
  for (int i = 0;; ++i) {
    const std::string cache_directory = directory + "/cache/index" + std::to_string(i);
    Cache cache;
    cache.level = read_int(cache_directory + "/level", 0);
    if (cache.level == 0) break;
    if (read_system_file(cache_directory + "/type") == "Instruction") continue;
    cache.size_bytes = read_size_bytes(cache_directory + "/size");
    cache.line_bytes = read_int(cache_directory + "/coherency_line_size", 0);
    cache.shared_by = parse_cpu_list(read_system_file(cache_directory + "/shared_cpu_list"));
    cpu.caches.push_back(cache);
  }
  std::stable_sort(cpu.caches.begin(), cpu.caches.end(),
                   [](const Cache& a, const Cache& b) { return a.level < b.level; });
  return cpu;
}

CpuSet online_cpus(const std::string& root) {
  CpuSet set = parse_cpu_list(read_system_file(root + kCpuDirectory + "/online"));
  if (set.empty()) {
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    for (int cpu = 0; cpu < std::max(1L, count); ++cpu) set.add(cpu);
  }
  return set;
}

std::vector<Cpu> read_online_cpus(const std::string& root) {
  std::vector<Cpu> cpus;
  const CpuSet online = online_cpus(root);
  for (int id = online.first(); id >= 0; id = online.next(id)) cpus.push_back(read_cpu(id, root));
  return cpus;
}

Nearness nearness(const Cpu& a, const Cpu& b) {
  if (a.package < 0 || b.package < 0) return Nearness::kUnknown;
  if (a.package == b.package && a.core >= 0 && a.core == b.core) return Nearness::kSameCore;
  for (const Cache& cache : a.caches) {
    if (cache.shared_by.contains(b.id)) return Nearness::kSharedCache;
  }
  if (a.package == b.package) return Nearness::kSamePackage;
  if (a.numa_node >= 0 && a.numa_node == b.numa_node) return Nearness::kSameNumaNode;
  return Nearness::kApart;
}

const char* nearness_name(Nearness nearness) {
  switch (nearness) {
    case Nearness::kSameCore:
      return "same core";
    case Nearness::kSharedCache:
      return "shared cache";
    case Nearness::kSamePackage:
      return "same package";
    case Nearness::kSameNumaNode:
      return "same NUMA node";
    case Nearness::kApart:
      return "apart";
    case Nearness::kUnknown:
      return "unknown";
  }
  return "unknown";
}

CacheSizes own_cache_sizes() {
  const Cpu cpu = read_cpu(std::max(0, sched_getcpu()));
  CacheSizes sizes{cpu.cache_bytes(1), cpu.cache_bytes(2), cpu.cache_bytes(3)};
  // The C library asks the processor itself, which helps where /sys is not mounted.
  if (sizes.l1_bytes == 0) sizes.l1_bytes = from_sysconf(_SC_LEVEL1_DCACHE_SIZE);
  if (sizes.l2_bytes == 0) sizes.l2_bytes = from_sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (sizes.l3_bytes == 0) sizes.l3_bytes = from_sysconf(_SC_LEVEL3_CACHE_SIZE);
  return sizes;
}

}  // namespace od::topology
