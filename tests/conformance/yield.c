/* Makes MPICH give its processor away while it waits, for tests with more ranks than processors.
 *
 * Without this each wait lasts until the scheduler's next tick, which makes the suite a hundred
 * times slower, for two reasons:
 *  - MPICH 4 polls without any system call. UCX's progress function is called in every round of
 *    that loop: a round that found nothing to do ends with sched_yield(), and after a few of them
 *    with a short sleep. Beside other work on the machine yielding alone would not do: whoever
 * yields to a process that computes comes back after its whole time slice.
 *  - Its launcher puts every rank into a session of its own, and where the kernel schedules by
 *    session (sched_autogroup) sched_yield() gives way only to processes of the same session. Ranks
 *    get a process group of their own instead, which is what the launcher needs to end them.
 * Preloaded in the runs without Overdrive and in those with it alike.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { kYields = 3 };

typedef unsigned (*Progress)(void*);

static Progress find_real(void) {
  Progress found = (Progress)dlsym(RTLD_NEXT, "ucp_worker_progress");
  if (found != 0) return found;
  /* Python loads MPI with local symbols, which are not behind us in the global order. */
  void* library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (library != 0) found = (Progress)dlsym(library, "ucp_worker_progress");
  if (found == 0) abort();
  return found;
}

unsigned ucp_worker_progress(void* worker) {
  static Progress real;
  static __thread int idle;
  if (real == 0) real = find_real();
  unsigned events = real(worker);
  if (events != 0) {
    idle = 0;
  } else if (++idle <= kYields) {
    sched_yield();
  } else {
    const struct timespec moment = {0, 1000}; /* the kernel makes about 50 us of it */
    nanosleep(&moment, 0);
  }
  return events;
}

pid_t setsid(void) {
  setpgid(0, 0);
  return getpid();
}
