// Frames and box before the list, and how long to wait for room.

#include "p2p/outbox.h"

#include <sched.h>

#include <atomic>

#include "base/clock.h"
#include "p2p/inbox.h"
#include "p2p/receiver.h"

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

}  // namespace

bool Outbox::open_box(std::uint32_t peer) {
  Link& link = links_[peer];
  if (link.box.open()) return true;
  const node::RegionLayout& layout = links_.layout();
  if (link.box_refused || layout.box_bytes <= sizeof(BoxHeader)) return false;
  // Relaxed: only the count matters.
  if (link.header->boxes_opened.fetch_add(1, std::memory_order_relaxed) >=
      static_cast<std::uint32_t>(settings_.fastbox_peers)) {
    link.box_refused = true;
    ++counters_.box_refused;
    return false;
  }
  const std::uint32_t mine = links_.my_index();
  link.box =
      BoxProducer(link.base + layout.boxes_offset + mine * layout.box_bytes, layout.box_bytes);
  // Release: pairs with the acquire in Receiver::watch_new_boxes.
  link.header->box_doorbells[mine / 64].fetch_or(std::uint64_t{1} << (mine % 64),
                                                 std::memory_order_release);
  return true;
}

bool Outbox::usable_box(std::uint32_t peer, std::uint32_t bytes) {
  Link& link = links_[peer];
  if (!open_box(peer) || !link.direct()) return false;
  if (link.box.has_room(bytes)) return true;
  // Waiting for a receiver at work is cheaper than the list, for both: what comes by the list it
  // takes all at once, and copies what it has not asked for yet. Once something is listed, all goes
  // there until the list has been taken, so a receiver that is away is waited for once.
  const std::uint64_t patience =
      links_.node().oversubscribed() ? kSharedBoxPatienceNs : kBoxPatienceNs;
  const std::uint64_t start = now_ns();
  do {
    // The receiver may be sending to us just as much, and wait for room in its turn.
    if (!receiver_.take_from(peer, kTakeWhileWaiting)) pause_processor();
    if (link.box.has_room(bytes)) return true;
  } while (now_ns() - start < patience);
  ++counters_.box_full;
  return false;
}

bool Outbox::list_drains(std::uint32_t peer) {
  // A sender that lists faster than its receiver takes would do so for ever: everything would wait
  // in memory, and be matched late, for a receiver that is at work all the time.
  Link& link = links_[peer];
  if (++link.posts_behind_list % kListInterval != 0) return false;
  if (links_.node().oversubscribed()) {
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
    if (!receiver_.take_from(peer, kTakeWhileWaiting)) pause_processor();
    memory_.collect();
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

bool Outbox::post(std::uint32_t peer, const MessageHeader& header, const void* data,
                  std::uint32_t bytes) {
  Link& link = links_[peer];
  FrameSet& frames = links_.frames(peer);
  if (!open_box(peer) || !(link.direct() || list_drains(peer))) return false;
  const unsigned frame = frames.held();
  if (frame != FrameSet::kNone && bytes <= kFrameShortBytes) {
    frames.put(frame, header, data, bytes, link.box.messages());
  } else if (usable_box(peer, bytes)) {
    link.box.put(header, data, bytes, frames.sent());
  } else {
    return false;
  }
  links_.wake(peer);
  return true;
}

void Outbox::put(std::uint32_t peer, const MessageHeader& header, const void* data,
                 std::uint32_t bytes) {
  links_[peer].box.put(header, data, bytes, links_.frames(peer).sent());
  links_.wake(peer);
}

void Outbox::list(std::uint32_t peer, Envelope& envelope, const MessageHeader& header,
                  std::uint64_t bytes) {
  envelope.context = header.context;
  envelope.tag = header.tag;
  envelope.source = header.source;
  envelope.kind = header.kind;
  envelope.header_checksum = header.checksum;
  envelope.bytes = bytes;
  Link& link = links_[peer];
  link.last_listed = &envelope;
  inbox_push(link.header->inbox, envelope,
             make_link(links_.my_index(), memory_.offset_of(envelope)));
  links_.wake(peer);
}

unsigned Outbox::held_frame(std::uint32_t peer) {
  if (links_.layout().frame_bytes == 0 || !open_box(peer) || !links_[peer].direct()) {
    return FrameSet::kNone;
  }
  return links_.frames(peer).held();
}

}  // namespace od::p2p
