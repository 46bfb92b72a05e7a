// Collectives by several threads at the same time, each on a communicator of its own.
#include <pthread.h>

#include "odtest.h"

enum { kMostThreads = 8, kMostElements = 3000 };

static MPI_Comm comms[kMostThreads];
static long rounds;

static void* collectives(void* argument) {
  const int number = (int)(intptr_t)argument;
  const MPI_Comm comm = comms[number];
  const long ranks = odt.size, pairs = ranks * (ranks - 1) / 2;
  long* in = odt_memory(kMostElements * sizeof *in);
  long* out = odt_memory(kMostElements * sizeof *out);
  OdtRandom random = odt_random((uint64_t)number);
  for (long i = 0; i < rounds; i++) {
    const int count = 1 + (int)odt_below(&random, kMostElements);
    const int root = (int)odt_below(&random, odt.size);
    const long way = odt_below(&random, 4);
    MPI_Request request = MPI_REQUEST_NULL;
    for (int j = 0; j < count; j++) in[j] = odt.rank + j + i, out[j] = -1;
    if (way == 0) {
      MUST(MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, comm));
    } else if (way == 1) {
      MUST(MPI_Iallreduce(in, out, count, MPI_LONG, MPI_SUM, comm, &request));
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else if (way == 2) {
      MUST(MPI_Reduce(in, out, count, MPI_LONG, MPI_SUM, root, comm));
      MUST(MPI_Bcast(out, count, MPI_LONG, root, comm));
    } else {
      MUST(MPI_Barrier(comm));
      MUST(MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, comm));
    }
    int wrong = 0;
    for (int j = 0; j < count; j++) wrong += out[j] != pairs + ranks * (j + i);
    CHECK(wrong == 0, "thread %d round %ld way %ld: %d of %d wrong", number, i, way, wrong, count);
  }
  free(in);
  free(out);
  return NULL;
}

int main(int argc, char** argv) {
  odt_start_as("threads", &argc, &argv, MPI_THREAD_MULTIPLE);
  if (odt.provided < MPI_THREAD_MULTIPLE) {
    if (odt.rank == 0) printf("SKIP the host has no MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 0;
  }
  const int threads = (int)odt_number("threads", 4);
  rounds = odt_number("rounds", 100);
  pthread_t ids[kMostThreads];
  for (int i = 0; i < threads; i++) MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
  for (int i = 0; i < threads; i++) {
    pthread_create(&ids[i], NULL, collectives, (void*)(intptr_t)i);
  }
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  for (int i = 0; i < threads; i++) MUST(MPI_Comm_free(&comms[i]));
  return odt_finish();
}
