// Regions are sparse memfds: sealed in size, so that no access within the verified size can fault;
// never in core dumps, because dumping would materialise every hole.
//
// The header's magic is written last (release) and read first (acquire): who sees it sees the rest,
// also when the file was opened through /proc while its owner was still making it.
#include "node/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/round.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u  // Linux 6.3
#endif

namespace od::node {
namespace {

// Below these sizes a region is not worth having.
constexpr std::uint64_t kLeastPoolBytes = 256 << 10;
constexpr std::uint64_t kLeastBuffersBytes = 1 << 20;
constexpr std::uint64_t kLeastSlotBytes = 64 << 10;
// All buffers of a node together; the address space and the accounting tools have limits.
constexpr std::uint64_t kMostNodeBuffersBytes = std::uint64_t{64} << 30;

// Of all frames of one region together.
std::uint64_t frames_bytes(const RegionLayout& layout) {
  return layout.frame_count * (kFrameHeadBytes + layout.frame_bytes);
}

// Slots get smaller before there are fewer of them.
void shrink_slots(RegionLayout& layout) {
  if (layout.slot_bytes / 2 >= kLeastSlotBytes) {
    layout.slot_bytes = round_down(layout.slot_bytes / 2, kPageBytes);
  } else {
    layout.slot_count /= 2;
  }
  if (layout.slot_count == 0) layout.slot_bytes = 0;
}

// As many slots of the wished size as the node may have.
void plan_slots(const RegionRequest& request, std::uint32_t ranks, RegionLayout& layout) {
  layout.slot_count = request.slot_count;
  layout.slot_bytes = round_down(request.slot_bytes, kPageBytes);
  if (ranks < 2 || layout.slot_bytes < kLeastSlotBytes) layout.slot_count = 0;
  if (layout.slot_count == 0) layout.slot_bytes = 0;
  const std::uint64_t budget = request.node_slots_bytes / ranks;
  while (layout.slot_count * layout.slot_bytes > budget) shrink_slots(layout);
}
std::uint64_t slots_bytes(const RegionLayout& layout) {
  return layout.slot_count * layout.slot_bytes;
}

std::string error_text(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

bool same_layout(const RegionLayout& a, const RegionLayout& b) {
  return a.total_bytes == b.total_bytes && a.boxes_offset == b.boxes_offset &&
         a.box_bytes == b.box_bytes && a.box_count == b.box_count &&
         a.release_count == b.release_count && a.releases_offset == b.releases_offset &&
         a.envelopes_offset == b.envelopes_offset && a.envelope_count == b.envelope_count &&
         a.pool_offset == b.pool_offset && a.pool_bytes == b.pool_bytes &&
         a.frames_offset == b.frames_offset && a.frame_bytes == b.frame_bytes &&
         a.frame_count == b.frame_count && a.slots_offset == b.slots_offset &&
         a.slot_bytes == b.slot_bytes && a.slot_count == b.slot_count &&
         a.buffers_offset == b.buffers_offset && a.buffers_bytes == b.buffers_bytes;
}

std::atomic_ref<std::uint64_t> magic_of(RegionHeader* header) {
  return std::atomic_ref<std::uint64_t>(header->magic);
}

void write_header(std::byte* base, const RegionLayout& layout, const RegionOwner& owner) {
  // The memory is zero: atomics start as 0, which is RankPhase::joining and an empty inbox.
  auto* header = new (base) RegionHeader;
  header->version = owner.version;
  header->header_bytes = sizeof(RegionHeader);
  header->nonce[0] = owner.nonce[0];
  header->nonce[1] = owner.nonce[1];
  header->world_rank = owner.world_rank;
  header->pid = owner.pid;
  header->layout = layout;
  // Pairs with the acquire in map_peer_region.
  magic_of(header).store(kRegionMagic, std::memory_order_release);
}

}  // namespace

std::optional<RegionLayout> plan_region(const RegionRequest& request, std::uint32_t ranks,
                                        std::uint64_t file_limit_bytes,
                                        std::uint64_t mapping_limit_bytes) {
  RegionLayout layout;
  layout.box_count = ranks;
  layout.box_bytes = round_up(request.box_bytes, kFalseSharingBytes);
  layout.boxes_offset = round_up(sizeof(RegionHeader), kPageBytes);
  layout.release_count = request.release_count;
  layout.releases_offset =
      round_up(layout.boxes_offset + layout.box_bytes * ranks, kFalseSharingBytes);
  layout.envelope_count = request.envelope_count;
  layout.envelopes_offset = round_up(layout.releases_offset + request.release_count, kPageBytes);
  layout.pool_offset = round_up(
      layout.envelopes_offset + request.envelope_count * request.envelope_bytes, kPageBytes);
  layout.pool_bytes = round_up(request.pool_bytes, kPageBytes);
  layout.frame_bytes = round_down(request.frame_bytes, kPageBytes);
  layout.frame_count = layout.frame_bytes == 0 ? 0 : std::min(request.frame_count, ranks - 1);
  plan_slots(request, ranks, layout);

  const std::uint64_t limit =
      round_down(std::min(file_limit_bytes, mapping_limit_bytes / ranks), kPageBytes);
  const std::uint64_t wanted =
      round_up(std::min(request.buffers_bytes, kMostNodeBuffersBytes / ranks), kPageBytes);
  const std::uint64_t least_buffers = std::min(wanted, kLeastBuffersBytes);
  // Halving keeps the pool a multiple of any cell size that fits the smallest pool.
  while (layout.pool_offset + layout.pool_bytes + frames_bytes(layout) + slots_bytes(layout) +
             least_buffers >
         limit) {
    if (layout.slot_count > 0) {
      shrink_slots(layout);
      continue;
    }
    if (layout.frame_count > 0) {
      layout.frame_count = 0;
      continue;
    }
    if (layout.pool_bytes / 2 < kLeastPoolBytes) return std::nullopt;
    layout.pool_bytes = round_up(layout.pool_bytes / 2, kPageBytes);
  }
  layout.frames_offset = layout.pool_offset + layout.pool_bytes;
  layout.slots_offset = layout.frames_offset + frames_bytes(layout);
  layout.buffers_offset = layout.slots_offset + slots_bytes(layout);
  layout.buffers_bytes = std::min(wanted, limit - layout.buffers_offset);
  layout.total_bytes = layout.buffers_offset + layout.buffers_bytes;
  return layout;
}

std::optional<RegionLayout> plan_sparing_region(const RegionRequest& request, std::uint32_t ranks,
                                                std::uint64_t file_limit_bytes,
                                                std::uint64_t mapping_limit_bytes) {
  for (const std::uint64_t part : {8, 2, 1}) {
    const auto layout = plan_region(request, ranks, file_limit_bytes, mapping_limit_bytes / part);
    if (layout) return layout;
  }
  return std::nullopt;
}

int create_region_file() {
  // The name only shows in /proc/PID/maps. The system call and not the library's function: that one
  // is missing from old C libraries. MFD_NOEXEC_SEAL is demanded by vm.memfd_noexec=2 and unknown
  // to older kernels.
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  long fd = syscall(SYS_memfd_create, "overdrive", kFlags | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) fd = syscall(SYS_memfd_create, "overdrive", kFlags);
  return static_cast<int>(fd);
}

std::byte* make_region(int fd, const RegionLayout& layout, const RegionOwner& owner,
                       std::string* why) {
  if (ftruncate(fd, static_cast<off_t>(layout.total_bytes)) != 0) {
    *why = error_text("cannot size the shared region");
    return nullptr;
  }
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    *why = error_text("cannot seal the shared region");
    return nullptr;
  }
  void* memory =
      mmap(nullptr, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) {
    *why = error_text("cannot map the shared region");
    return nullptr;
  }
  madvise(memory, layout.total_bytes, MADV_DONTDUMP);
  auto* base = static_cast<std::byte*>(memory);
  write_header(base, layout, owner);
  return base;
}

std::byte* make_private_region(const RegionLayout& layout, const RegionOwner& owner) {
  void* memory = mmap(nullptr, layout.total_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, layout.total_bytes, MADV_DONTDUMP);
  auto* base = static_cast<std::byte*>(memory);
  write_header(base, layout, owner);
  return base;
}

MapResult map_peer_region(int fd, const RegionLayout& layout, const RegionOwner& owner,
                          std::byte** base, std::string* why) {
  struct stat status;
  if (fstat(fd, &status) != 0) {
    *why = error_text("cannot examine the peer's region");
    return MapResult::failed;
  }
  if (status.st_size == 0) return MapResult::not_yet;
  if (static_cast<std::uint64_t>(status.st_size) != layout.total_bytes) {
    *why = "the peer's region has another size";
    return MapResult::failed;
  }
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    *why = error_text("the peer's region is not a memfd");
    return MapResult::failed;
  }
  if ((seals & F_SEAL_SHRINK) == 0) return MapResult::not_yet;
  void* memory =
      mmap(nullptr, layout.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) {
    *why = error_text("cannot map the peer's region");
    return MapResult::failed;
  }
  madvise(memory, layout.total_bytes, MADV_DONTDUMP);
  auto* header = static_cast<RegionHeader*>(memory);
  MapResult result = MapResult::ok;
  // Pairs with the release in write_header.
  const std::uint64_t magic = magic_of(header).load(std::memory_order_acquire);
  if (magic == 0) {
    result = MapResult::not_yet;
  } else if (magic != kRegionMagic || header->version != owner.version ||
             header->header_bytes != sizeof(RegionHeader)) {
    *why = "the peer's region is of another version";
    result = MapResult::failed;
  } else if (header->nonce[0] != owner.nonce[0] || header->nonce[1] != owner.nonce[1] ||
             header->world_rank != owner.world_rank || header->pid != owner.pid ||
             !same_layout(header->layout, layout)) {
    *why = "the region is not that of the peer";
    result = MapResult::failed;
  }
  if (result == MapResult::ok) {
    *base = static_cast<std::byte*>(memory);
  } else {
    munmap(memory, layout.total_bytes);
  }
  return result;
}

void unmap_region(std::byte* base, const RegionLayout& layout) {
  if (base != nullptr) munmap(base, layout.total_bytes);
}

}  // namespace od::node
