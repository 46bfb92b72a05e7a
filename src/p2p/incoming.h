// The receiver's end of streams: takes them for a receive, reads them at once where the sender's
// buffer can be read, and else drains what comes, piece by piece.
//
// Invariants:
//  - A message is taken (state, envelope.h) before anything of it is read, and only once; what its
//    sender has cancelled is given back by whoever finds it so.
//  - Where the sender may write into the receive buffer, its place is published before the state.
//  - A sender that asks for it is called back once its message has been taken, whatever comes then.
//  - A message that is read directly is read at once and to the end: nobody ever waits for a
//  receiver
//    that has gone away in between.
//  - The stream of a receive lives here from start() until the receive is complete.
#ifndef OVERDRIVE_P2P_INCOMING_H_
#define OVERDRIVE_P2P_INCOMING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "p2p/arrival.h"
#include "p2p/delivery.h"
#include "p2p/links.h"
#include "p2p/path/side.h"
#include "p2p/streams.h"

namespace od::p2p {

class IncomingStreams {
 public:
  explicit IncomingStreams(ReceiveSide& side) : side_(side) {}
  IncomingStreams(const IncomingStreams&) = delete;
  IncomingStreams& operator=(const IncomingStreams&) = delete;

  // How a message was taken, and if it may be read, from where.
  struct Take {
    Taken how = Taken::cancelled;
    DirectRead read;
  };
  // For a receive; start() follows at once unless it was cancelled.
  Take take(std::uint32_t peer, const StreamDescriptor& descriptor, const Request& receive);
  void start(Take& take, std::uint32_t peer, const StreamDescriptor& descriptor,
             const MessageHeader& header, Request& receive);

  bool empty() const { return active_.empty(); }
  // One round over all; true if anything moved.
  bool progress();
  // Whether progress() would find something.
  bool anything_ready() const;

 private:
  bool advance(IncomingStream& stream);
  void finish(IncomingStream& stream);
  void call_sender(std::uint32_t peer, const StreamDescriptor& descriptor, Envelope& envelope);
  std::unique_ptr<IncomingStream> new_stream();
  // Where the receive's buffer lies for a sender that may write there; kUnreachable.
  std::uint64_t target_for(std::uint32_t peer, const StreamDescriptor& descriptor,
                           const Request& receive);

  std::vector<std::unique_ptr<IncomingStream>> active_;
  ReceiveSide& side_;
  std::vector<std::unique_ptr<IncomingStream>> spare_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_INCOMING_H_
