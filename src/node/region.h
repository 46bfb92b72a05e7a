// One rank's region: how large its parts are, making it, mapping a peer's and checking that it is
// the peer's.
#ifndef OVERDRIVE_NODE_REGION_H_
#define OVERDRIVE_NODE_REGION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "node/node.h"
#include "node/region_layout.h"

namespace od::node {

// Identity of a region: what its header must say.
struct RegionOwner {
  int world_rank = 0;
  std::uint32_t pid = 0;
  std::uint32_t version = kRegionVersion;
  std::uint64_t nonce[2] = {0, 0};
};

// The layout for `ranks` members, none if even the smallest usable one exceeds a limit: a region is
// a file of at most `file_limit_bytes`, and a rank maps `ranks` of them within
// `mapping_limit_bytes`.
std::optional<RegionLayout> plan_region(const RegionRequest& request, std::uint32_t ranks,
                                        std::uint64_t file_limit_bytes,
                                        std::uint64_t mapping_limit_bytes);
// The same, with an eighth of the limit on mappings where that will do, else a half: the program,
// which has not allocated its data yet, may have counted on all of its address space.
std::optional<RegionLayout> plan_sparing_region(const RegionRequest& request, std::uint32_t ranks,
                                                std::uint64_t file_limit_bytes,
                                                std::uint64_t mapping_limit_bytes);

// An empty memfd that can be sealed, or -1 (errno says why).
int create_region_file();

// Sizes and seals the file, maps it and writes the header; null on failure with a reason. The
// caller makes sure that the size is within RLIMIT_FSIZE: beyond it the kernel would send a signal.
std::byte* make_region(int fd, const RegionLayout& layout, const RegionOwner& owner,
                       std::string* why);

// The same in private memory, for a process that shares with nobody.
std::byte* make_private_region(const RegionLayout& layout, const RegionOwner& owner);

enum class MapResult { ok, not_yet, failed };

// Maps a peer's region and verifies everything its header says; `not_yet` when the peer has not
// finished making it. Nothing is mapped unless the result is ok. Does not close `fd`.
MapResult map_peer_region(int fd, const RegionLayout& layout, const RegionOwner& owner,
                          std::byte** base, std::string* why);

void unmap_region(std::byte* base, const RegionLayout& layout);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_REGION_H_
