// Address spaces: this process exposes its own to the local ranks, which attach to it through
// XPMEM, so that also buffers outside the reach file (memory/reach.h) can be read and written
// directly.
//
// What a peer is told is the address itself, marked so that it cannot be taken for an offset in the
// reach file. An address stays good as long as the program may not take the buffer away: from the
// call that gives it to MPI until the message is complete.
#ifndef OVERDRIVE_MEMORY_SPACE_H_
#define OVERDRIVE_MEMORY_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "memory/reach.h"
#include "memory/space_calls.h"

namespace od::memory {

// Marks an address where otherwise an offset in the reach file stands.
inline constexpr std::uint64_t kAddressMark = std::uint64_t{1} << 63;
// No program has buffers above it.
inline constexpr std::uint64_t kAddressLimit = std::uint64_t{1} << 57;

constexpr bool is_address(std::uint64_t place) { return (place & kAddressMark) != 0; }
constexpr std::uint64_t address_of(std::uint64_t place) { return place & ~kAddressMark; }

struct OwnSpace {
  std::int64_t id = 0;                // 0: not exposed
  std::uint64_t* proof = nullptr;     // two words where peers look for what the owner has told them
  const SpaceCalls* calls = nullptr;  // null: this process cannot attach either
};

// Exposes this process's address space if it is wanted and possible. Once per process; `calls`
// null: those of the machine's libxpmem.
void begin_space(bool wanted, const SpaceCalls* calls = nullptr);
// Peers can no longer attach. Before that nobody may be using what is attached.
void end_space();

const OwnSpace& own_space();
// Why nothing is exposed; empty: it is.
const std::string& space_why();

// Place of the range for peers that have opened this space, or kUnreachable when the memory is of a
// kind that could not be attached or be written to. Makes system calls (0.7 us; the first time 80
// ns for each page of 4 KiB that is there), so only for what will be copied that way. One thread at
// a time (the rank's lock, when the program is multi-threaded).
std::uint64_t space_place(const void* address, std::uint64_t bytes);

// Opens the space of a peer after having read `nonce` at `proof`, an address of the peer: a handle
// for SpaceCalls::attach, or 0.
std::int64_t open_space(std::int64_t id, std::uint64_t proof, const std::uint64_t* nonce);
void close_space(std::int64_t handle);

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_SPACE_H_
