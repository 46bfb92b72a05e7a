// Attaching windows, and which of them make room.
#include "memory/space_windows.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "observe/log.h"

namespace od::memory {

SpaceWindows::SpaceWindows(std::size_t peers, const Limits& limits, observe::Counters& counters)
    : limits_(limits), counters_(counters), owner_(getpid()), peers_(peers) {}

SpaceWindows::~SpaceWindows() { close(); }

std::byte* SpaceWindows::attach(Peer& peer, std::uint64_t address, std::uint64_t bytes) {
  const auto down = [&](std::uint64_t unit) { return address / unit * unit; };
  const auto up = [&](std::uint64_t unit) { return (address + bytes + unit - 1) / unit * unit; };
  std::uint64_t start = down(limits_.unit_bytes);
  std::byte* here = attach_range(peer, start, up(limits_.unit_bytes));
  if (here == nullptr) {
    // The address space of the peer ends within the window, or there is no room for as much.
    start = down(kPageBytes);
    here = attach_range(peer, start, up(kPageBytes));
  }
  if (here != nullptr) {
    peer.refusals = 0;
    return here + (address - start);
  }
  ++counters_.xpmem_refused;
  OD_LOG_ONCE(Level::kInfo, "memory of a local rank cannot be attached: %s",
              errno != 0 ? std::strerror(errno) : "no address space left for it");
  if (++peer.refusals == kMostRefusals) peer.handle = 0;
  return nullptr;
}

std::byte* SpaceWindows::attach_range(Peer& peer, std::uint64_t start, std::uint64_t end) {
  errno = 0;
  if (!make_room(peer, end - start)) return nullptr;
  std::byte* const here = calls_->attach(peer.handle, start, end - start);
  if (here == nullptr) return nullptr;
  // What the new window covers is of no further use.
  for (std::size_t i = peer.windows.size(); i-- > 0;) {
    const Window& old = peer.windows[i];
    if (old.start >= start && old.start + old.bytes <= end) detach(peer, i);
  }
  peer.windows.push_back({start, end - start, here, ++clock_});
  total_bytes_ += end - start;
  ++counters_.xpmem_attached;
  return here;
}

bool SpaceWindows::make_room(Peer& peer, std::uint64_t bytes) {
  if (bytes > limits_.total_bytes) return false;
  const auto older = [](const Window& a, const Window& b) { return a.used < b.used; };
  if (peer.windows.size() >= limits_.per_peer) {
    const auto oldest = std::min_element(peer.windows.begin(), peer.windows.end(), older);
    detach(peer, static_cast<std::size_t>(oldest - peer.windows.begin()));
  }
  while (bytes > limits_.total_bytes - total_bytes_) {
    Peer* of = nullptr;
    std::size_t which = 0;
    for (Peer& candidate : peers_) {
      for (std::size_t i = 0; i < candidate.windows.size(); ++i) {
        if (of != nullptr && !older(candidate.windows[i], of->windows[which])) continue;
        of = &candidate;
        which = i;
      }
    }
    if (of == nullptr) return false;
    detach(*of, which);
  }
  return true;
}

void SpaceWindows::detach(Peer& peer, std::size_t index) {
  calls_->detach(peer.windows[index].here);
  total_bytes_ -= peer.windows[index].bytes;
  peer.windows.erase(peer.windows.begin() + static_cast<std::ptrdiff_t>(index));
  ++counters_.xpmem_detached;
}

void SpaceWindows::close() {
  for (Peer& peer : peers_) {
    // A forked child has none of the windows.
    while (!peer.windows.empty() && owner_ == getpid()) detach(peer, peer.windows.size() - 1);
    peer.windows.clear();
    peer.handle = 0;
  }
}

}  // namespace od::memory
