// One pending operation of the program: what a request or message handle stands for.
//
// Requests live in the rank's slab (request_slab.h) and are named by their slot index, which never
// changes, so a face can derive a handle of its ABI from it. A request is touched by its own
// process only. Life of a request:  free -> active -> complete -> free   (non-persistent)
//                           free -> inactive -> active -> complete -> inactive …  (persistent)
// `complete` becomes true exactly once per activation, from inside Rank::progress() or from the
// call that started the operation; the face reads it, copies the status out and calls
// Rank::release().
#ifndef OVERDRIVE_P2P_REQUEST_H_
#define OVERDRIVE_P2P_REQUEST_H_

#include <atomic>
#include <cstdint>

#include "host/host_table.h"
#include "p2p/layout.h"

namespace od {

class CollectiveOp;
class Comm;
namespace p2p {
struct Unexpected;
struct OutgoingStream;
struct IncomingStream;
}  // namespace p2p

enum class RequestKind : std::uint8_t {
  free,     // in the slab's free list
  send,     // to a local peer
  recv,     // from a local peer, or from any source on a communicator that we own
  message,  // a matched message (MPI_Message), not yet received
  null_op,  // to or from MPI_PROC_NULL, persistent only
  collective,
};

enum class SendMode : std::uint8_t { standard, buffered, synchronous, ready };

// Whether an operation is complete. Another thread of the program (or the helper) may complete it:
// setting releases the status and the received data, asking acquires them.
class Completion {
 public:
  operator bool() const { return value_.load(std::memory_order_acquire); }
  Completion& operator=(bool value) {
    value_.store(value, std::memory_order_release);  // pairs with the acquire above
    return *this;
  }

 private:
  std::atomic<bool> value_{false};
};

struct Request {
  // First line: what completion calls and matching read.
  Completion complete;
  bool persistent = false;
  bool active = false;
  bool orphan = false;  // MPI_Request_free was called while active: release on completion
  bool cancel_requested = false;
  bool host_candidate = false;  // listed in Matching::host_candidates
  bool lent = false;            // posted, and the host may take it (lent_receives.cc)
  RequestKind kind = RequestKind::free;
  SendMode mode = SendMode::standard;
  bool blocking = false;    // of a blocking call: nobody can cancel it
  std::uint32_t index = 0;  // slot in the slab; constant
  int peer = 0;             // destination, or source (host::kAnySource)
  int tag = 0;              // or host::kAnyTag
  Request* next = nullptr;  // queue membership; the slab's free list
  Request* prev = nullptr;
  Comm* comm = nullptr;
  std::uint64_t context = 0;  // of the messages: the communicator's, or that of a collective
  std::uint64_t stamp = 0;    // order in which receives were posted
  std::int64_t bytes = 0;     // payload to send, or room to receive

  // The program's buffer.
  void* address = nullptr;
  std::int64_t count = 0;
  p2p::LayoutRef layout;
  host::Status status;  // meaningful once complete

  // Transfer state; owned by p2p and by the engine's host side.
  p2p::Unexpected* unexpected = nullptr;  // kind message: what was matched
  p2p::OutgoingStream* outgoing = nullptr;
  p2p::IncomingStream* incoming = nullptr;
  CollectiveOp* collective = nullptr;  // kind collective, once it has been started
  host::Handle host_request = 0;       // a receive that turned out to come through the host
  // Of a persistent receive from another node: the same in the host, which is started there unless
  // an older receive of ours may get the message; and whether it was, last.
  host::Handle host_twin = 0;
  bool in_host = false;
};

}  // namespace od

#endif  // OVERDRIVE_P2P_REQUEST_H_
