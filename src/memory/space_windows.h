// The windows of peers' address spaces that are mapped in this process, most recently used first to
// stay.
//
// Windows are large and aligned, because attaching costs a system call and each page is mapped only
// when it is touched. They may have holes, and what lies behind them may come and go: the kernel
// follows the owner's own mappings. So a window is never out of date, and only what its owner has
// named in a message that is not complete may be touched in it.
//
// Used by one thread at a time (the rank's lock, when the program is multi-threaded).
#ifndef OVERDRIVE_MEMORY_SPACE_WINDOWS_H_
#define OVERDRIVE_MEMORY_SPACE_WINDOWS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/space_calls.h"
#include "observe/counters.h"

namespace od::memory {

class SpaceWindows {
 public:
  struct Limits {
    std::uint64_t unit_bytes = 64u << 20;  // windows begin and end at multiples
    std::size_t per_peer = 8;
    std::uint64_t total_bytes = std::uint64_t{1} << 42;  // of address space, all peers together
  };

  SpaceWindows(std::size_t peers, const Limits& limits, observe::Counters& counters);
  ~SpaceWindows();
  SpaceWindows(const SpaceWindows&) = delete;
  SpaceWindows& operator=(const SpaceWindows&) = delete;

  void use(const SpaceCalls* calls) { calls_ = calls; }
  // `handle` as open_space() has returned it; 0: the peer cannot be attached to.
  void open(std::size_t peer, std::int64_t handle) { peers_[peer].handle = handle; }
  bool open(std::size_t peer) const { return peers_[peer].handle != 0; }

  // Where [address, address + bytes) of the peer is in this process, until the next call; null: it
  // cannot be attached. `bytes` > 0, and the range is below kAddressLimit.
  std::byte* at(std::size_t peer, std::uint64_t address, std::uint64_t bytes) {
    Peer& p = peers_[peer];
    for (Window& window : p.windows) {
      const std::uint64_t position = address - window.start;
      if (position >= window.bytes || bytes > window.bytes - position) continue;
      window.used = ++clock_;
      return window.here + position;
    }
    return p.handle != 0 ? attach(p, address, bytes) : nullptr;
  }

  // Detaches everything and opens nothing any more.
  void close();

 private:
  struct Window {
    std::uint64_t start;  // in the peer
    std::uint64_t bytes;
    std::byte* here;
    std::uint64_t used;
  };
  struct Peer {
    std::int64_t handle = 0;
    std::uint32_t refusals = 0;
    std::vector<Window> windows;
  };
  // What does not work three times will not work later either.
  static constexpr std::uint32_t kMostRefusals = 3;
  static constexpr std::uint64_t kPageBytes = 4096;

  std::byte* attach(Peer& peer, std::uint64_t address, std::uint64_t bytes);
  std::byte* attach_range(Peer& peer, std::uint64_t start, std::uint64_t end);
  bool make_room(Peer& peer, std::uint64_t bytes);
  void detach(Peer& peer, std::size_t index);

  const SpaceCalls* calls_ = nullptr;
  Limits limits_;
  observe::Counters& counters_;
  pid_t owner_;
  std::vector<Peer> peers_;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_SPACE_WINDOWS_H_
