// Threads that duplicate communicators with MPI_Comm_idup while others complete requests of their
// own: hosts use the value of a completed request again at once, for another thread's request.
#include <pthread.h>

#include "odtest.h"

enum { kThreads = 4, kDups = 3 };

static long rounds;
static MPI_Comm parents[kThreads];

static void* duplicate(void* argument) {
  const int me = (int)(intptr_t)argument;
  const int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  for (long round = 0; round < rounds; round++) {
    MPI_Comm comms[kDups];
    MPI_Request requests[kDups + 1];
    int mine = odt.rank + 1, sum = 0;
    for (int i = 0; i < kDups; i++) MUST(MPI_Comm_idup(parents[me], &comms[i], &requests[i]));
    MUST(MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, parents[me], &requests[kDups]));
    if (round % 2 == 0) {
      MUST(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    } else {
      int done = 0;
      while (!done) MUST(MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE));
    }
    MUST(MPI_Waitall(kDups + 1, requests, MPI_STATUSES_IGNORE));
    CHECK(sum == odt.size * (odt.size + 1) / 2, "sum %d in round %ld", sum, round);
    for (int i = 0; i < kDups; i++) {
      // Messages show that both ends serve the communicator, or both leave it to the host.
      int out = odt.rank * 1000 + i, in = -1;
      MUST(MPI_Sendrecv(&out, 1, MPI_INT, right, i, &in, 1, MPI_INT, left, i, comms[i],
                        MPI_STATUS_IGNORE));
      CHECK(in == left * 1000 + i, "got %d from rank %d in round %ld", in, left, round);
      MUST(MPI_Comm_free(&comms[i]));
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  odt_start_as("idup_threads", &argc, &argv, MPI_THREAD_MULTIPLE);
  if (odt.provided < MPI_THREAD_MULTIPLE) {
    if (odt.rank == 0) printf("SKIP this host gives thread level %d only\n", odt.provided);
    MPI_Finalize();
    return 0;
  }
  rounds = odt_number("rounds", 200);
  for (int i = 0; i < kThreads; i++) MUST(MPI_Comm_dup(MPI_COMM_WORLD, &parents[i]));
  pthread_t ids[kThreads];
  for (int i = 0; i < kThreads; i++) {
    pthread_create(&ids[i], NULL, duplicate, (void*)(intptr_t)i);
  }
  for (int i = 0; i < kThreads; i++) pthread_join(ids[i], NULL);
  for (int i = 0; i < kThreads; i++) MUST(MPI_Comm_free(&parents[i]));
  return odt_finish();
}
