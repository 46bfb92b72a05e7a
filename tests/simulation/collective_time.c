/* Time of one collective as an MPI program sees it: `collective_time COLLECTIVE BYTES`. Prints the
 * nanoseconds from a common start until the last rank is done. Compiled for SMPI, whose clock is
 * that of the simulation. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) return 2;
  const char* name = argv[1];
  const int bytes = atoi(argv[2]);
  int rank;
  int ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int gathers = strncmp(name, "all", 3) == 0 && strcmp(name, "allreduce") != 0;
  const size_t most = (size_t)bytes * (size_t)(gathers ? ranks : 1) + 8;
  char* in = SMPI_SHARED_MALLOC(most);
  char* out = SMPI_SHARED_MALLOC(most);
  const int count = bytes / 8;
  /* All ranks of a simulation start at time 0, and setting up takes no simulated time. */
  const double start = MPI_Wtime();
  if (strcmp(name, "bcast") == 0) {
    MPI_Bcast(out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
  } else if (strcmp(name, "reduce") == 0) {
    MPI_Reduce(in, out, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  } else if (strcmp(name, "allreduce") == 0) {
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(name, "allgather") == 0) {
    MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, MPI_COMM_WORLD);
  } else if (strcmp(name, "alltoall") == 0) {
    MPI_Alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, MPI_COMM_WORLD);
  } else {
    return 2;
  }
  const double mine = (MPI_Wtime() - start) * 1e9;
  /* After the clock has been read: it costs nothing that counts. */
  double last = 0;
  MPI_Reduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%.0f\n", last);
  SMPI_SHARED_FREE(in);
  SMPI_SHARED_FREE(out);
  MPI_Finalize();
  return 0;
}
