// Linked into unit tests whose source does not say that they start threads: refuses to start one.
//
// Only tests that say so are built with the thread sanitizer (cmake/OverdriveTests.cmake). Without
// this, a test whose code under test begins to use a thread would silently never be judged by it.
// The definition in the program comes before the C library's, also for the C++ library.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t*,
                                                                     const pthread_attr_t*,
                                                                     void* (*)(void*),
                                                                     void*) noexcept {
  std::fputs(
      "This test starts a thread, and its source does not say so: write \"Starts threads\" into "
      "its "
      "opening comment and run cmake again, so that it is built with the thread sanitizer, too.\n",
      stderr);
  std::abort();
}
