// The end of a receive: the payload into the program's buffer, in whatever shape, its status, its
// completion.
//
// Invariants:
//  - A receive is completed exactly once, by finish() or, if only the host can unpack its payload
//    and may not be called now, by unpack_deferred(); meanwhile it points at elsewhere().
//  - No more is written than the receive has room for; what does not fit is an error of its status.
//  - Deferred payload is complete and waits only for a thread that may call the host.
#ifndef OVERDRIVE_P2P_DELIVERY_H_
#define OVERDRIVE_P2P_DELIVERY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "host/host_table.h"
#include "memory/copy.h"
#include "memory/send_history.h"
#include "observe/counters.h"
#include "p2p/fast_box.h"
#include "p2p/path_table.h"
#include "p2p/request.h"
#include "p2p/streams.h"

namespace od::p2p {

class Delivery {
 public:
  // `history`: of the sends, which is told of long receives; null: nobody asks.
  Delivery(const host::HostTable& host, observe::Counters& counters, memory::SendHistory* history)
      : host_(host), counters_(counters), history_(history) {}
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  // Copies a message into the receive's buffer, as far as it fits. An error of the host when it
  // could not unpack the message.
  int deliver(const void* data, std::uint64_t bytes, Request& receive,
              memory::CopyFunction copy = memory::copy_ordinary);
  // `delivered`: what deliver() has returned.
  void finish(Request& receive, const MessageHeader& header, std::uint64_t bytes,
              int delivered = host::kSuccess);
  // What has arrived must be what was sent, when verification is on; else the job ends.
  void check(std::uint32_t sent, std::uint64_t computed, const MessageHeader& header) const;
  void check(const MessageHeader& header, const void* data, std::uint64_t bytes) const {
    check(header.checksum, memory::checksum_update(memory::kChecksumStart, data, bytes), header);
  }

  // A message long enough for other ways than cells has been received: its buffer is not what was
  // last sent from there.
  void note_received(const Request& receive, std::uint64_t bytes) {
    if (bytes >= kNotedBytes) [[unlikely]]
      note_long(receive);
  }

  // --- what only the host can unpack -----------------------------------------------------------
  // While set, whoever makes progress may not call the host.
  void set_host_away(bool away) { host_away_ = away; }
  // The payload of a stream has come whole, packed: into the receive's buffer, now or later.
  int unpack(Request& receive, std::unique_ptr<char[]> packed, std::uint64_t bytes);
  bool has_deferred() const { return !deferred_.empty(); }
  void unpack_deferred();
  // What a receive points at (Request::incoming) whose payload is in no stream of its own.
  IncomingStream* elsewhere() { return &elsewhere_; }

 private:
  struct Deferred {
    Request* receive;
    std::unique_ptr<char[]> packed;
    std::uint64_t bytes;
  };
  static constexpr std::uint64_t kNotedBytes = PathTable::kLeastBytes;

  void note_long(const Request& receive);

  const host::HostTable& host_;
  observe::Counters& counters_;
  memory::SendHistory* history_;
  std::vector<Deferred> deferred_;
  bool host_away_ = false;
  IncomingStream elsewhere_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_DELIVERY_H_
