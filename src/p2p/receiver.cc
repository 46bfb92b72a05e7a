// Set-up of the receiving half, messages that came before their receive, messages to itself.

#include "p2p/receiver.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "memory/copy.h"
#include "p2p/arrival.h"
#include "p2p/inbox.h"
#include "p2p/opaque.h"
#include "p2p/path/short.h"

namespace od::p2p {

Receiver::Receiver(Links& links, const config::Settings& settings, const host::HostTable& host,
                   Matching& matching, observe::Counters& counters, std::uint64_t inline_max,
                   memory::SendHistory* history)
    : frames_(links.all_frames()),
      boxes_(links.all_boxes()),
      header_(links.header()),
      matching_(matching),
      counters_(counters),
      doorbells_seen_((links.count() + 63) / 64, 0),
      inline_max_(inline_max),
      verify_(settings.verify),
      scratch_(std::max<std::uint64_t>(inline_max, kFrameShortBytes) + kHeadPayloadBytes),
      incoming_(side_),
      delivery_(host, counters, history),
      side_{links, delivery_, settings, counters, settings.verify},
      links_(links),
      host_(host) {}

bool Receiver::anything_ready() const {
  for (const std::uint32_t peer : watched_) {
    if (frames_[peer].ready() || boxes_[peer].ready()) return true;
  }
  if (inbox_waiting(header_->inbox)) return true;
  for (std::size_t i = 0; i < doorbells_seen_.size(); ++i) {
    // Acquire: pairs with Outbox::open_box.
    if (header_->box_doorbells[i].load(std::memory_order_acquire) != doorbells_seen_[i])
      return true;
  }
  return incoming_.anything_ready();
}

void Receiver::publish_consumed() {
  for (const std::uint32_t peer : watched_) {
    if (boxes_[peer].unpublished()) boxes_[peer].publish();
  }
}

bool Receiver::deliver_unexpected(Unexpected& message, Request& receive) {
  const MessageHeader header = message.header;
  const std::uint32_t peer = message.node_index;
  const std::uint64_t bytes = message.bytes;
  if (message.from == Unexpected::Source::self) {
    const int delivered = delivery_.deliver(message.data.get(), bytes, receive);
    if (message.synchronous_sender != nullptr) message.synchronous_sender->complete = true;
    ++counters_.receives_self;
    delivery_.finish(receive, header, bytes, delivered);
  } else if (message.from == Unexpected::Source::aside) {
    deliver_aside(message, receive);
  } else if (header.kind == Kind::stream) {
    IncomingStreams::Take take = incoming_.take(peer, message.stream, receive);
    if (take.how == Taken::cancelled) {
      links_.keep_frame(peer, message.stream.frame);
      matching_.free_unexpected(message);
      return false;
    }
    incoming_.start(take, peer, message.stream, header, receive);
  } else if (header.kind == Kind::frame) {
    receive_frame(side_, peer, header, message.frame, receive);
  } else if (header.kind == Kind::cell) {
    receive_cell(side_, peer, header, message.cell, receive);
    if (message.envelope != nullptr) mark_done(*message.envelope, message.stream.generation);
  } else {
    const unsigned char* data = message.envelope != nullptr ? message.envelope->payload
                                : message.data != nullptr   ? message.data.get()
                                                            : message.small;
    if (verify_) {
      delivery_.check(header, data, bytes);
    }
    const int delivered = delivery_.deliver(data, bytes, receive);
    if (message.envelope != nullptr) mark_done(*message.envelope, message.stream.generation);
    ++counters_.receives_inline;
    delivery_.finish(receive, header, bytes, delivered);
  }
  matching_.free_unexpected(message);
  return true;
}

bool Receiver::pin(Unexpected& message) {
  if (message.from != Unexpected::Source::local || message.header.kind != Kind::stream) return true;
  if (take_state(*message.envelope, message.stream, EnvelopeState::pinned) != Taken::cancelled) {
    return true;
  }
  mark_done(*message.envelope, message.stream.generation);
  links_.keep_frame(message.node_index, message.stream.frame);
  matching_.remove_unexpected(message);
  matching_.free_unexpected(message);
  return false;
}

int Receiver::arrive_from_self(const MessageHeader& header_in, const Payload& payload,
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
    delivery_.finish(*receive, header, payload.bytes,
                     delivery_.deliver(from, payload.bytes, *receive));
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
  message->node_index = static_cast<std::uint16_t>(links_.my_index());
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
