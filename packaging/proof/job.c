// The small job that ends every test of an installation: messages around a ring, short and long,
// and collectives, with every value checked; rank 0 prints PASS.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LONGEST (1 << 17)
#define ROUNDS 20

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "FAIL %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int* out = malloc(LONGEST * sizeof *out);
  int* in = malloc(LONGEST * sizeof *in);
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (int count = 1; count <= LONGEST; count *= 8) {
    for (int round = 0; round < ROUNDS; ++round) {
      for (int i = 0; i < count; ++i) out[i] = rank * 1000 + round + i;
      MPI_Status status;
      MPI_Sendrecv(out, count, MPI_INT, next, round, in, count, MPI_INT, before, round,
                   MPI_COMM_WORLD, &status);
      int received = 0;
      MPI_Get_count(&status, MPI_INT, &received);
      expect(received == count && status.MPI_SOURCE == before, "status of a message");
      for (int i = 0; i < count; ++i) expect(in[i] == before * 1000 + round + i, "message");
      MPI_Allreduce(out, in, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      const int ranks = size * (size - 1) / 2 * 1000;
      for (int i = 0; i < count; ++i) expect(in[i] == ranks + size * (round + i), "sum");
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("PASS %d ranks\n", size);
  free(out);
  free(in);
  MPI_Finalize();
  return 0;
}
