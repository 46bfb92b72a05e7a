// One collective of the program under way: runs a schedule over point-to-point messages.
//
// Messages between ranks that share memory take our own transport, in a context of their own per
// call, so that nothing can meet; others take the host's point-to-point on a hidden communicator.
// There every tag is (sequence * kTagsPerCall + ordinal) within the host's range: calls that use
// the host block and follow each other, so tags of different calls that coincide are still received
// in the order in which they were sent, and within a call they do not coincide.
//
// begin(), then advance() until done(). Used under the rank's lock; done() may be asked without.
#ifndef OVERDRIVE_ENGINE_COLLECTIVE_OP_H_
#define OVERDRIVE_ENGINE_COLLECTIVE_OP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "coll/schedule.h"
#include "coll/select/selection.h"
#include "engine/collective_buffers.h"
#include "engine/collective_call.h"
#include "engine/comm.h"
#include "engine/request.h"
#include "host/host_table.h"

namespace od {

class RankState;

class CollectiveOp {
 public:
  // What a call runs on: the communicator and where its messages go.
  struct Way {
    Comm* comm = nullptr;
    std::uint64_t context = 0;           // of local messages
    host::Handle host_comm = 0;          // of messages to ranks that are not local
    std::int32_t first_tag = 0;          // of those
    std::int32_t tag_mask = 0x7fffffff;  // tags that the host takes, as a mask
  };
  static constexpr std::int32_t kTagsPerCall = 4096;

  // Starts a call whose buffers have been begun; its arguments stay valid until done(). Returns a
  // host error code; then nothing has started.
  int begin(RankState& state, const Way& way, std::shared_ptr<const coll::Schedule> schedule,
            std::int64_t units_per_unit);
  // One round; true if anything moved. Never blocks.
  bool advance();
  bool done() const { return done_; }
  int error() const { return error_; }
  // Whether a round may call the host.
  bool needs_host() const { return host_messages_ || buffers_.needs_host(); }
  // After done(): forgets everything that belongs to the call.
  void release();

  CollectiveBuffers& buffers() { return buffers_; }

  // Of a call that does not block: its request, arguments, and what was chosen for it.
  Request* request = nullptr;
  std::unique_ptr<CollectiveCall> kept;
  coll::Decision decision;

 private:
  // A message on its way.
  struct Pending {
    Request* request;  // local; null: the host's
    host::Handle host_request;
    std::uint32_t step;
  };

  void start(std::uint32_t step);
  void send(std::uint32_t step);
  void receive(std::uint32_t step);
  Request* new_message(RequestKind kind, const coll::Step& step, char* address, std::int64_t units);
  bool finished(Pending& pending);
  void note(int error);
  void finish();

  RankState* state_ = nullptr;
  Way way_;
  CollectiveBuffers buffers_;
  std::shared_ptr<const coll::Schedule> schedule_;
  coll::Run run_;
  std::vector<Pending> pending_;
  int error_ = host::kSuccess;
  bool host_messages_ = false;
  Completion done_;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_COLLECTIVE_OP_H_
