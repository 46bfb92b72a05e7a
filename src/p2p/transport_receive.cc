// What receiving needs besides arrivals: checked addresses in peers' memory, completing a receive,
// messages that came before their receive.

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "memory/copy.h"
#include "observe/log.h"
#include "p2p/arrival.h"
#include "p2p/opaque.h"
#include "p2p/transport.h"

namespace od::p2p {

Envelope* Transport::envelope_at(std::uint32_t peer, std::uint64_t offset) const {
  const std::uint64_t fixed_end =
      layout_.envelopes_offset + layout_.envelope_count * sizeof(Envelope);
  const std::uint64_t heap_end = layout_.buffers_offset + layout_.buffers_bytes;
  const bool fixed = offset >= layout_.envelopes_offset && offset + sizeof(Envelope) <= fixed_end;
  const bool heap = offset >= layout_.buffers_offset && offset + sizeof(Envelope) <= heap_end;
  if ((!fixed && !heap) || offset % alignof(Envelope) != 0) corrupt(peer, "envelope");
  return reinterpret_cast<Envelope*>(links_[peer].base + offset);
}

const std::byte* Transport::payload_at(std::uint32_t peer, std::uint64_t offset,
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

void Transport::check(std::uint32_t sent, std::uint64_t computed,
                      const MessageHeader& header) const {
  ++counters_.verified;
  if (sent == memory::checksum_fold(computed)) return;
  log(Level::kError,
      "verification failed: a message from rank %u with tag %d arrived changed; please report "
      "it, and run with OVERDRIVE_DISABLE=1 meanwhile",
      header.source, header.tag);
  host_.abort(1);
}

// --- completing a receive ------------------------------------------------------------------------

void Transport::finish_receive(Request& receive, const MessageHeader& header, std::uint64_t bytes,
                               int delivered) {
  receive.status.source = static_cast<int>(header.source);
  receive.status.tag = header.tag;
  receive.status.cancelled = false;
  const auto room = static_cast<std::uint64_t>(receive.bytes);
  if (bytes > room) [[unlikely]] {
    receive.status.error = host_.err_truncate;
    receive.status.bytes = receive.bytes;
    ++counters_.truncations;
  } else {
    receive.status.error = delivered;
    receive.status.bytes = static_cast<std::int64_t>(bytes);
    const std::int64_t whole_bytes = receive.layout->whole_bytes;
    if (delivered == host::kSuccess && whole_bytes != 0 && receive.status.bytes % whole_bytes != 0)
        [[unlikely]] {
      receive.status.error = host_.err_split_element;
      receive.status.bytes -= receive.status.bytes % whole_bytes;
    }
  }
  counters_.bytes_received += bytes;
  if (!deferred_.empty() && deferred_.back().receive == &receive) [[unlikely]] {
    receive.incoming = &elsewhere_;
    return;
  }
  receive.complete = true;
}

void Transport::note_long_receive(const Request& receive) {
  if (plan_.chooses()) history_.note_receive(receive.address);
}

int Transport::deliver_bytes(const void* data, std::uint64_t bytes, Request& receive,
                             memory::CopyFunction copy) {
  const std::uint64_t limit = std::min(bytes, static_cast<std::uint64_t>(receive.bytes));
  if (limit == 0) return host::kSuccess;
  const Layout& layout = *receive.layout;
  char* start = nullptr;
  if (is_contiguous(layout, receive.address, receive.count, &start)) [[likely]] {
    copy(start, data, limit);
  } else if (layout.shape == Shape::opaque) {
    if (host_away_) {
      deferred_.push_back({&receive, std::make_unique<char[]>(limit), limit});
      std::memcpy(deferred_.back().packed.get(), data, limit);
      return host::kSuccess;
    }
    if (packed_by_host(layout)) ++counters_.layouts_host_packed;
    return unpack_opaque(host_, layout, data, static_cast<std::int64_t>(limit), receive.address);
  } else {
    Cursor cursor(receive.address, receive.count, layout);
    cursor.unpack(data, limit, copy);
    ++counters_.layouts_direct;
  }
  return host::kSuccess;
}

// --- unexpected messages -------------------------------------------------------------------------

bool Transport::deliver_unexpected(Unexpected& message, Request& receive) {
  const MessageHeader header = message.header;
  const std::uint32_t peer = message.node_index;
  const std::uint64_t bytes = message.bytes;
  if (message.from == Unexpected::Source::self) {
    const int delivered = deliver_bytes(message.data.get(), bytes, receive);
    if (message.synchronous_sender != nullptr) message.synchronous_sender->complete = true;
    ++counters_.receives_self;
    finish_receive(receive, header, bytes, delivered);
  } else if (message.from == Unexpected::Source::aside) {
    deliver_aside(message, receive);
  } else if (header.kind == Kind::stream) {
    const Taken taken = take_stream(peer, message.stream, receive);
    if (taken == Taken::cancelled) {
      keep_frame(peer, message.stream.frame);
      matching_.free_unexpected(message);
      return false;
    }
    start_incoming(taken, peer, message.stream, header, receive);
  } else if (header.kind == Kind::frame) {
    deliver_frame(peer, header, message.frame, receive);
  } else if (header.kind == Kind::cell) {
    deliver_cell(peer, header, message.cell, receive);
    if (message.envelope != nullptr) mark_done(*message.envelope, message.stream.generation);
  } else {
    const unsigned char* data = message.envelope != nullptr ? message.envelope->payload
                                : message.data != nullptr   ? message.data.get()
                                                            : message.small;
    if (verify_) {
      check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, bytes), header);
    }
    const int delivered = deliver_bytes(data, bytes, receive);
    if (message.envelope != nullptr) mark_done(*message.envelope, message.stream.generation);
    ++counters_.receives_inline;
    finish_receive(receive, header, bytes, delivered);
  }
  matching_.free_unexpected(message);
  return true;
}

void Transport::deliver_cell(std::uint32_t peer, const MessageHeader& header,
                             const CellDescriptor& cell, Request& receive) {
  const std::byte* const data = payload_at(peer, cell.offset, cell.bytes);
  if (verify_) {
    check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, cell.bytes),
          header);
  }
  const int delivered = deliver_bytes(data, cell.bytes, receive,
                                      reader_for(cell.nontemporal, links_[peer].distance.far()));
  release_cell(links_[peer].releases, cell);
  note_received(receive, cell.bytes);
  ++counters_.receives_cell;
  finish_receive(receive, header, cell.bytes, delivered);
}

void Transport::deliver_frame(std::uint32_t peer, const MessageHeader& header, unsigned frame,
                              Request& receive) {
  const std::byte* const data = frames_[peer].payload(frame);
  const std::uint32_t bytes = header.inline_bytes;
  if (verify_) {
    check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, bytes), header);
  }
  const int delivered =
      deliver_bytes(data, bytes, receive, reader_for(0, links_[peer].distance.far()));
  frames_[peer].keep(frame);
  note_received(receive, bytes);
  ++counters_.receives_frame;
  finish_receive(receive, header, bytes, delivered);
}

bool Transport::pin(Unexpected& message) {
  if (message.from != Unexpected::Source::local || message.header.kind != Kind::stream) return true;
  if (take_state(*message.envelope, message.stream, EnvelopeState::pinned) != Taken::cancelled) {
    return true;
  }
  mark_done(*message.envelope, message.stream.generation);
  keep_frame(message.node_index, message.stream.frame);
  matching_.remove_unexpected(message);
  matching_.free_unexpected(message);
  return false;
}

int Transport::send_to_self(const MessageHeader& header_in, const Payload& payload,
                            bool synchronous, Request& request) {
  MessageHeader header = header_in;
  header.kind = Kind::inline_data;
  std::unique_ptr<unsigned char[]> data;
  const void* from = payload.contiguous;
  if (payload.bytes > 0 && from == nullptr) {
    data.reset(new (std::nothrow) unsigned char[payload.bytes]);
    if (data == nullptr) return host_.err_no_mem;
    const Layout& layout = **payload.layout;
    if (layout.shape == Shape::opaque) {
      const int error = pack_opaque(host_, layout, payload.address, payload.count, data.get(),
                                    static_cast<std::int64_t>(payload.bytes));
      if (error != host::kSuccess) return error;
      if (packed_by_host(layout)) ++counters_.layouts_host_packed;
    } else {
      Cursor cursor(const_cast<void*>(payload.address), payload.count, layout);
      cursor.pack(data.get(), payload.bytes, memory::copy_ordinary);
    }
    from = data.get();
  }
  ++counters_.sends_self;
  counters_.bytes_self += payload.bytes;
  Request* receive = matching_.match_posted(header.context, header.source, header.tag);
  if (receive != nullptr) {
    ++counters_.receives_self;
    ++counters_.matched_posted;
    finish_receive(*receive, header, payload.bytes, deliver_bytes(from, payload.bytes, *receive));
    request.complete = true;
    return host::kSuccess;
  }
  if (data == nullptr && payload.bytes > 0) {
    data.reset(new (std::nothrow) unsigned char[payload.bytes]);
    if (data == nullptr) return host_.err_no_mem;
    std::memcpy(data.get(), from, payload.bytes);
  }
  Unexpected* message = matching_.new_unexpected();
  message->header = header;
  message->from = Unexpected::Source::self;
  message->node_index = static_cast<std::uint16_t>(my_index_);
  message->bytes = payload.bytes;
  message->data = std::move(data);
  if (synchronous) {
    message->synchronous_sender = &request;
  } else {
    request.complete = true;
  }
  matching_.add_unexpected(*message);
  return host::kSuccess;
}

}  // namespace od::p2p
