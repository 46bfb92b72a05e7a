// For jobs with more ranks than cores over MPICH, which polls without ever giving up its core: a
// poll of epoll that finds nothing sleeps for a moment. (Yielding would not do: a launcher may give
// each rank a session of its own, and the kernel's autogroups yield within a session only.)
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <sys/epoll.h>
#include <time.h>

int epoll_wait(int fd, struct epoll_event* events, int most, int timeout_ms) {
  static int (*real)(int, struct epoll_event*, int, int);
  if (real == NULL)
    real = (int (*)(int, struct epoll_event*, int, int))dlsym(RTLD_NEXT, "epoll_wait");
  int count = real(fd, events, most, timeout_ms);
  if (count == 0 && timeout_ms == 0) {
    struct timespec moment = {0, 20000};
    nanosleep(&moment, NULL);
  }
  return count;
}
