/* Makes host MPIs give their processor away while they wait, for tests with more ranks than
 * processors. Without this each wait lasts until the scheduler's next tick, which makes the suite a
 * hundred times slower:
 *  - MPICH 4 polls without any system call. UCX's progress function is called in every round of
 *    that loop: a round that found nothing to do ends with sched_yield(), and after a few of them
 *    with a short sleep. Beside other work on the machine yielding alone would not do: who yields
 *    to a process that computes comes back after its whole time slice.
 *  - For the same reason Open MPI, which can yield, sleeps for a moment instead.
 *  - MPICH's launcher puts every rank into a session of its own, and where the kernel schedules by
 *    session (sched_autogroup) sched_yield() gives way only to processes of the same session. Ranks
 *    get a process group of their own instead, which is what the launcher needs to end them.
 * Preloaded in the runs without Overdrive and in those with it alike; what Overdrive does while it
 * waits is left alone.
 */
#define _GNU_SOURCE
#include <link.h>
#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ucx_progress.h"

enum { kYields = 3 };

static void sleep_a_moment(void) {
  const struct timespec moment = {0, 1000}; /* the kernel makes about 50 us of it */
  nanosleep(&moment, 0);
}

unsigned ucp_worker_progress(void* worker) {
  static UcxProgress real;
  static __thread int idle;
  if (real == 0) real = find_ucx_progress();
  unsigned events = real(worker);
  if (events != 0) {
    idle = 0;
  } else if (++idle <= kYields) {
    sched_yield();
  } else {
    sleep_a_moment();
  }
  return events;
}

typedef struct {
  uintptr_t begin, end;
} Range;

/* The code of Open MPI's progress loop. */
static int find_code(struct dl_phdr_info* object, size_t size, void* found) {
  (void)size;
  if (strstr(object->dlpi_name, "libopen-pal") == 0) return 0;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    Range* range = found;
    range->begin = object->dlpi_addr + part->p_vaddr;
    range->end = range->begin + part->p_memsz;
  }
  return 1;
}

int sched_yield(void) {
  static Range openmpi;
  const uintptr_t caller = (uintptr_t)__builtin_return_address(0);
  /* Looked for until it is there: libmpi may be loaded late. Threads may look at the same time. */
  if (openmpi.end == 0) dl_iterate_phdr(find_code, &openmpi);
  if (caller < openmpi.begin || caller >= openmpi.end) return (int)syscall(SYS_sched_yield);
  sleep_a_moment();
  return 0;
}

pid_t setsid(void) {
  setpgid(0, 0);
  return getpid();
}
