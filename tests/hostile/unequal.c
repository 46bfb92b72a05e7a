// Messages and collectives of all ranks in a job whose ranks differ in what they have of Overdrive.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kCount = 4000, kRounds = 20 };

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "wrong: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  static int out[kCount], in[kCount];
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int round = 0; round < kRounds; ++round) {
    const int count = round % 2 == 0 ? 1 + round : kCount;
    for (int i = 0; i < count; ++i) out[i] = rank * 100 + round + i;
    const int left = (rank + size - 1) % size;
    MPI_Sendrecv(out, count, MPI_INT, (rank + 1) % size, round, in, count, MPI_INT, left, round,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(in[count - 1] == left * 100 + round + count - 1, "message");
    MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(in[0] == 100 * (size * (size - 1) / 2) + size * round, "sum");
    MPI_Bcast(out, count, MPI_INT, round % size, MPI_COMM_WORLD);
    check(out[0] == round % size * 100 + round, "broadcast");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("PASS unequal\n");
  MPI_Finalize();
  return 0;
}
