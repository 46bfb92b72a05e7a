// Mapping reach files: verified in size and seal, so that no access within the size can fault;
// never in core files, where every hole would become memory.
#include "node/reach_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace od::node {
namespace {

constexpr std::uint64_t kMagic = 0x6f64207265616368;  // "od reach"
// Of 128 TiB that a process can address.
constexpr std::uint64_t kMostMappedBytes = std::uint64_t{64} << 40;

struct Header {
  std::uint64_t magic;
  std::uint64_t bytes;
  std::uint64_t nonce[2];
};

std::string error_text(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

}  // namespace

void write_reach_header(const ReachFile& file, const std::uint64_t (&nonce)[2]) {
  auto* header = reinterpret_cast<Header*>(file.start);
  header->bytes = file.bytes;
  header->nonce[0] = nonce[0];
  header->nonce[1] = nonce[1];
  // Pairs with the acquire in map_reach_file: a peer may open the file through /proc at any time.
  std::atomic_ref<std::uint64_t>(header->magic).store(kMagic, std::memory_order_release);
}

std::byte* map_reach_file(int fd, std::uint64_t bytes, const std::uint64_t (&nonce)[2],
                          std::string* why) {
  struct stat status;
  if (fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) != bytes ||
      bytes < sizeof(Header)) {
    *why = "the peer's reach file has another size than it told";
    return nullptr;
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    *why = "the peer's reach file is not sealed";
    return nullptr;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) {
    *why = error_text("the peer's reach file cannot be mapped");
    return nullptr;
  }
  madvise(memory, bytes, MADV_DONTDUMP);
  auto* header = static_cast<Header*>(memory);
  // Pairs with the release in write_reach_header.
  if (std::atomic_ref<std::uint64_t>(header->magic).load(std::memory_order_acquire) != kMagic ||
      header->bytes != bytes || header->nonce[0] != nonce[0] || header->nonce[1] != nonce[1]) {
    *why = "the reach file is not that of the peer";
    munmap(memory, bytes);
    return nullptr;
  }
  return static_cast<std::byte*>(memory);
}

void unmap_reach_file(std::byte* start, std::uint64_t bytes) {
  if (start != nullptr) munmap(start, bytes);
}

std::uint64_t reach_mapping_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMostMappedBytes;
  std::uint64_t used_pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    unsigned long long pages = 0;
    if (std::fscanf(file, "%llu", &pages) == 1) used_pages = pages;
    std::fclose(file);
  }
  const std::uint64_t used = used_pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  // A quarter of what is left: the program has not allocated its data yet. Arenas are made so that
  // those of a node fit (memory/heap/arena.cc).
  return used >= limit.rlim_cur ? 0 : std::min(kMostMappedBytes, (limit.rlim_cur - used) / 4);
}

}  // namespace od::node
