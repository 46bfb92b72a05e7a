// The real ucp_worker_progress, for libraries of tests that are loaded before it.
#ifndef OVERDRIVE_TESTS_SUPPORT_UCX_PROGRESS_H_
#define OVERDRIVE_TESTS_SUPPORT_UCX_PROGRESS_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdlib.h>

typedef unsigned (*UcxProgress)(void* worker);

static UcxProgress find_ucx_progress(void) {
  UcxProgress found = (UcxProgress)dlsym(RTLD_NEXT, "ucp_worker_progress");
  if (found != NULL) return found;
  // Python loads MPI with local symbols, which are not behind us in the global order.
  void* library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (library != NULL) found = (UcxProgress)dlsym(library, "ucp_worker_progress");
  if (found == NULL) abort();
  return found;
}

#endif  // OVERDRIVE_TESTS_SUPPORT_UCX_PROGRESS_H_
