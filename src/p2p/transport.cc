// Set-up of the transport, one round of progress, and the second look before sleeping.

#include "p2p/transport.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>

#include "memory/space.h"
#include "node/reach_file.h"
#include "observe/log.h"
#include "p2p/inbox.h"

namespace od::p2p {

namespace {

// Messages taken from one peer before the others get their turn.
constexpr int kBatch = 16;

// Free memory kept for the next self-buffered message before pages go back to the system.
constexpr std::uint64_t kKeepBufferBytes = 16u << 20;

// Chunks must be a power of two of lines and divide the pool.
std::uint64_t chunk_bytes_for(const config::Settings& settings, std::uint64_t pool_bytes) {
  const std::uint64_t wanted = std::bit_floor(std::max<std::uint64_t>(settings.cell_bytes, 1024));
  return std::min(wanted, pool_bytes);
}

}  // namespace

Transport::Transport(node::Node& node, node::WakeMode wake, const config::Settings& settings,
                     const host::HostTable& host, Matching& matching, observe::Counters& counters)
    : node_(node),
      wake_(wake),
      settings_(settings),
      host_(host),
      matching_(matching),
      counters_(counters),
      layout_(node.layout()),
      region_(node.member(node.my_index()).base),
      header_(node.member(node.my_index()).header),
      my_index_(static_cast<std::uint32_t>(node.my_index())),
      inline_max_(settings.inline_max_bytes),
      eager_max_(settings.eager_max_bytes),
      piece_bytes_(settings.piece_bytes),
      verify_(settings.verify),
      plan_(settings),
      windows_(static_cast<std::size_t>(node.size()),
               {.total_bytes = std::min(memory::SpaceWindows::Limits{}.total_bytes,
                                        node::reach_mapping_limit())},
               counters),
      heap_(layout_.buffers_offset, layout_.buffers_bytes, kKeepBufferBytes,
            [this](std::uint64_t offset, std::uint64_t bytes) { node_.punch(offset, bytes); }),
      pool_(region_, layout_.pool_offset, layout_.pool_bytes,
            chunk_bytes_for(settings, layout_.pool_bytes),
            reinterpret_cast<std::atomic<std::uint8_t>*>(region_ + layout_.releases_offset),
            layout_.release_count),
      envelopes_(region_, layout_.envelopes_offset, layout_.envelope_count, heap_) {
  const auto count = static_cast<std::uint32_t>(node.size());
  eager_max_ = std::min(eager_max_, pool_.chunk_bytes());
  // A message must fit a box several times over, or every one of them would fill it.
  if (layout_.box_bytes > sizeof(BoxHeader)) {
    const std::uint64_t lines = box_line_count(layout_.box_bytes);
    inline_max_ = std::min(inline_max_, lines / 4 * kContinuationPayloadBytes);
  }
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
  // Where ranks share cores the time between calls is that of others.
  if (plan_.chooses() && settings.learn == config::LearnMode::kOn && !node.oversubscribed()) {
    learnt_ = std::make_unique<PathTable>(counters, my_index_, count);
  }
  doorbells_seen_.assign((count + 63) / 64, 0);
  scratch_.resize(std::max({inline_max_, eager_max_, kFrameShortBytes}) + kHeadPayloadBytes);
  packed_.resize(inline_max_ + kHeadPayloadBytes);
}

Transport::~Transport() = default;

bool Transport::progress() {
  bool moved = false;
  watch_new_boxes();
  for (const std::uint32_t peer : watched_) moved |= take_from(peer, kBatch);
  if (inbox_waiting(header_->inbox)) [[unlikely]]
    moved |= take_inbox();
  if (!incoming_.empty()) [[unlikely]] {
    for (std::size_t i = 0; i < incoming_.size();) {
      moved |= advance_incoming(*incoming_[i]);
      if (incoming_[i]->request == nullptr) {
        spare_incoming_.push_back(std::move(incoming_[i]));
        incoming_.erase(incoming_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
  if (!parked_.empty()) [[unlikely]]
    moved |= deliver_parked();
  if (!outgoing_.empty()) [[unlikely]] {
    for (std::size_t i = 0; i < outgoing_.size();) {
      moved |= advance_outgoing(*outgoing_[i]);
      if (sender_done(*outgoing_[i])) {
        complete_send(*outgoing_[i]);
        lingering_.push_back(std::move(outgoing_[i]));
        outgoing_.erase(outgoing_.begin() + static_cast<std::ptrdiff_t>(i));
        moved = true;
      } else {
        ++i;
      }
    }
  }
  return moved;
}

bool Transport::anything_ready() const {
  for (const std::uint32_t peer : watched_) {
    if (frames_[peer].ready() || boxes_[peer].ready()) return true;
  }
  if (inbox_waiting(header_->inbox)) return true;
  for (std::size_t i = 0; i < doorbells_seen_.size(); ++i) {
    // Acquire: pairs with open_box.
    if (header_->box_doorbells[i].load(std::memory_order_acquire) != doorbells_seen_[i])
      return true;
  }
  for (const auto& stream : incoming_) {
    const std::uint64_t filled = stream->envelope->filled.load(std::memory_order_acquire);
    if (stream->cooperative ? filled + stream->drained == stream->bytes
                            : filled > stream->drained) {
      return true;
    }
  }
  for (const auto& stream : outgoing_) {
    const Envelope& envelope = *stream->envelope;
    if (untag_drained(envelope.drained.load(std::memory_order_acquire), envelope.generation) !=
        stream->drained_seen) {
      return true;
    }
    const EnvelopeState state = state_of(envelope);
    if (stream->filled == stream->bytes && !is_waiting(state)) return true;
    if (stream->offered && !is_waiting(state) && state != EnvelopeState::direct) return true;
  }
  return false;
}

void Transport::publish_consumed() {
  for (const std::uint32_t peer : watched_) {
    if (boxes_[peer].unpublished()) boxes_[peer].publish();
  }
}

void Transport::corrupt(std::uint32_t peer, const char* what) const {
  log(Level::kError,
      "rank %d of this node sent an impossible %s: its memory is damaged or it runs another "
      "version of Overdrive; ending the job (OVERDRIVE_DISABLE=1 runs it without Overdrive)",
      node_.member(static_cast<int>(peer)).world_rank, what);
  host_.abort(1);
  std::abort();  // not reached, which the pointer's type does not say
}

}  // namespace od::p2p
