// Copies between the two programs' own buffers: offers to read, cooperative copies, pushes.
//
// The sender offers its buffer in the stream's descriptor and fills no cell. The receiver, when it
// has a receive for the message, reads at once and to the end, so that nobody ever waits for a
// receiver that has gone away in between. As long as no receive has come the sender may withdraw
// its offer; then, and when the receiver cannot read, the message goes on as a stream of cells or
// out of the sender's own memory. See envelope.h for the states.
//
// A buffer lies in its owner's reach file, which its peers have mapped, or anywhere in its address
// space, of which they then attach a window (memory/space.h).

#include <errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/clock.h"
#include "memory/copy.h"
#include "memory/reach.h"
#include "memory/space.h"
#include "observe/log.h"
#include "p2p/arrival.h"
#include "p2p/transport.h"

namespace od::p2p {

namespace {

// How much is pushed before the receiver is told; it only counts, so the piece is large.
constexpr std::uint64_t kPushPieceBytes = 128u << 10;

constexpr std::uint64_t kSampledBytes = 16u << 10;

// Shorter messages do not try these paths: one side would do all of it, or the payload be in cells
// before the receive can have come.
constexpr std::uint64_t kLeastCooperativeBytes = 16u << 10;
constexpr std::uint64_t kLeastPushBytes = 256u << 10;

// `claimed` of a generation; see Envelope.
std::uint64_t claim_start(std::uint32_t generation) {
  return static_cast<std::uint64_t>(generation) << 32;
}

// Takes the next piece of a cooperative copy: its position, or `bytes` or more at the end.
std::uint64_t claim(Envelope& envelope) {
  // Relaxed: the counter only shares out the pieces; `filled` and `done` publish their contents.
  const std::uint64_t word = envelope.claimed.fetch_add(1, std::memory_order_relaxed);
  return (word & 0xffffffff) * kClaimBytes;
}

}  // namespace

// --- sending -------------------------------------------------------------------------------------

Transport::ChosenPath Transport::choose_path(std::uint32_t peer, const Payload& payload) {
  Link& link = links_[peer];
  ChosenPath chosen;
  if (payload.contiguous == nullptr) return chosen;  // strided data takes cells
  const bool far = link.distance.far();
  std::uint64_t offset = memory::kUnreachable;
  if (link.reaches_us) offset = memory::reach_offset(payload.contiguous, payload.bytes);
  const bool in_file = offset != memory::kUnreachable;
  const bool reachable = in_file || (link.opens_us && payload.bytes >= settings_.xpmem_min_bytes);
  const bool learns = learnt_ != nullptr && payload.bytes >= PathTable::kLeastBytes;
  memory::BufferUse use = memory::BufferUse::fresh;
  if (reachable && (learns || plan_.wants_guess(payload.bytes, far))) {
    use = history_.look(payload.contiguous, payload.bytes);
  }
  chosen.path = plan_.choose(payload.bytes, far, reachable, use != memory::BufferUse::unchanged);
  if (learns) chosen.path = learnt_path(peer, payload, reachable, use, chosen.path);
  const auto reads_it = [&] {
    return chosen.path == Path::pull || chosen.path == Path::cooperative;
  };
  if (reads_it() && !in_file) {
    // Not before it matters: it is a system call.
    offset = attachable_place(link, payload.contiguous, payload.bytes);
    if (offset == memory::kUnreachable) {
      chosen.path = plan_.choose(payload.bytes, far, false, true);
      if (learns) learnt_->spoil_last();
    }
  }
  switch (chosen.path) {
    case Path::pull:
    case Path::cooperative:
      if (!link.offer_worthwhile()) {
        chosen = {.path = Path::cells, .late = true};
        if (learns) learnt_->spoil_last();
      } else {
        chosen.source_address = offset;
      }
      break;
    case Path::kernel:
      if (!link.offer_worthwhile()) chosen = {.path = Path::cells, .late = true};
      chosen.source_address = reinterpret_cast<std::uintptr_t>(payload.contiguous);
      break;
    case Path::push:
      if (link.reach == nullptr && !windows_.open(peer)) chosen.path = Path::cells;
      break;
    case Path::cells:
      break;
  }
  return chosen;
}

Path Transport::learnt_path(std::uint32_t peer, const Payload& payload, bool reachable,
                            memory::BufferUse use, Path prior) {
  Link& link = links_[peer];
  unsigned able = PathChoice::bit(prior) | PathChoice::bit(Path::cells);
  if (reachable && !link.offers_declined) {
    able |= PathChoice::bit(Path::pull);
    if (payload.bytes >= kLeastCooperativeBytes) able |= PathChoice::bit(Path::cooperative);
  }
  if (payload.bytes >= kLeastPushBytes && (link.reach != nullptr || windows_.open(peer))) {
    able |= PathChoice::bit(Path::push);
  }
  return learnt_->choose({.peer = peer,
                          .far = link.distance.far(),
                          .reachable = reachable,
                          .use = use,
                          .bytes = payload.bytes,
                          .prior = prior,
                          .able = able});
}

std::uint64_t Transport::attachable_place(const Link& link, const void* address,
                                          std::uint64_t bytes) {
  if (!link.opens_us || bytes < settings_.xpmem_min_bytes) return memory::kUnreachable;
  const std::uint64_t place = memory::space_place(address, bytes);
  if (place == memory::kUnreachable) ++counters_.xpmem_unfit;
  return place;
}

bool Transport::advance_offer(OutgoingStream& stream) {
  Link& link = links_[stream.peer];
  switch (state_of(*stream.envelope)) {
    case EnvelopeState::direct:
      if (stream.offered_ns != 0) {
        link.distance.sample_answer(now_ns() - stream.offered_ns, settings_.far_threshold_ns);
        stream.offered_ns = 0;
      }
      return stream.path == Path::cooperative && help_receiver(stream);
    case EnvelopeState::done:
      stream.offered = false;
      stream.filled = stream.bytes;
      link.late_receives = static_cast<std::uint8_t>(link.late_receives / 2);
      ++(stream.path == Path::cooperative ? counters_.sends_cooperative : counters_.sends_direct);
      counters_.bytes_direct += stream.bytes;
      return true;
    case EnvelopeState::matched:
      ++counters_.offers_declined;
      if (stream.attached) {
        link.opens_us = false;  // what lies in the reach file can still be read
      } else {
        link.offers_declined = true;
      }
      stream.offered = false;
      ++counters_.sends_stream;
      counters_.bytes_stream += stream.bytes;
      return advance_outgoing(stream);
    default:
      return false;
  }
}

bool Transport::withdraw(OutgoingStream& stream) {
  Envelope& envelope = *stream.envelope;
  std::uint64_t word = envelope.state.load(std::memory_order_acquire);
  for (;;) {
    EnvelopeState to;
    switch (untag_state(word, envelope.generation)) {
      case EnvelopeState::unmatched:
        to = EnvelopeState::withdrawn;
        break;
      case EnvelopeState::pinned:
        to = EnvelopeState::withdrawn_pinned;
        break;
      default:
        return false;
    }
    // Acquire-release: settles against the receiver's compare-and-swap in take_state.
    if (envelope.state.compare_exchange_weak(word, tag_state(envelope.generation, to),
                                             std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
      break;
    }
  }
  stream.offered = false;
  ++counters_.offers_withdrawn;
  ++counters_.sends_stream;
  counters_.bytes_stream += stream.bytes;
  return true;
}

void Transport::copy_to_peer(OutgoingStream& stream, std::byte* to, std::uint64_t from,
                             std::uint64_t bytes) {
  StoreSpeed& stores = links_[stream.peer].buffer_stores;
  // Where they are slow, only a small part is risked to see whether they still are.
  while (stores.slow() && stores.due() && bytes > kSampledBytes) {
    copy_in(stores, to, stream.contiguous + from, kSampledBytes, true);
    from += kSampledBytes;
    to += kSampledBytes;
    bytes -= kSampledBytes;
  }
  copy_in(stores, to, stream.contiguous + from, bytes, true);
}

std::byte* Transport::peer_bytes(std::uint32_t peer, std::uint64_t place, std::uint64_t bytes,
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

std::byte* Transport::target_of(const OutgoingStream& stream) {
  return peer_bytes(stream.peer, stream.envelope->target, stream.bytes, "receive buffer");
}

void Transport::note_attached(std::uint64_t place, std::uint64_t& messages, std::uint64_t bytes) {
  if (!memory::is_address(place)) return;
  ++messages;
  counters_.xpmem_bytes += bytes;
}

bool Transport::help_receiver(OutgoingStream& stream) {
  Envelope& envelope = *stream.envelope;
  if (envelope.target_generation != envelope.generation) return false;  // it wants no help
  Link& link = links_[stream.peer];
  std::byte* const target = target_of(stream);
  if (target == nullptr) return false;  // it does everything itself
  std::uint64_t written = 0;
  for (;;) {
    const std::uint64_t position = claim(envelope);
    if (position >= stream.bytes) break;
    const std::uint64_t piece = std::min(kClaimBytes, stream.bytes - position);
    copy_to_peer(stream, target + position, position, piece);
    written += piece;
  }
  if (written == 0) return false;
  note_attached(envelope.target, counters_.xpmem_writes, written);
  // Release: what has been written; pairs with the acquire in advance_incoming. Added in one step,
  // because this side takes pieces until none is left.
  envelope.filled.store(written, std::memory_order_release);
  node::wake_if_armed(*link.armed, wake_);
  return true;
}

bool Transport::push_rest(OutgoingStream& stream) {
  Envelope& envelope = *stream.envelope;
  if (state_of(envelope) != EnvelopeState::matched ||
      envelope.target_generation != envelope.generation) {
    return false;
  }
  Link& link = links_[stream.peer];
  std::byte* const target = target_of(stream);
  if (target == nullptr) return false;  // the rest goes through cells as well
  note_attached(envelope.target, counters_.xpmem_writes, stream.bytes - stream.filled);
  // Plain stores: published by the release of `filled`.
  envelope.buffer_offset = kPushed;
  envelope.buffer_from = stream.filled;
  counters_.bytes_push += stream.bytes - stream.filled;
  ++counters_.sends_push;
  while (stream.filled < stream.bytes) {
    const std::uint64_t piece = std::min(kPushPieceBytes, stream.bytes - stream.filled);
    copy_to_peer(stream, target + stream.filled, stream.filled, piece);
    if (verify_) {
      stream.checksum =
          memory::checksum_update(stream.checksum, stream.contiguous + stream.filled, piece);
    }
    stream.filled += piece;
    if (stream.filled == stream.bytes) envelope.checksum = memory::checksum_fold(stream.checksum);
    // Release: the data is in its place; pairs with the acquire in advance_incoming.
    envelope.filled.store(stream.filled, std::memory_order_release);
    node::wake_if_armed(*link.armed, wake_);
  }
  return true;
}

// --- receiving -----------------------------------------------------------------------------------

bool Transport::readable(std::uint32_t peer, const StreamDescriptor& descriptor) {
  switch (static_cast<Path>(descriptor.path)) {
    case Path::pull:
    case Path::cooperative:
      direct_source_ = peer_bytes(peer, descriptor.source_address, descriptor.bytes, "send buffer");
      return direct_source_ != nullptr;
    case Path::kernel:
      return !links_[peer].kernel_refused;
    default:
      return false;
  }
}

Taken Transport::take_stream(std::uint32_t peer, const StreamDescriptor& descriptor,
                             const Request& receive) {
  Envelope& envelope = *envelope_at(peer, descriptor.envelope_offset);
  const auto path = static_cast<Path>(descriptor.path);
  if (path == Path::push || path == Path::cooperative) {
    // Where the sender may write; plain stores, published with the state.
    std::uint64_t target = memory::kUnreachable;
    char* start = nullptr;
    // A sender that could not map our file cannot write there, whatever it offers.
    const Link& link = links_[peer];
    if ((link.reaches_us || link.opens_us) &&
        descriptor.bytes <= static_cast<std::uint64_t>(receive.bytes) &&
        is_contiguous(*receive.layout, receive.address, receive.count, &start)) {
      if (link.reaches_us) target = memory::reach_offset(start, descriptor.bytes);
      if (target == memory::kUnreachable) target = attachable_place(link, start, descriptor.bytes);
    }
    // Another generation than any: no target.
    envelope.target_generation =
        target == memory::kUnreachable ? descriptor.generation - 1 : descriptor.generation;
    envelope.target = target;
    envelope.claimed.store(claim_start(descriptor.generation), std::memory_order_relaxed);
  }
  envelope.line_ns = 0;
  const EnvelopeState wanted =
      readable(peer, descriptor) ? EnvelopeState::direct : EnvelopeState::matched;
  const Taken taken = take_state(envelope, descriptor, wanted);
  if (taken == Taken::cancelled) mark_done(envelope, descriptor.generation);
  return taken;
}

bool Transport::read_direct(std::uint32_t peer, const StreamDescriptor& descriptor,
                            Request& receive) {
  if (static_cast<Path>(descriptor.path) == Path::kernel) {
    return read_through_kernel(peer, descriptor, receive);
  }
  const std::byte* from = direct_source_;
  note_attached(descriptor.source_address, counters_.xpmem_reads, descriptor.bytes);
  direct_delivered_ = deliver_bytes(from, descriptor.bytes, receive);
  if (verify_) {
    direct_checksum_ = memory::checksum_update(memory::kChecksumStart, from, descriptor.bytes);
  }
  ++counters_.receives_pull;
  return true;
}

bool Transport::read_through_kernel(std::uint32_t peer, const StreamDescriptor& descriptor,
                                    Request& receive) {
  const std::uint64_t limit = std::min(descriptor.bytes, static_cast<std::uint64_t>(receive.bytes));
  const std::uint64_t wanted = verify_ ? descriptor.bytes : limit;
  char* to = nullptr;
  std::unique_ptr<char[]> aside;
  if (wanted > limit || !is_contiguous(*receive.layout, receive.address, receive.count, &to)) {
    aside.reset(new (std::nothrow) char[wanted]);
    if (aside == nullptr) return false;
    to = aside.get();
  }
  // Without a start time in our /proc the number may mean another process here.
  if (node_.member(static_cast<int>(peer)).start_time == 0) {
    links_[peer].kernel_refused = true;
    return false;
  }
  const auto pid = static_cast<pid_t>(node_.member(static_cast<int>(peer)).pid);
  std::uint64_t position = 0;
  while (position < wanted) {
    iovec local{to + position, wanted - position};
    iovec remote{reinterpret_cast<void*>(descriptor.source_address + position), wanted - position};
    const ssize_t moved = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (moved <= 0) {
      links_[peer].kernel_refused = true;
      OD_LOG_ONCE(Level::kInfo,
                  "reading another process through the kernel is not permitted (%s); messages take "
                  "shared cells instead",
                  std::strerror(moved < 0 ? errno : EFAULT));
      return false;
    }
    position += static_cast<std::uint64_t>(moved);
  }
  if (verify_) direct_checksum_ = memory::checksum_update(memory::kChecksumStart, to, wanted);
  direct_delivered_ =
      aside != nullptr ? deliver_bytes(aside.get(), descriptor.bytes, receive) : host::kSuccess;
  ++counters_.receives_kernel;
  return true;
}

bool Transport::cooperates(std::uint32_t peer, const StreamDescriptor& descriptor) const {
  if (static_cast<Path>(descriptor.path) != Path::cooperative) return false;
  return envelope_at(peer, descriptor.envelope_offset)->target_generation == descriptor.generation;
}

void Transport::read_cooperatively(IncomingStream& stream, const StreamDescriptor& descriptor) {
  Envelope& envelope = *stream.envelope;
  const std::byte* from = direct_source_;
  stream.cooperative = true;
  for (;;) {
    const std::uint64_t position = claim(envelope);
    if (position >= stream.bytes) break;
    const std::uint64_t piece = std::min(kClaimBytes, stream.bytes - position);
    std::memcpy(stream.contiguous + position, from + position, piece);
    stream.drained += piece;
  }
  note_attached(descriptor.source_address, counters_.xpmem_reads, stream.drained);
  if (verify_) {
    stream.checksum = memory::checksum_update(memory::kChecksumStart, from, stream.bytes);
  }
}

}  // namespace od::p2p
