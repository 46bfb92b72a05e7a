// Spoils one word of what a collective returns on one rank, to show that the benchmark notices.
// Compiled for a host and preloaded; SPOIL names the collective, AFTER how many calls pass first.
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static int Spoils(const char* name, MPI_Comm comm) {
  static int calls;
  const char* wanted = getenv("SPOIL");
  if (wanted == NULL || strcmp(wanted, name) != 0) return 0;
  int rank;
  MPI_Comm_rank(comm, &rank);
  return calls++ >= atoi(getenv("AFTER")) && rank == 1;
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  int result = PMPI_Allreduce(in, out, count, type, op, comm);
  // Only the benchmark's own data are doubles that are added.
  if (type == MPI_DOUBLE && op == MPI_SUM && Spoils("allreduce", comm)) {
    ((double*)out)[count - 1] += 1;
  }
  return result;
}

int MPI_Alltoall(const void* in, int count, MPI_Datatype type, void* out, int out_count,
                 MPI_Datatype out_type, MPI_Comm comm) {
  int result = PMPI_Alltoall(in, count, type, out, out_count, out_type, comm);
  if (Spoils("alltoall", comm)) ((char*)out)[count + 6] ^= 1;
  return result;
}
