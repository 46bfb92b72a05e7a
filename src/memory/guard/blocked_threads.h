// Threads that cannot wait at guarded pages, because they have SIGSEGV blocked: a fault there ends
// the process.
//
// The loader takes the signal out of what programs block (face/loader/guarded_signals.cc). What it
// cannot see, or not in time, are masks set by a system call, inherited from another program, or
// set before it was known that there would be guards. Nobody can change another thread's mask; so
// nothing is guarded where one is left.
#ifndef OVERDRIVE_MEMORY_GUARD_BLOCKED_THREADS_H_
#define OVERDRIVE_MEMORY_GUARD_BLOCKED_THREADS_H_

#include <sys/types.h>

namespace od::memory::guard {

// One of them, other than the calling thread and Overdrive's own; 0: there is none, as far as the
// kernel tells. Asked again for some milliseconds: the C library blocks signals for moments. A
// thread that is not asleep is given half a second, as it may wait for a core in such a moment.
pid_t find_blocked_thread();

}  // namespace od::memory::guard

#endif  // OVERDRIVE_MEMORY_GUARD_BLOCKED_THREADS_H_
