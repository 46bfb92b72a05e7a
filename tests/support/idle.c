// For jobs with more ranks than cores over MPICH, which polls without ever giving up its core: a
// round of its progress that finds nothing sleeps for a moment. MPICH 4.0 makes such a round in
// UCX; others end in a poll of epoll. (Yielding would not do: a launcher may give each rank a
// session of its own, and the kernel's autogroups yield within a session only.) Between two naps it
// polls for a while: a caller that asks for many requests one after the other, each with a round of
// its own, must not sleep for each of them.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <sys/epoll.h>
#include <time.h>

#include "ucx_progress.h"

// What comes within so long is not slept for, and so long it is awake between two naps.
enum { kAwakeNs = 20000, kNapNs = 20000 };

static __thread int in_ucx;

static long long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Called after each round: `found` tells whether anything was done.
static void after_round(int found) {
  static __thread long long awake_since_ns;
  const long long now = now_ns();
  if (found) {
    awake_since_ns = now;
  } else if (now - awake_since_ns > kAwakeNs) {
    const struct timespec moment = {0, kNapNs};
    nanosleep(&moment, NULL);
    awake_since_ns = now_ns();
  }
}

unsigned ucp_worker_progress(void* worker) {
  static UcxProgress real;
  if (real == NULL) real = find_ucx_progress();
  in_ucx = 1;
  unsigned events = real(worker);
  in_ucx = 0;
  after_round(events != 0);
  return events;
}

int epoll_wait(int fd, struct epoll_event* events, int most, int timeout_ms) {
  static int (*real)(int, struct epoll_event*, int, int);
  if (real == NULL)
    real = (int (*)(int, struct epoll_event*, int, int))dlsym(RTLD_NEXT, "epoll_wait");
  int count = real(fd, events, most, timeout_ms);
  if (timeout_ms == 0 && !in_ucx) after_round(count != 0);
  return count;
}
