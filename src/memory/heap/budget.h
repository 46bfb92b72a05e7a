// How much memory the process may have before the program asks for it, and where it would lie.
//
// The heap gives blocks their memory ahead of the program (huge pages) and keeps what was freed.
// Both must not cost a program what it would have without Overdrive: memory that it never touches,
// the limit of its control group, and on machines with several memory nodes the node of the thread
// that touches a page first.
#ifndef OVERDRIVE_MEMORY_HEAP_BUDGET_H_
#define OVERDRIVE_MEMORY_HEAP_BUDGET_H_

#include <stdint.h>

namespace od::memory::heap {

class Budget {
 public:
  // Reads the machine and the limits of the control groups (versions 1 and 2). `groups` and `mount`
  // for tests: the process's list of groups and where they are mounted.
  void init(const char* groups = "/proc/self/cgroup", const char* mount = "/sys/fs/cgroup");

  // Freed memory that a rank may keep in each of two places: a small part of what each rank of a
  // full node has.
  uint64_t keep_bytes() const;
  // Free memory of the machine and of the groups; page cache that must be written back is not free.
  uint64_t free_bytes() const;
  // The same with page cache that the kernel drops when memory is wanted.
  uint64_t available_bytes() const;
  // Whether `bytes` more may get memory ahead of the program: not more than a quarter of a rank's
  // share of what is free and, with what was committed before, of the whole.
  bool may_commit(uint64_t bytes, uint64_t committed_bytes) const;

  uint64_t limit_bytes() const { return limit_bytes_; }

 private:
  static constexpr unsigned kMostGroups = 4;
  struct Group {
    uint64_t limit_bytes;
    char usage_path[256];
  };
  void add_groups(const char* mount, const char* path, const char* limit, const char* usage);

  uint64_t machine_bytes_ = 0;
  uint64_t limit_bytes_ = 0;  // the least of machine and groups
  uint64_t processors_ = 1;
  unsigned group_count_ = 0;
  Group groups_[kMostGroups] = {};
};

// Whether memory that this thread touches lies where any thread of the process would have put it:
// all processors it may use belong to one memory node, and no policy spreads its pages. To be asked
// before libraries bind threads. `nodes` for tests: the folder of the system that describes them.
bool within_one_node(const char* nodes = "/sys/devices/system/node");

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_BUDGET_H_
