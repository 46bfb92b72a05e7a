/* Traffic whose record is known: a ring of messages of two sizes, also on a communicator in which
 * ranks are reversed, in-place and rooted collectives, messages to nobody. With an argument: that
 * many rounds of the ring, and the time that they took. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 100, LARGE = 5000, ROUNDS = 20 };

static char out[8 * LARGE];
static char in[8 * LARGE];

static void ring(MPI_Comm comm, int count, MPI_Datatype type, int rounds) {
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  for (int i = 0; i < rounds; ++i) {
    MPI_Request request;
    MPI_Irecv(in, count, type, (rank + size - 1) % size, 0, comm, &request);
    MPI_Send(out, count, type, (rank + 1) % size, 0, comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1) {
    const int bytes = argc > 2 ? atoi(argv[2]) : 8;
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    ring(MPI_COMM_WORLD, bytes, MPI_BYTE, atoi(argv[1]));
    if (rank == 0) printf("seconds %.6f\n", MPI_Wtime() - start);
    MPI_Finalize();
    return 0;
  }
  MPI_Comm reversed;
  MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &reversed);
  ring(MPI_COMM_WORLD, SMALL, MPI_BYTE, ROUNDS);
  ring(reversed, LARGE, MPI_DOUBLE, ROUNDS);
  MPI_Send(out, SMALL, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
  double values[4] = {1, 2, 3, 4};
  double all[4 * 64];
  memset(all, 0, sizeof all);
  MPI_Allreduce(MPI_IN_PLACE, values, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 4, MPI_DOUBLE, MPI_COMM_WORLD);
  /* Only the root's side of it is there on the root. */
  MPI_Gather(rank == 0 ? MPI_IN_PLACE : values, rank == 0 ? 0 : 4,
             rank == 0 ? MPI_DATATYPE_NULL : MPI_DOUBLE, rank == 0 ? all : NULL, rank == 0 ? 4 : 0,
             rank == 0 ? MPI_DOUBLE : MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD);
  MPI_Scatter(rank == 0 ? all : NULL, rank == 0 ? 4 : 0, rank == 0 ? MPI_DOUBLE : MPI_DATATYPE_NULL,
              values, 4, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  MPI_Comm_free(&reversed);
  MPI_Finalize();
  if (rank == 0) puts("PASS traffic");
  return 0;
}
