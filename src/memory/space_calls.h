// Attaching to the address space of another process, as libxpmem offers it: a table of functions.
//
// Everything above works with the table alone, so that it is built and tested everywhere; only
// xpmem.cc needs the header of the library, and the library itself is loaded when a rank starts.
#ifndef OVERDRIVE_MEMORY_SPACE_CALLS_H_
#define OVERDRIVE_MEMORY_SPACE_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace od::memory {

struct SpaceCalls {
  // Offers the whole address space of this process to processes of the same user: a number that
  // they can open, positive; -1: refused (errno).
  std::int64_t (*expose)();
  void (*withdraw)(std::int64_t id);
  // Asks for access to what a peer has exposed: a handle, positive; -1: refused (errno).
  std::int64_t (*open)(std::int64_t id);
  void (*close)(std::int64_t handle);
  // Maps [address, address + bytes) of the peer, whole pages, read and write; null: refused
  // (errno). There may be holes in it: only an access to one fails, with SIGBUS.
  std::byte* (*attach)(std::int64_t handle, std::uint64_t address, std::uint64_t bytes);
  // Takes what attach() has returned. Such memory must never be unmapped in any other way: the
  // kernel module ends the process that does.
  void (*detach)(std::byte* start);
};

// The table of the machine's libxpmem; null with a reason.
const SpaceCalls* xpmem_calls(std::string* why);

// "", or why this library cannot use XPMEM wherever it runs.
const char* xpmem_not_built();

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_SPACE_CALLS_H_
