// Limits of machine and control groups: see budget.h. System calls and the C library alone.
#include "memory/heap/budget.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "memory/heap/arena.h"

namespace od::memory::heap {
namespace {

constexpr uint64_t kUnlimited = ~uint64_t{0};

uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// A number of bytes in a file of the system; kUnlimited where there is none ("max", no file).
uint64_t read_bytes(const char* path) {
  char line[32];
  read_line(path, line, sizeof line);
  return line[0] >= '0' && line[0] <= '9' ? strtoull(line, nullptr, 10) : kUnlimited;
}

// The number that follows `name` in a file of the system, or kUnlimited.
uint64_t read_field(const char* path, const char* name) {
  char text[4096];
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return kUnlimited;
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  text[got > 0 ? got : 0] = '\0';
  const char* at = strstr(text, name);
  return at != nullptr ? strtoull(at + strlen(name), nullptr, 10) : kUnlimited;
}

bool has_word(const char* list, const char* end, const char* word) {
  const size_t length = strlen(word);
  while (list < end) {
    const char* comma = list;
    while (comma < end && *comma != ',') ++comma;
    if (static_cast<size_t>(comma - list) == length && strncmp(list, word, length) == 0)
      return true;
    list = comma + 1;
  }
  return false;
}

// Processors of a list such as "0-3,8,10-11" that are in `mask`.
unsigned count_common(const char* list, const unsigned long* mask, size_t mask_bytes) {
  unsigned common = 0;
  const unsigned long word_bits = 8 * sizeof *mask;
  while (*list >= '0' && *list <= '9') {
    char* end;
    const unsigned long from = strtoul(list, &end, 10);
    const unsigned long to = *end == '-' ? strtoul(end + 1, &end, 10) : from;
    for (unsigned long i = from; i <= to && i < 8 * mask_bytes; ++i) {
      common += static_cast<unsigned>((mask[i / word_bits] >> (i % word_bits)) & 1);
    }
    list = *end == ',' ? end + 1 : end;
  }
  return common;
}

}  // namespace

// The group and those above it: each may have a limit.
void Budget::add_groups(const char* mount, const char* path, const char* limit, const char* usage) {
  char group[200];
  if (strlen(path) >= sizeof group) return;
  strcpy(group, path);  // NOLINT: it fits
  for (;;) {
    char file[512];
    snprintf(file, sizeof file, "%s%s/%s", mount, group, limit);
    const uint64_t bytes = read_bytes(file);
    if (bytes < machine_bytes_ && group_count_ < kMostGroups) {
      Group& found = groups_[group_count_];
      const int length =
          snprintf(found.usage_path, sizeof found.usage_path, "%s%s/%s", mount, group, usage);
      found.limit_bytes = bytes;
      if (length > 0 && static_cast<size_t>(length) < sizeof found.usage_path) ++group_count_;
      limit_bytes_ = least(limit_bytes_, bytes);
    }
    char* const slash = strrchr(group, '/');
    if (slash == nullptr) return;
    *slash = '\0';
  }
}

void Budget::init(const char* groups, const char* mount) {
  struct sysinfo machine;
  machine_bytes_ = sysinfo(&machine) == 0 ? machine.totalram * machine.mem_unit : 0;
  limit_bytes_ = machine_bytes_;
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  processors_ = processors < 1 ? 1 : static_cast<uint64_t>(processors);
  group_count_ = 0;

  char text[4096];
  const int fd = open(groups, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  text[got > 0 ? got : 0] = '\0';
  // Lines "number:controllers:path"; version 2 has number 0 and no controllers.
  for (char* line = text; *line != '\0';) {
    char* const end = strchr(line, '\n');
    if (end != nullptr) *end = '\0';
    char* const controllers = strchr(line, ':');
    char* const path = controllers != nullptr ? strchr(controllers + 1, ':') : nullptr;
    if (path != nullptr) {
      // The root's path is "/", and of it only what is in the file system counts.
      char* const inner = strcmp(path + 1, "/") == 0 ? path + 2 : path + 1;
      char folder[200];
      if (path == controllers + 1) {
        add_groups(mount, inner, "memory.max", "memory.current");
        snprintf(folder, sizeof folder, "%s/unified", mount);
        add_groups(folder, inner, "memory.max", "memory.current");
      } else if (has_word(controllers + 1, path, "memory")) {
        snprintf(folder, sizeof folder, "%s/memory", mount);
        add_groups(folder, inner, "memory.limit_in_bytes", "memory.usage_in_bytes");
      }
    }
    if (end == nullptr) break;
    line = end + 1;
  }
}

uint64_t Budget::keep_bytes() const {
  constexpr uint64_t kLeast = uint64_t{32} << 20;
  constexpr uint64_t kMost = uint64_t{1} << 30;
  const uint64_t share = machine_bytes_ / 32 / processors_;
  const uint64_t bytes = share < kLeast ? kLeast : share > kMost ? kMost : share;
  // A group's limit is one that ends processes.
  return group_count_ == 0 ? bytes : least(bytes, limit_bytes_ / 32 / processors_);
}

uint64_t Budget::free_bytes() const {
  struct sysinfo machine;
  if (sysinfo(&machine) != 0) return 0;
  uint64_t bytes = (machine.freeram + machine.bufferram) * machine.mem_unit;
  for (unsigned i = 0; i < group_count_; ++i) {
    const uint64_t used = read_bytes(groups_[i].usage_path);
    const uint64_t limit = groups_[i].limit_bytes;
    bytes = least(bytes, used < limit ? limit - used : 0);
  }
  return bytes;
}

uint64_t Budget::available_bytes() const {
  const uint64_t machine = read_field("/proc/meminfo", "MemAvailable:");
  // kB; kernels before 3.14 do not say.
  uint64_t bytes = machine != kUnlimited ? machine << 10 : free_bytes();
  for (unsigned i = 0; i < group_count_; ++i) {
    const uint64_t used = read_bytes(groups_[i].usage_path);
    const uint64_t limit = groups_[i].limit_bytes;
    uint64_t rest = used < limit ? limit - used : 0;
    char path[sizeof groups_[i].usage_path + sizeof "memory.stat"];
    strcpy(path, groups_[i].usage_path);  // NOLINT: it fits
    if (char* slash = strrchr(path, '/')) {
      strcpy(slash + 1, "memory.stat");  // NOLINT: it fits
      const uint64_t cache = read_field(path, "\ninactive_file ");
      if (cache != kUnlimited) rest += cache;
    }
    bytes = least(bytes, rest);
  }
  return bytes;
}

bool Budget::may_commit(uint64_t bytes, uint64_t committed_bytes) const {
  const uint64_t parts = 4 * processors_;
  return bytes <= limit_bytes_ / parts && committed_bytes <= limit_bytes_ / parts - bytes &&
         bytes <= free_bytes() / parts;
}

bool within_one_node(const char* nodes) {
  char path[256];
  char line[1024];
  snprintf(path, sizeof path, "%s/has_memory", nodes);
  read_line(path, line, sizeof line);
  // One node, or a kernel without nodes.
  if (strpbrk(line, "-,") == nullptr) return true;

  constexpr int kDefault = 0;  // MPOL_DEFAULT, MPOL_PREFERRED, MPOL_BIND
  constexpr int kBind = 2;
  constexpr int kLocal = 4;  // MPOL_LOCAL
  int policy = kDefault;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) == 0 && policy > kBind &&
      policy != kLocal) {
    return false;
  }
  unsigned long mask[1024 / sizeof(unsigned long)] = {};
  const long mask_bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
  if (mask_bytes <= 0) return false;
  unsigned used_nodes = 0;
  // Numbers may have gaps. A node without processors holds nothing that a thread touches first.
  constexpr int kMostNodes = 256;
  for (int node = 0; node < kMostNodes && used_nodes < 2; ++node) {
    snprintf(path, sizeof path, "%s/node%d/cpulist", nodes, node);
    read_line(path, line, sizeof line);
    used_nodes += count_common(line, mask, static_cast<size_t>(mask_bytes)) != 0;
  }
  return used_nodes == 1;
}

}  // namespace od::memory::heap
