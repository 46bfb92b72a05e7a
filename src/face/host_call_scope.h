// Marks the time a thread spends inside the host MPI library, and prepares for calls that may
// block.
//
// While the depth is above zero, MPI calls that arrive from this thread come from inside the host
// library (its MPI-IO, its topology code) and belong to the host: entry points test InHostCall()
// first. A call that may block there does not run our progress, so before it begins, sends that
// still need their sender are completed into memory of our own (Rank::entering_host_call).
#ifndef OVERDRIVE_SRC_FACE_HOST_CALL_SCOPE_H_
#define OVERDRIVE_SRC_FACE_HOST_CALL_SCOPE_H_

namespace od::face {

// Why a call goes to the host; those before kLocal are named in mpi_interface.txt.
enum class HostCallKind : unsigned char {
  kCollective,       // blocks until other ranks come
  kCollectiveStart,  // starts a collective and returns
  kRmaSync,          // synchronisation of one-sided communication: may block
  kFile,             // MPI-IO: may block and call MPI again
  kProcess,          // connect, spawn, sessions: may block
  kLocal,            // returns whatever other ranks do
  kMessageStart,     // likewise; starts a message that may need this rank's progress
  kBlocking,         // point-to-point: waits for another rank
};

// Initial-exec: one instruction instead of a call; a face uses only a few bytes of the static TLS
// reserve.
inline thread_local int host_call_depth __attribute__((tls_model("initial-exec"))) = 0;

// Whether the outermost scope of this thread has asked for a window (Rank::entering_host_call).
inline thread_local bool host_window_open __attribute__((tls_model("initial-exec"))) = false;

// Whether the engine asks the host about requests of its own. MPICH calls the error handler of
// MPI_COMM_WORLD then if a message was too long, whatever communicator the request belongs to. The
// engine is told of the error as well, ends what it does, and raises it: the handler, which may
// never come back, is not called twice, and not in the middle of it (program_functions.cc).
inline thread_local bool engine_asks_host __attribute__((tls_model("initial-exec"))) = false;

inline bool InHostCall() { return host_call_depth != 0; }

// Before a call that may block: completes what only this rank's progress could complete, if there
// is anything, and has pending receives looked after. True: finish_blocking() must follow
// (state.cc).
bool prepare_to_block();
// A call that leaves something running in the host, which then needs this rank's progress.
void note_host_start();
void note_host_message();
void finish_blocking();

// Error handlers of the program are called from inside the host without the mark
// (error_handlers.cc). One that leaves by longjmp leaves the thread outside of the host, as it is;
// one that leaves by an exception passes through the destructor here, which must not take for
// granted what it finds.
class HostCallScope {
 public:
  explicit HostCallScope(HostCallKind kind) : outer_depth_(host_call_depth) {
    if (host_call_depth++ != 0) return;
    if (may_block(kind)) host_window_open = prepare_to_block();
    if (leaves_something(kind)) note_host_start();
    if (kind == HostCallKind::kMessageStart) note_host_message();
  }
  ~HostCallScope() {
    host_call_depth = outer_depth_;
    if (outer_depth_ == 0 && host_window_open) [[unlikely]] {
      host_window_open = false;
      finish_blocking();
    }
  }
  HostCallScope(const HostCallScope&) = delete;
  HostCallScope& operator=(const HostCallScope&) = delete;

 private:
  const int outer_depth_;

  static constexpr bool leaves_something(HostCallKind kind) {
    return kind == HostCallKind::kCollectiveStart || kind == HostCallKind::kRmaSync;
  }
  static constexpr bool may_block(HostCallKind kind) {
    return kind != HostCallKind::kCollectiveStart && kind != HostCallKind::kLocal &&
           kind != HostCallKind::kMessageStart;
  }
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_HOST_CALL_SCOPE_H_
