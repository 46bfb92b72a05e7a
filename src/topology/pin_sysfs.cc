// Reads from /sys what pinning has to know, with the C library alone and few files: one list of
// processors tells all members of a core, a cache or a socket.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "topology/pin_plan.h"

namespace od::topology {
namespace {

// Calls add for each number of a list such as "0-3,8"; false if there is none.
template <typename Add>
bool read_list(const char* root, const char* path, Add add) {
  char name[512];
  if (std::snprintf(name, sizeof name, "%s%s", root, path) >= static_cast<int>(sizeof name)) {
    return false;
  }
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[4096];
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return false;
  text[length] = '\0';
  bool any = false;
  for (const char* at = text; *at >= '0' && *at <= '9';) {
    const auto number = [&at] {
      int value = 0;
      for (; *at >= '0' && *at <= '9'; ++at)
        value = value < kMaxCpus ? value * 10 + *at - '0' : value;
      return value;
    };
    const int first = number();
    int last = first;
    if (*at == '-') {
      ++at;
      last = number();
    }
    for (int i = first; i <= last && i < kMaxCpus; ++i) add(i);
    any = true;
    if (*at != ',') break;
    ++at;
  }
  return any;
}

class Reader {
 public:
  Reader(const char* root, PinTopology* topology) : root_(root), topology_(topology) {}

  // The group of `kind` that has this processor: its members are in the first of the files that is
  // there.
  void group(int cpu, std::int16_t PinTopology::Cpu::*kind, const char* const* files) {
    if (at(cpu).*kind >= 0) return;
    char path[128];
    for (; *files != nullptr; ++files) {
      std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, *files);
      if (mark(path, kind)) return;
    }
  }

  bool mark(const char* path, std::int16_t PinTopology::Cpu::*kind) {
    int lowest = -1;
    return read_list(root_, path, [&](int member) {
      if (!at(member).online) return;
      if (lowest < 0) lowest = member;
      at(member).*kind = static_cast<std::int16_t>(lowest);
    });
  }

  PinTopology::Cpu& at(int cpu) { return topology_->cpus[static_cast<std::size_t>(cpu)]; }

 private:
  const char* root_;
  PinTopology* topology_;
};

}  // namespace

bool read_pin_topology(const char* root, PinTopology* topology) {
  *topology = {};
  Reader reader(root, topology);
  if (!read_list(root, "/sys/devices/system/cpu/online",
                 [&](int cpu) { reader.at(cpu).online = true; })) {
    return false;
  }
  // Older kernels know the second names only. The last level of caches is the third, or the second.
  static constexpr const char* kCore[] = {"topology/core_cpus_list",
                                          "topology/thread_siblings_list", nullptr};
  static constexpr const char* kSocket[] = {"topology/package_cpus_list",
                                            "topology/core_siblings_list", nullptr};
  static constexpr const char* kCache[] = {"cache/index3/shared_cpu_list",
                                           "cache/index2/shared_cpu_list", nullptr};
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (!reader.at(cpu).online) continue;
    reader.group(cpu, &PinTopology::Cpu::core, kCore);
    reader.group(cpu, &PinTopology::Cpu::socket, kSocket);
    reader.group(cpu, &PinTopology::Cpu::cache, kCache);
  }
  read_list(root, "/sys/devices/system/node/online", [&](int node) {
    char path[64];
    std::snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    reader.mark(path, &PinTopology::Cpu::numa);
  });
  topology->complete();
  return true;
}

}  // namespace od::topology
