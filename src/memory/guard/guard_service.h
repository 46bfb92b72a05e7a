// How the engine, in a face, guards memory of the program whose contents are still on their way:
// plain functions and data of the preloaded loader.
//
// One flight at a time: begin() closes pages and lets every call of MPI come by GuardClient::settle
// first; arrived() says that the contents of a part are there; end() opens what is still closed.
// begin(), arrived() and end() are called by one thread at a time, which may change.
#ifndef OVERDRIVE_MEMORY_GUARD_GUARD_SERVICE_H_
#define OVERDRIVE_MEMORY_GUARD_GUARD_SERVICE_H_

#include <stdint.h>

namespace od::memory {

inline constexpr uint32_t kGuardServiceVersion = 3;

// Whole pages [start, end). Parts of a flight ascend and do not overlap; they stay where they are
// until end() returns.
struct GuardPart {
  static constexpr uint32_t kClosed = 0;
  static constexpr uint32_t kArrived = 1;  // whoever touches it, opens it
  static constexpr uint32_t kOpen = 2;

  uintptr_t start;
  uintptr_t end;
  uint32_t state;  // a futex word
  // When it was first touched, and when whoever did so could go on; 0: never.
  uint64_t touched_ns = 0;
  uint64_t opened_ns = 0;
};

struct GuardClient {
  void* context;
  // A thread begins to wait for a part, or has waited. Called in a signal handler.
  void (*hurry)(void* context, bool waits);
  // A call of MPI begins: completes the flight and ends it. With `abandon` the program is about to
  // end: nothing is waited for.
  void (*settle)(void* context, bool abandon);
};

struct GuardUsage {
  uint64_t faults;   // accesses that had to wait, or at least to open their pages
  uint64_t wait_ns;  // for how long they did
  uint64_t settled;  // system calls that waited for their memory
};

struct GuardService {
  uint32_t version;
  uint32_t size_bytes;
  // Once, before the first flight; false when no handler can be installed.
  bool (*install)(const GuardClient* client);
  // Without parts calls of MPI settle all the same. False: nothing is guarded, the caller completes
  // what it is about.
  // What has arrived already is closed as well, so that it is known when it is touched first; with
  // `one_by_one` opening a part does not open its neighbours.
  bool (*begin)(GuardPart* parts, uint32_t count, bool one_by_one);
  void (*arrived)(GuardPart* part);
  // With `abandon` the process is about to end: threads that wait are not waited for.
  void (*end)(bool abandon);
  // The calling thread moves what is under way: it never waits, and its calls of MPI do not settle.
  void (*exempt_thread)();
  void (*usage)(GuardUsage* usage);
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_GUARD_GUARD_SERVICE_H_
