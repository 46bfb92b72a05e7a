// For jobs with more ranks than cores over MPICH, which polls without ever giving up its core: a
// round of its progress that finds nothing sleeps for a moment. MPICH 4.0 makes such a round in
// UCX; others end in a poll of epoll. (Yielding would not do: a launcher may give each rank a
// session of its own, and the kernel's autogroups yield within a session only.)
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <sys/epoll.h>
#include <time.h>

#include "ucx_progress.h"

// What comes within so many rounds is not slept for.
enum { kRounds = 3 };

static __thread int in_ucx;

static void sleep_a_moment(void) {
  const struct timespec moment = {0, 20000};
  nanosleep(&moment, NULL);
}

unsigned ucp_worker_progress(void* worker) {
  static UcxProgress real;
  static __thread int rounds;
  if (real == NULL) real = find_ucx_progress();
  in_ucx = 1;
  unsigned events = real(worker);
  in_ucx = 0;
  if (events != 0) {
    rounds = 0;
  } else if (++rounds > kRounds) {
    sleep_a_moment();
  }
  return events;
}

int epoll_wait(int fd, struct epoll_event* events, int most, int timeout_ms) {
  static int (*real)(int, struct epoll_event*, int, int);
  if (real == NULL)
    real = (int (*)(int, struct epoll_event*, int, int))dlsym(RTLD_NEXT, "epoll_wait");
  int count = real(fd, events, most, timeout_ms);
  if (count == 0 && timeout_ms == 0 && !in_ucx) sleep_a_moment();
  return count;
}
