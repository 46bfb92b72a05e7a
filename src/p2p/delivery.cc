// Copying into receive buffers of every shape, statuses, what waits for the host.

#include "p2p/delivery.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "observe/log.h"
#include "p2p/opaque.h"

namespace od::p2p {

void Delivery::check(std::uint32_t sent, std::uint64_t computed,
                     const MessageHeader& header) const {
  ++counters_.verified;
  if (sent == memory::checksum_fold(computed)) return;
  log(Level::kError,
      "verification failed: a message from rank %u with tag %d arrived changed; please report "
      "it, and run with OVERDRIVE_DISABLE=1 meanwhile",
      header.source, header.tag);
  host_.abort(1);
}

void Delivery::finish(Request& receive, const MessageHeader& header, std::uint64_t bytes,
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

void Delivery::note_long(const Request& receive) {
  if (history_ != nullptr) history_->note_receive(receive.address);
}

int Delivery::deliver(const void* data, std::uint64_t bytes, Request& receive,
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

int Delivery::unpack(Request& receive, std::unique_ptr<char[]> packed, std::uint64_t bytes) {
  if (host_away_ && bytes > 0) {
    deferred_.push_back({&receive, std::move(packed), bytes});
    ++counters_.layouts_host_packed;
    return host::kSuccess;
  }
  if (packed_by_host(*receive.layout)) ++counters_.layouts_host_packed;
  if (bytes == 0) return host::kSuccess;
  return unpack_opaque(host_, *receive.layout, packed.get(), static_cast<std::int64_t>(bytes),
                       receive.address);
}

void Delivery::unpack_deferred() {
  for (Deferred& deferred : deferred_) {
    Request& receive = *deferred.receive;
    const int error = unpack_opaque(host_, *receive.layout, deferred.packed.get(),
                                    static_cast<std::int64_t>(deferred.bytes), receive.address);
    if (receive.status.error == host::kSuccess) receive.status.error = error;
    receive.incoming = nullptr;
    receive.complete = true;
  }
  deferred_.clear();
}

}  // namespace od::p2p
