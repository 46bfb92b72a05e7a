// The sending half of the transport: choice of path, fast boxes, listed messages, cells.

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "memory/copy.h"
#include "observe/log.h"
#include "p2p/inbox.h"
#include "p2p/opaque.h"
#include "p2p/transport.h"

namespace od::p2p {

namespace {

// How long a sender waits for room in a box. Twice the time in which a far receiver at work (0.3 us
// a message) comes to tell of room; a small part of what filling the box took, when nobody empties
// it. Nobody does as a rule where ranks share cores.
constexpr std::uint64_t kBoxPatienceNs = 10'000;
constexpr std::uint64_t kSharedBoxPatienceNs = 500;

// Messages taken between two looks for room.
constexpr int kTakeWhileWaiting = 4;

// A sender looks once in so many listed messages whether its receiver is at work.
constexpr std::uint8_t kListInterval = 64;
static_assert(256 % kListInterval == 0);
// Longest wait for a receiver at work: 1.6 us a message, four times what taking one costs. A slower
// receiver, which does other things in between, does not hold its sender up for more.
constexpr std::uint64_t kListPatienceNs = 100'000;

// Copies that are long enough to tell how fast stores are.
constexpr std::uint64_t kTimedCopyBytes = 4096;

}  // namespace

bool Transport::open_box(std::uint32_t peer) {
  Link& link = links_[peer];
  if (link.box.open()) return true;
  if (link.box_refused || layout_.box_bytes <= sizeof(BoxHeader)) return false;
  // Relaxed: only the count matters.
  if (link.header->boxes_opened.fetch_add(1, std::memory_order_relaxed) >=
      static_cast<std::uint32_t>(settings_.fastbox_peers)) {
    link.box_refused = true;
    ++counters_.box_refused;
    return false;
  }
  link.box = BoxProducer(link.base + layout_.boxes_offset + my_index_ * layout_.box_bytes,
                         layout_.box_bytes);
  // Release: pairs with the acquire in watch_new_boxes.
  link.header->box_doorbells[my_index_ / 64].fetch_or(std::uint64_t{1} << (my_index_ % 64),
                                                      std::memory_order_release);
  return true;
}

bool Transport::usable_box(std::uint32_t peer, std::uint32_t bytes) {
  Link& link = links_[peer];
  if (!open_box(peer) || !link.direct()) return false;
  if (link.box.has_room(bytes)) return true;
  // Waiting for a receiver at work is cheaper than the list, for both: what comes by the list it
  // takes all at once, and copies what it has not asked for yet. Once something is listed, all goes
  // there until the list has been taken, so a receiver that is away is waited for once.
  const std::uint64_t patience = node_.oversubscribed() ? kSharedBoxPatienceNs : kBoxPatienceNs;
  const std::uint64_t start = now_ns();
  do {
    // The receiver may be sending to us just as much, and wait for room in its turn.
    if (!take_from(peer, kTakeWhileWaiting)) pause_processor();
    if (link.box.has_room(bytes)) return true;
  } while (now_ns() - start < patience);
  ++counters_.box_full;
  return false;
}

bool Transport::list_drains(std::uint32_t peer) {
  // A sender that lists faster than its receiver takes would do so for ever: everything would wait
  // in memory, and be matched late, for a receiver that is at work all the time.
  Link& link = links_[peer];
  if (++link.posts_behind_list % kListInterval != 0) return false;
  if (node_.oversubscribed()) {
    sched_yield();  // the receiver may be waiting for this core
    return link.direct();
  }
  // What the receiver does with listed messages: takes them, and later, when the program asks for
  // those that came unexpected, gives them back. While it does the latter it takes nothing.
  const auto work_seen = [&] { return link.box.listed_taken() + link.listed_given_back; };
  std::uint64_t seen = work_seen();
  if (seen == link.stuck_at) return false;
  const std::uint64_t start = now_ns();
  std::uint64_t last = start;
  while (!link.direct()) {
    if (!take_from(peer, kTakeWhileWaiting)) pause_processor();
    collect_lingering(false);
    const std::uint64_t now = now_ns();
    const std::uint64_t work = work_seen();
    if (work != seen) {
      seen = work;
      last = now;
    } else if (now - last >= kBoxPatienceNs) {
      link.stuck_at = seen;
      return false;
    }
    if (now - start >= kListPatienceNs) return false;
  }
  return true;
}

bool Transport::post(std::uint32_t peer, const MessageHeader& header, const void* data,
                     std::uint32_t bytes) {
  Link& link = links_[peer];
  FrameSet& frames = frames_[peer];
  if (!open_box(peer) || !(link.direct() || list_drains(peer))) return false;
  const unsigned frame = frames.held();
  if (frame != FrameSet::kNone && bytes <= kFrameShortBytes) {
    frames.put(frame, header, data, bytes, link.box.messages());
  } else if (usable_box(peer, bytes)) {
    link.box.put(header, data, bytes, frames.sent());
  } else {
    return false;
  }
  node::wake_if_armed(*link.armed, wake_);
  return true;
}

void Transport::list_envelope(std::uint32_t peer, Envelope& envelope, const MessageHeader& header,
                              std::uint64_t bytes) {
  envelope.context = header.context;
  envelope.tag = header.tag;
  envelope.source = header.source;
  envelope.kind = header.kind;
  envelope.header_checksum = header.checksum;
  envelope.bytes = bytes;
  Link& link = links_[peer];
  link.last_listed = &envelope;
  inbox_push(link.header->inbox, envelope, make_link(my_index_, envelopes_.offset_of(envelope)));
  node::wake_if_armed(*link.armed, wake_);
}

bool Transport::copy_in(StoreSpeed& stores, void* to, const void* from, std::uint64_t bytes,
                        bool seen) {
  using config::CopyMode;
  const bool large = bytes >= settings_.nontemporal_min_bytes;
  bool nontemporal = settings_.copy == CopyMode::kNontemporal ||
                     (settings_.copy == CopyMode::kAuto && stores.slow());
  nontemporal = nontemporal && large;
  // Timing pays only for copies of some microseconds, and those are the ones that matter. Cells
  // that nobody has read yet tell nothing about the reader.
  const bool sample = settings_.copy == CopyMode::kAuto && bytes >= kTimedCopyBytes && seen &&
                      stores.wants_sample();
  if (sample) nontemporal = false;
  const std::uint64_t start = sample ? now_ns() : 0;
  if (nontemporal) {
    memory::copy_nontemporal(to, from, bytes);
    counters_.nontemporal_bytes += bytes;
  } else {
    std::memcpy(to, from, bytes);
    counters_.ordinary_bytes += bytes;
  }
  if (sample) stores.sample(bytes, now_ns() - start);
  return nontemporal;
}

unsigned Transport::frame_for_payload(std::uint32_t peer) {
  Link& link = links_[peer];
  if (settings_.copy == config::CopyMode::kNontemporal || layout_.frame_bytes == 0 ||
      !open_box(peer) || !link.direct()) {
    return FrameSet::kNone;
  }
  const unsigned frame = frames_[peer].held();
  const bool judged = settings_.copy == config::CopyMode::kAuto;
  if (frame != FrameSet::kNone && judged && link.frame_stores.slow() &&
      !link.frame_stores.wants_sample()) {
    return FrameSet::kNone;
  }
  return frame;
}

void Transport::copy_into_frame(Link& link, void* to, const void* from, std::uint64_t bytes,
                                bool seen) {
  StoreSpeed& stores = link.frame_stores;
  const bool sample = seen && bytes >= kTimedCopyBytes && (stores.slow() || stores.wants_sample());
  const std::uint64_t start = sample ? now_ns() : 0;
  std::memcpy(to, from, bytes);
  if (sample) stores.sample(bytes, now_ns() - start);
  counters_.ordinary_bytes += bytes;
}

int Transport::send(std::uint32_t peer, const MessageHeader& header_in, const Payload& payload,
                    SendMode mode, Request& request) {
  MessageHeader header = header_in;
  std::unique_ptr<char[]> packed;
  Payload view = payload;
  const Layout& layout = **payload.layout;
  if (layout.shape == Shape::opaque && payload.bytes > 0) {
    packed.reset(new (std::nothrow) char[payload.bytes]);
    if (packed == nullptr) return host_.err_no_mem;
    const int error = pack_opaque(host_, layout, payload.address, payload.count, packed.get(),
                                  static_cast<std::int64_t>(payload.bytes));
    if (error != host::kSuccess) return error;
    if (packed_by_host(layout)) ++counters_.layouts_host_packed;
    view.contiguous = packed.get();
  }
  Cursor cursor;
  Cursor* walk = nullptr;
  if (view.contiguous == nullptr && view.bytes > 0) {
    cursor = Cursor(const_cast<void*>(payload.address), payload.count, layout);
    walk = &cursor;
    ++counters_.layouts_direct;
  }
  ChosenPath chosen;
  // A buffered send may not wait for its receiver.
  if (view.bytes >= plan_.floor_bytes() && mode != SendMode::buffered)
    chosen = choose_path(peer, view);
  if (mode != SendMode::synchronous) {
    if (view.bytes <= inline_max_) {
      const auto bytes = static_cast<std::uint32_t>(view.bytes);
      const void* data = view.contiguous;
      if (walk != nullptr) {
        Cursor once = cursor;
        once.pack(packed_.data(), bytes, memory::copy_ordinary);
        data = packed_.data();
      }
      if (verify_) {
        header.checksum =
            memory::checksum_fold(memory::checksum_update(memory::kChecksumStart, data, bytes));
      }
      header.kind = Kind::inline_data;
      if (post(peer, header, data, bytes)) {
        ++counters_.sends_inline;
        counters_.bytes_inline += bytes;
        request.complete = true;
        return host::kSuccess;
      }
      if (bytes <= kEnvelopeInlineBytes) {
        collect_lingering(false);
        if (Envelope* envelope = envelopes_.allocate()) {
          if (bytes > 0) std::memcpy(envelope->payload, data, bytes);
          list_envelope(peer, *envelope, header, bytes);
          listed_.push_back({envelope, peer});
          ++counters_.sends_inline;
          counters_.bytes_inline += bytes;
          request.complete = true;
          return host::kSuccess;
        }
      }
    }
    if (chosen.path == Path::cells && view.bytes <= eager_max_ &&
        (send_frame(peer, header, view, walk) || send_cell(peer, header, view, walk))) {
      request.complete = true;
      return host::kSuccess;
    }
  }
  return send_stream(peer, header, view, walk, std::move(packed), mode, chosen, request);
}

bool Transport::send_frame(std::uint32_t peer, MessageHeader header, const Payload& payload,
                           Cursor* cursor) {
  if (payload.bytes > std::min(layout_.frame_bytes, FrameControl::kMaxBytes)) return false;
  const unsigned frame = frame_for_payload(peer);
  if (frame == FrameSet::kNone) return false;
  Link& link = links_[peer];
  FrameSet& frames = frames_[peer];
  std::byte* const to = frames.payload(frame);
  if (cursor != nullptr) {
    cursor->pack(to, payload.bytes, memory::copy_ordinary);
    counters_.ordinary_bytes += payload.bytes;
  } else {
    copy_into_frame(link, to, payload.contiguous, payload.bytes, frames.seen(frame));
  }
  if (verify_) {
    header.checksum =
        memory::checksum_fold(memory::checksum_update(memory::kChecksumStart, to, payload.bytes));
  }
  header.kind = Kind::frame;
  frames.hand_over(frame, header, payload.bytes, link.box.messages());
  node::wake_if_armed(*link.armed, wake_);
  ++counters_.sends_frame;
  counters_.bytes_frame += payload.bytes;
  return true;
}

bool Transport::send_cell(std::uint32_t peer, MessageHeader header, const Payload& payload,
                          Cursor* cursor) {
  Link& link = links_[peer];
  const bool boxed = usable_box(peer, sizeof(CellDescriptor));
  Envelope* envelope = nullptr;
  if (!boxed) {
    collect_lingering(false);
    envelope = envelopes_.allocate();
    if (envelope == nullptr) return false;
  }
  CellDescriptor cell;
  if (!pool_.allocate(payload.bytes, &cell)) {
    collect_lingering(true);
    if (!pool_.allocate(payload.bytes, &cell)) {
      if (envelope != nullptr) envelopes_.free(*envelope);
      return false;
    }
  }
  std::byte* to = region_ + cell.offset;
  if (cursor != nullptr) {
    cursor->pack(to, payload.bytes, memory::copy_ordinary);
    counters_.ordinary_bytes += payload.bytes;
  } else {
    cell.nontemporal =
        copy_in(link.cell_stores, to, payload.contiguous, payload.bytes, pool_.went_round()) ? 1
                                                                                             : 0;
  }
  if (verify_) {
    header.checksum = memory::checksum_fold(memory::checksum_update(
        memory::kChecksumStart,
        cursor != nullptr ? static_cast<const void*>(to) : payload.contiguous, payload.bytes));
  }
  header.kind = Kind::cell;
  if (boxed) {
    link.box.put(header, &cell, sizeof(cell), frames_[peer].sent());
    node::wake_if_armed(*link.armed, wake_);
  } else {
    envelope->cell = cell;
    list_envelope(peer, *envelope, header, payload.bytes);
    listed_.push_back({envelope, peer});
  }
  ++counters_.sends_cell;
  counters_.bytes_cell += payload.bytes;
  return true;
}

}  // namespace od::p2p
