// Programs that go on after a rank has died (user-level failure mitigation): the last rank ends by
// SIGKILL while others wait for it, the survivors interrupt each other, shrink the communicator,
// and compute on. --wait says where they are found: recv, wait, collective, icollective; the others
// of them wait for a survivor that never sends, until the communicator is revoked.
//
// Open MPI 5.0 alone does not come out of MPI_Finalize in one of twenty of these jobs. Who stays
// there for kFinalizeSeconds looks in whose code it is: in the host's it says so and ends, in
// Overdrive's it goes on waiting, and the job's limit is passed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>

#include "odtest.h"
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

enum { kFinalizeSeconds = 10 };

// The innermost frame that is not of the C library or of this program tells who waits.
static void tell_who_stays(int signal_number) {
  void* frames[64];
  const int count = backtrace(frames, 64);
  (void)signal_number;
  for (int i = 0; i < count; i++) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0 || info.dli_fname == NULL) continue;
    const char* slash = strrchr(info.dli_fname, '/');
    const char* name = slash != NULL ? slash + 1 : info.dli_fname;
    if (strstr(name, "overdrive") != NULL) return;
    static const char* const kHost[] = {"libmpi", "libopen-pal", "libpmix", "libevent", "mca_"};
    for (size_t j = 0; j < sizeof kHost / sizeof kHost[0]; j++) {
      if (strncmp(name, kHost[j], strlen(kHost[j])) != 0) continue;
      fprintf(stderr, "HOST rank %d stays in MPI_Finalize, in %s\n", odt.rank, name);
      _exit(odt.failures != 0);
    }
  }
}

static void finalize(void) {
  void* frame;
  backtrace(&frame, 1);  // loads what it needs
  signal(SIGALRM, tell_who_stays);
  alarm(kFinalizeSeconds);
  MPI_Finalize();
  alarm(0);
}

static int class_of(int error) {
  int class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &class);
  return class;
}

static int failed(int error) {
  const int class = class_of(error);
  return class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED ||
         class == MPIX_ERR_PROC_FAILED_PENDING;
}

int main(int argc, char** argv) {
  odt_start("shrink", &argc, &argv);
  const char* waiting = odt_option("wait", "recv");
  const int victim = odt.size - 1;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  // All with a common history.
  int token = odt.rank, sum = 0;
  const int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  for (int i = 0; i < 20; i++) {
    int other = -1;
    MUST(MPI_Sendrecv(&token, 1, MPI_INT, right, 1, &other, 1, MPI_INT, left, 1, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    CHECK(other == left, "%d", other);
    MUST(MPI_Allreduce(&token, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  }
  MPI_Comm work;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &work));
  MPI_Comm_set_errhandler(work, MPI_ERRORS_RETURN);
  MUST(MPI_Barrier(work));
  if (odt.rank == victim) {
    odt_sleep_ms(100);
    raise(SIGKILL);
  }
  // Rank 0 waits for the dead; the others for somebody who waits as well.
  const int from = odt.rank == 0 ? victim : 0;
  int error;
  MPI_Request request;
  if (strcmp(waiting, "collective") == 0) {
    // A barrier whose root does not wait may succeed at some ranks.
    do error = MPI_Allreduce(&token, &sum, 1, MPI_INT, MPI_SUM, work);
    while (error == MPI_SUCCESS);
  } else if (strcmp(waiting, "icollective") == 0) {
    error = MPI_Iallreduce(&token, &sum, 1, MPI_INT, MPI_SUM, work, &request);
    if (error == MPI_SUCCESS) error = MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else if (strcmp(waiting, "wait") == 0) {
    error = MPI_Irecv(&token, 1, MPI_INT, from, 2, work, &request);
    if (error == MPI_SUCCESS) error = MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    error = MPI_Recv(&token, 1, MPI_INT, from, 2, work, MPI_STATUS_IGNORE);
  }
  CHECK(failed(error), "class %d", class_of(error));
  MPIX_Comm_revoke(work);
  MPI_Comm smaller;
  MUST(MPIX_Comm_shrink(work, &smaller));
  int size = 0, rank = -1;
  MPI_Comm_size(smaller, &size);
  MPI_Comm_rank(smaller, &rank);
  CHECK(size == odt.size - 1, "%d ranks are left", size);
  for (int i = 0; i < 20; i++) {
    int one = 1;
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, smaller));
    CHECK(sum == size, "%d of %d", sum, size);
    int other = -1;
    MUST(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 3, &other, 1, MPI_INT,
                      (rank + size - 1) % size, 3, smaller, MPI_STATUS_IGNORE));
    CHECK(other == (rank + size - 1) % size, "%d", other);
  }
  int flag = 1;
  MUST(MPIX_Comm_agree(smaller, &flag));
  long failures = odt.failures, all = 0;
  MUST(MPI_Allreduce(&failures, &all, 1, MPI_LONG, MPI_SUM, smaller));
  if (rank == 0) printf("%s shrink: %d survivors\n", all == 0 ? "PASS" : "WRONG", size);
  fflush(stdout);
  MPI_Comm_free(&smaller);
  finalize();
  return all != 0;
}
