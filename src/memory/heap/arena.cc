// Making the reach file: see arena.h. No allocation, nothing that ends the process: exceeding
// RLIMIT_FSIZE would raise a signal, so it is read beforehand.
#include "memory/heap/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/round.h"
#include "memory/heap/size_classes.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u  // Linux 6.3
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace od::memory::heap {
namespace {

constexpr uint64_t kMostBytes = uint64_t{256} << 30;
// Below that an arena is not worth having.
constexpr uint64_t kLeastBytes = uint64_t{64} << 20;
// Part of a limited address space that the arenas of all ranks of a node may take together: what is
// not used of them is lost to the program, and each rank maps all of them. And that of one.
constexpr uint64_t kShareOfArenas = 8;
constexpr uint64_t kShareOfArena = 16;
// Where descriptors of ours are out of the program's way; shells use low numbers by themselves.
constexpr int kHighDescriptor = 900;

uint64_t soft_limit(int resource) {
  rlimit limit;
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY) {
    return ~uint64_t{0};
  }
  return limit.rlim_cur;
}

uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

int create_file() {
  // The name only shows in /proc/PID/maps. MFD_NOEXEC_SEAL is demanded by vm.memfd_noexec=2 and
  // unknown to older kernels.
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  long fd = syscall(SYS_memfd_create, "overdrive-reach", kFlags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) fd = syscall(SYS_memfd_create, "overdrive-reach", kFlags);
  if (fd < 0) return -1;
  const uint64_t limit = soft_limit(RLIMIT_NOFILE);
  const int from = static_cast<int>(least(limit / 2, kHighDescriptor));
  const int high = fcntl(static_cast<int>(fd), F_DUPFD_CLOEXEC, from);
  if (high < 0) return static_cast<int>(fd);
  close(static_cast<int>(fd));
  return high;
}

}  // namespace

const char* read_line(const char* path, char* buffer, uint64_t buffer_bytes) {
  buffer[0] = '\0';
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return buffer;
  const ssize_t got = read(fd, buffer, buffer_bytes - 1);
  close(fd);
  buffer[got > 0 ? got : 0] = '\0';
  if (char* end = strchr(buffer, '\n')) *end = '\0';
  return buffer;
}

bool Arena::create(uint64_t most_bytes, HugePages huge, const char** why, unsigned ranks) {
  struct sysinfo machine;
  uint64_t bytes = kMostBytes;
  if (sysinfo(&machine) == 0) bytes = least(bytes, 2 * machine.totalram * machine.mem_unit);
  if (most_bytes != 0) bytes = most_bytes;
  bytes = least(bytes, kMostBytes);
  bytes = least(bytes, soft_limit(RLIMIT_FSIZE));
  const bool limited_file = bytes < kLeastBytes;
  const uint64_t address_space = soft_limit(RLIMIT_AS);
  bytes = least(bytes, address_space / kShareOfArena);
  if (ranks > 1) bytes = least(bytes, address_space / kShareOfArenas / ranks);
  bytes = bytes / kHugeBytes * kHugeBytes;
  if (bytes < kLeastBytes) {
    *why = limited_file ? "the limit on file sizes (ulimit -f) is too low"
                        : "the limit on address space (ulimit -v) is too low";
    return false;
  }
  char line[16];
  if (strcmp(read_line("/proc/sys/vm/overcommit_memory", line, sizeof line), "2") == 0) {
    *why = "the kernel does not overcommit memory (vm.overcommit_memory=2)";
    return false;
  }
  fd_ = create_file();
  if (fd_ < 0) {
    *why = "no memfd can be made";
    return false;
  }
  start_ = nullptr;
  bytes_ = bytes;
  huge_ = huge;
  private_ = false;
  struct stat status;
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0 || fstat(fd_, &status) != 0 ||
      fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    *why = "the memfd cannot be sized";
    close(fd_);
    return false;
  }
  device_ = status.st_dev;
  inode_ = status.st_ino;
  // Huge pages need addresses and offsets that are multiples of theirs.
  void* reserved = mmap(nullptr, bytes + kHugeBytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    *why = "no address space";
    close(fd_);
    return false;
  }
  char* const from = static_cast<char*>(reserved);
  const uint64_t skip = (kHugeBytes - reinterpret_cast<uintptr_t>(from) % kHugeBytes) % kHugeBytes;
  start_ = from + skip;
  if (mmap(start_, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd_, 0) ==
      MAP_FAILED) {
    *why = "the memfd cannot be mapped";
    munmap(from, bytes + kHugeBytes);
    close(fd_);
    return false;
  }
  if (skip > 0) munmap(from, skip);
  munmap(start_ + bytes, kHugeBytes - skip);
  madvise(start_, bytes, MADV_DONTDUMP);
  return true;
}

void Arena::destroy() {
  munmap(start_, bytes_);
  const int fd = descriptor();
  if (fd >= 0) close(fd);
}

int Arena::descriptor() const {
  struct stat status;
  return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_
             ? fd_
             : -1;
}

bool Arena::open(char* start, uint64_t bytes) {
  if (mprotect(start, bytes, PROT_READ | PROT_WRITE) != 0) return false;
  madvise(start, bytes, MADV_DODUMP);
  if (huge_ == HugePages::kByKernel) madvise(start, bytes, MADV_HUGEPAGE);
  return true;
}

bool Arena::give_back(char* start, uint64_t bytes) {
  return madvise(start, bytes, private_ ? MADV_DONTNEED : MADV_REMOVE) == 0;
}

// System calls of its own throughout: the functions of those names are the loader's, which come to
// what calls this.
char* Arena::second_view() const {
  // Of nothing at the old place: the file is mapped at a new one as well. The first page is never
  // the program's.
  const long mapped = syscall(SYS_mremap, start_, 0, bytes_, MREMAP_MAYMOVE);
  if (mapped == -1) return nullptr;
  auto* const view = reinterpret_cast<char*>(mapped);
  if (syscall(SYS_mprotect, view, bytes_, PROT_READ | PROT_WRITE) == 0) return view;
  drop_view(view);
  return nullptr;
}

void Arena::drop_view(char* view) const { syscall(SYS_munmap, view, bytes_); }

void Arena::discard(uint64_t offset, uint64_t bytes) const {
  const int fd = descriptor();
  if (fd >= 0) {
    syscall(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset), static_cast<off_t>(bytes));
    return;
  }
  char* const view = second_view();
  if (view == nullptr) return;
  syscall(SYS_madvise, view + offset, bytes, MADV_REMOVE);
  drop_view(view);
}

bool Arena::map_at(void* start, uint64_t bytes, uint64_t offset, int access) const {
  const int fd = descriptor();
  if (fd >= 0) {
    return syscall(SYS_mmap, start, bytes, access, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
                   static_cast<off_t>(offset)) == reinterpret_cast<long>(start);
  }
  char* const view = second_view();
  if (view == nullptr) return false;
  const bool mapped = syscall(SYS_mremap, view + offset, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                              start) == reinterpret_cast<long>(start);
  drop_view(view);
  return mapped && syscall(SYS_mprotect, start, bytes, access) == 0;
}

bool collapse(char* start, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(start);
  const uintptr_t first = round_up(address, kHugeBytes);
  const uintptr_t end = round_down(address + bytes, kHugeBytes);
  if (first >= end) return false;
  // A huge page that is all hole cannot be collapsed: each gets one small page beforehand. By a
  // system call, which fails where a touch would end the program: the page may be one that its
  // owner has protected.
  for (uintptr_t at = first; at < end; at += kHugeBytes) {
    if (madvise(reinterpret_cast<void*>(at), kPageBytes, MADV_POPULATE_WRITE) != 0) return false;
  }
  // All at once: each call waits for every processor to hand in what it knows of fresh pages.
  return madvise(reinterpret_cast<void*>(first), end - first, MADV_COLLAPSE) == 0;
}

}  // namespace od::memory::heap
