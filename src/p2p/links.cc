// Set-up of the links, and the checks of what peers say.

#include "p2p/links.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "memory/space.h"
#include "node/reach_file.h"
#include "observe/log.h"

namespace od::p2p {

Links::Links(node::Node& node, node::WakeMode wake, const config::Settings& settings,
             const host::HostTable& host, observe::Counters& counters)
    : node_(node),
      wake_(wake),
      settings_(settings),
      host_(host),
      counters_(counters),
      layout_(node.layout()),
      region_(node.member(node.my_index()).base),
      header_(node.member(node.my_index()).header),
      my_index_(static_cast<std::uint32_t>(node.my_index())),
      windows_(static_cast<std::size_t>(node.size()),
               {.total_bytes = std::min(memory::SpaceWindows::Limits{}.total_bytes,
                                        node::reach_mapping_limit())},
               counters) {
  const auto count = static_cast<std::uint32_t>(node.size());
  links_.resize(count);
  boxes_.resize(count);
  frames_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const node::Member& member = node.member(static_cast<int>(i));
    Link& link = links_[i];
    link.header = member.header;
    link.armed = &member.header->armed;
    link.base = member.base;
    link.reach = member.reach;
    link.reach_bytes = member.reach_bytes;
    link.reaches_us = member.reaches_us;
    link.opens_us = member.opens_us;
    windows_.open(i, member.space);
    link.releases =
        reinterpret_cast<std::atomic<std::uint8_t>*>(member.base + layout_.releases_offset);
    if (i != my_index_) {
      frames_[i] = FrameSet(frame_at(region_, layout_, my_index_, i, count),
                            frame_at(member.base, layout_, i, my_index_, count));
    }
    boxes_[i] =
        BoxConsumer(region_ + layout_.boxes_offset + i * layout_.box_bytes, layout_.box_bytes);
  }
  windows_.use(memory::own_space().calls);
}

Envelope* Links::envelope_at(std::uint32_t peer, std::uint64_t offset) const {
  const std::uint64_t fixed_end =
      layout_.envelopes_offset + layout_.envelope_count * sizeof(Envelope);
  const std::uint64_t heap_end = layout_.buffers_offset + layout_.buffers_bytes;
  const bool fixed = offset >= layout_.envelopes_offset && offset + sizeof(Envelope) <= fixed_end;
  const bool heap = offset >= layout_.buffers_offset && offset + sizeof(Envelope) <= heap_end;
  if ((!fixed && !heap) || offset % alignof(Envelope) != 0) corrupt(peer, "envelope");
  return reinterpret_cast<Envelope*>(links_[peer].base + offset);
}

const std::byte* Links::payload_at(std::uint32_t peer, std::uint64_t offset,
                                   std::uint64_t bytes) const {
  const std::uint64_t pool_end = layout_.pool_offset + layout_.pool_bytes;
  const std::uint64_t heap_end = layout_.buffers_offset + layout_.buffers_bytes;
  const bool pool =
      offset >= layout_.pool_offset && offset <= pool_end && bytes <= pool_end - offset;
  const bool heap =
      offset >= layout_.buffers_offset && offset <= heap_end && bytes <= heap_end - offset;
  if (!pool && !heap) corrupt(peer, "payload address");
  return links_[peer].base + offset;
}

std::byte* Links::peer_bytes(std::uint32_t peer, std::uint64_t place, std::uint64_t bytes,
                             const char* what) {
  const Link& link = links_[peer];
  if (memory::is_address(place)) {
    const std::uint64_t address = memory::address_of(place);
    if (address > memory::kAddressLimit || bytes > memory::kAddressLimit - address) {
      corrupt(peer, what);
    }
    return windows_.at(peer, address, bytes);
  }
  if (link.reach == nullptr) return nullptr;
  if (place > link.reach_bytes || bytes > link.reach_bytes - place) corrupt(peer, what);
  return link.reach + place;
}

void Links::corrupt(std::uint32_t peer, const char* what) const {
  log(Level::kError,
      "rank %d of this node sent an impossible %s: its memory is damaged or it runs another "
      "version of Overdrive; ending the job (OVERDRIVE_DISABLE=1 runs it without Overdrive)",
      node_.member(static_cast<int>(peer)).world_rank, what);
  host_.abort(1);
  std::abort();  // not reached, which the pointer's type does not say
}

std::uint64_t Links::attachable_place(std::uint32_t peer, const void* address,
                                      std::uint64_t bytes) {
  if (!links_[peer].opens_us || bytes < settings_.xpmem_min_bytes) return memory::kUnreachable;
  const std::uint64_t place = memory::space_place(address, bytes);
  if (place == memory::kUnreachable) ++counters_.xpmem_unfit;
  return place;
}

void Links::note_attached(std::uint64_t place, std::uint64_t& messages, std::uint64_t bytes) {
  if (!memory::is_address(place)) return;
  ++messages;
  counters_.xpmem_bytes += bytes;
}

}  // namespace od::p2p
