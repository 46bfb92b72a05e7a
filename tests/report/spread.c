/* Collective calls to which ranks come as far apart as is known: in the first loop the last rank
 * waits until all others are in the call; in the second, on a communicator of half the ranks, its
 * first rank does. A rank is late by a message that it receives before, and a pause. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { kCalls = 20, kPauseUs = 15000 };

static int rank, ranks;

/* The others say that they are about to call. */
static void AwaitOthers(int late, int among, MPI_Comm comm) {
  int me;
  MPI_Comm_rank(comm, &me);
  if (me != late) MPI_Send(NULL, 0, MPI_BYTE, late, 0, comm);
  for (int other = 0; me == late && other < among; ++other) {
    if (other != late) MPI_Recv(NULL, 0, MPI_BYTE, other, 0, comm, MPI_STATUS_IGNORE);
  }
  if (me == late) usleep(kPauseUs);
}

int main(int argc, char** argv) {
  int value = 0, sum = 0;
  MPI_Comm half;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  for (int i = 0; i < kCalls; ++i) {
    AwaitOthers(ranks - 1, ranks, MPI_COMM_WORLD);
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  for (int i = 0; i < kCalls && rank % 2 == 0; ++i) {
    int size;
    MPI_Comm_size(half, &size);
    AwaitOthers(0, size, half);
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, half);
  }
  MPI_Comm_free(&half);
  MPI_Finalize();
  if (rank == 0) puts("PASS spread");
  return 0;
}
