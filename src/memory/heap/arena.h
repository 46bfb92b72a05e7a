// The reach file of this process and its mapping: a sparse memfd, sized and sealed once.
//
// The whole range is mapped at once, inaccessible and left out of core files; the allocator opens
// it piece by piece. So neither a core file nor mlockall() fills what was never used. The
// descriptor stays open for peers; programs close descriptors that they do not know, so
// descriptor() tells whether the number still is the file. Without it the file is reached by a
// second mapping of it.
#ifndef OVERDRIVE_MEMORY_HEAP_ARENA_H_
#define OVERDRIVE_MEMORY_HEAP_ARENA_H_

#include <stdint.h>
#include <sys/types.h>

namespace od::memory::heap {

// What large blocks get instead of pages of 4 KiB.
enum class HugePages : uint8_t {
  kNone,
  kByKernel,  // faults in shared memory bring huge pages where it is advised
  kCollapse,  // ours to make: MADV_COLLAPSE when a block is handed out
};

inline constexpr uint64_t kHugeBytes = 2 << 20;

class Arena {
 public:
  // False with a reason; nothing is left then. `most_bytes` 0: twice the machine's memory, at most
  // 256 GiB. Limits of the process (ulimit -v, -f) make it smaller or refuse it; `ranks`: of this
  // node, each with an arena, or 0.
  bool create(uint64_t most_bytes, HugePages huge, const char** why, unsigned ranks = 0);
  void destroy();  // for tests

  char* start() const { return start_; }
  uint64_t bytes() const { return bytes_; }
  // -1 when the descriptor was lost.
  int descriptor() const;
  // After the shared pages were replaced by private ones (a forked child).
  void became_private() { private_ = true; }
  bool is_private() const { return private_; }

  bool open(char* start, uint64_t bytes);
  bool give_back(char* start, uint64_t bytes);

  // What belongs to the file and not to where it is mapped, and so goes whatever the program has
  // mapped or protected there. Not for private arenas.
  void discard(uint64_t offset, uint64_t bytes) const;
  bool map_at(void* start, uint64_t bytes, uint64_t offset, int access) const;
  // All of it once more, for reading and writing; null where the kernel refuses.
  char* second_view() const;
  void drop_view(char* view) const;

 private:
  char* start_ = nullptr;
  uint64_t bytes_ = 0;
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  HugePages huge_ = HugePages::kNone;
  bool private_ = false;
};

// Gives the range huge pages where whole ones fit; false when the kernel refuses, for example
// because part of it is protected. What was not there gets memory, contents stay; others may own
// part of the range and write to it meanwhile.
bool collapse(char* start, uint64_t bytes);

// The first line of a small file of the system, or "" when it cannot be read.
const char* read_line(const char* path, char* buffer, uint64_t buffer_bytes);

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_ARENA_H_
