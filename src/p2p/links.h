// The links of a rank to all others of its node, what these send it messages through (frames and
// boxes), and the only place where what a peer says becomes an address.
//
// Invariants:
//  - An offset or address that a peer has told becomes a pointer by envelope_at(), payload_at() and
//    peer_bytes() only; what cannot be true ends the job (corrupt()).
//  - The three arrays are by node index, as many as there are ranks, and never move: who sends and
//    who receives keep pointers to them.
//  - A pointer of peer_bytes() is good until its next call, which may give up the window.
#ifndef OVERDRIVE_P2P_LINKS_H_
#define OVERDRIVE_P2P_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "config/settings.h"
#include "host/host_table.h"
#include "memory/space_windows.h"
#include "node/node.h"
#include "node/wait.h"
#include "observe/counters.h"
#include "p2p/envelope.h"
#include "p2p/fast_box.h"
#include "p2p/frames.h"
#include "p2p/link.h"

namespace od::p2p {

class Links {
 public:
  Links(node::Node& node, node::WakeMode wake, const config::Settings& settings,
        const host::HostTable& host, observe::Counters& counters);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  // --- this rank -----------------------------------------------------------------------------
  node::Node& node() { return node_; }
  const node::RegionLayout& layout() const { return layout_; }
  std::byte* region() const { return region_; }
  node::RegionHeader* header() const { return header_; }
  std::uint32_t my_index() const { return my_index_; }
  node::WakeMode wake_mode() const { return wake_; }

  // --- its peers -----------------------------------------------------------------------------
  std::uint32_t count() const { return static_cast<std::uint32_t>(links_.size()); }
  Link& operator[](std::uint32_t peer) { return links_[peer]; }
  const Link& operator[](std::uint32_t peer) const { return links_[peer]; }
  FrameSet& frames(std::uint32_t peer) { return frames_[peer]; }
  Link* all_links() { return links_.data(); }
  FrameSet* all_frames() { return frames_.data(); }
  BoxConsumer* all_boxes() { return boxes_.data(); }

  void wake(std::uint32_t peer) { node::wake_if_armed(*links_[peer].armed, wake_); }
  // A message has been read, or will never be: its frame is ours now. `frame`: index plus one, or
  // 0.
  void keep_frame(std::uint32_t peer, std::uint8_t frame) {
    if (frame != 0) frames_[peer].keep(frame - 1u);
  }

  // --- what peers say ------------------------------------------------------------------------
  Envelope* envelope_at(std::uint32_t peer, std::uint64_t offset) const;
  // Of pool or buffer heap.
  const std::byte* payload_at(std::uint32_t peer, std::uint64_t offset, std::uint64_t bytes) const;
  // Where a place that a peer has told (an offset in its reach file, or a marked address) is in
  // this process, until the next call; null: it cannot be reached. A place that no buffer of the
  // peer can have ends the job.
  std::byte* peer_bytes(std::uint32_t peer, std::uint64_t place, std::uint64_t bytes,
                        const char* what);
  [[noreturn]] void corrupt(std::uint32_t peer, const char* what) const;

  // --- what peers are told -------------------------------------------------------------------
  // Place of an own buffer for a peer that attaches, if it is worth it; kUnreachable.
  std::uint64_t attachable_place(std::uint32_t peer, const void* address, std::uint64_t bytes);
  // Whether this rank can write into buffers of the peer, as far as it is known beforehand.
  bool opens(std::uint32_t peer) const {
    return links_[peer].reach != nullptr || windows_.open(peer);
  }
  // Counts what has been copied from or to a place, if it is in an attached window.
  void note_attached(std::uint64_t place, std::uint64_t& messages, std::uint64_t bytes);
  // Before the rank leaves: nothing of the peers' address spaces is attached any more.
  void close_spaces() { windows_.close(); }

 private:
  node::Node& node_;
  node::WakeMode wake_;
  const config::Settings& settings_;
  const host::HostTable& host_;
  observe::Counters& counters_;
  const node::RegionLayout& layout_;
  std::byte* region_;           // own
  node::RegionHeader* header_;  // own
  std::uint32_t my_index_;
  std::vector<Link> links_;
  std::vector<BoxConsumer> boxes_;
  std::vector<FrameSet> frames_;
  memory::SpaceWindows windows_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_LINKS_H_
