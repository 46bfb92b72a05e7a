// The reach files of a node: each rank's sparse memfd of buffers that its peers may map.
//
// The first page is a header with the owner's nonce, by which a peer makes sure that a descriptor
// really is the owner's reach file. The owner writes it before it tells anybody about the file.
#ifndef OVERDRIVE_NODE_REACH_FILE_H_
#define OVERDRIVE_NODE_REACH_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace od::node {

// What a rank wants its peers to reach; its own mapping is the heap's.
struct ReachFile {
  int fd = -1;                 // -1: nothing
  std::byte* start = nullptr;  // own mapping of the first page
  std::uint64_t bytes = 0;     // of the file
};

void write_reach_header(const ReachFile& file, const std::uint64_t (&nonce)[2]);

// Maps a peer's whole file, read and write; null with a reason when it is not what the peer told or
// there is no room for it. Does not close `fd`.
std::byte* map_reach_file(int fd, std::uint64_t bytes, const std::uint64_t (&nonce)[2],
                          std::string* why);

void unmap_reach_file(std::byte* start, std::uint64_t bytes);

// How much address space this process may spend on its peers' reach files.
std::uint64_t reach_mapping_limit();

}  // namespace od::node

#endif  // OVERDRIVE_NODE_REACH_FILE_H_
