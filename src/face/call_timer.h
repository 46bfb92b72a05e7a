// Times the program's MPI calls where statistics are asked for (observe/call_times.h).
//
// The wrappers that generate.py makes for every function stand in front of the face's and the
// host's entries; without statistics they are not in the table and cost nothing. A call that
// arrives while this thread is inside a timed one is made by the MPI library, or by a callback of
// the program that it calls, and is part of it. An error handler that leaves a call by longjmp
// leaves its frame behind: a frame further out proves that.
#ifndef OVERDRIVE_SRC_FACE_CALL_TIMER_H_
#define OVERDRIVE_SRC_FACE_CALL_TIMER_H_

#include <cstdint>

#include "observe/recording.h"

namespace od::face {

// Frame of the wrapper whose call this thread is in, or 0.
inline thread_local std::uintptr_t timed_frame __attribute__((tls_model("initial-exec"))) = 0;

[[gnu::always_inline]] inline bool inside_timed_call() {
  return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)) < timed_frame;
}

// Looks which libraries the process has that pass on calls of another language.
void find_language_libraries();

// Beginning and end are calls: written out in each of some 540 wrappers, they were most of what
// compiling a face took, and a call is nothing beside the reading of two clocks.
class CallTimer {
 public:
  [[gnu::always_inline]] CallTimer(std::uint32_t function, const void* return_address)
      : function_(function) {
    begin(return_address, __builtin_frame_address(0));
  }
  ~CallTimer() { end(); }
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

  // What the call moves, where a run is recorded (payload.h).
  void set_payload(const observe::Payload& payload) { payload_ = payload; }
  std::uint32_t function() const { return function_; }
  std::uintptr_t address() const { return address_; }
  std::uint64_t start_ns() const { return start_ns_; }

 private:
  // `frame` is that of the wrapper.
  void begin(const void* return_address, const void* frame);
  void end();

  std::uint32_t function_;
  std::uintptr_t address_;
  std::uint64_t start_ns_;
  observe::Payload payload_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_CALL_TIMER_H_
