// A profiling tool: wraps some MPI functions, counts the calls and passes them on to PMPI.
// Preloaded above Overdrive it sees every call of the program; below it sees none of those that
// Overdrive takes. At MPI_Finalize each process prints "tool RANK sends receives waits", as it
// stands.
#include <mpi.h>
#include <stdio.h>

static long sends, receives, waits;

int MPI_Send(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  sends++;
  return PMPI_Send(buffer, count, type, to, tag, comm);
}

int MPI_Isend(const void* buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  sends++;
  return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}

int MPI_Recv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
             MPI_Status* status) {
  receives++;
  return PMPI_Recv(buffer, count, type, from, tag, comm, status);
}

int MPI_Irecv(void* buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
  receives++;
  return PMPI_Irecv(buffer, count, type, from, tag, comm, request);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  waits++;
  return PMPI_Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  waits++;
  return PMPI_Waitall(count, requests, statuses);
}

int MPI_Finalize(void) {
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("tool %d %ld %ld %ld\n", rank, sends, receives, waits);
  fflush(stdout);
  return PMPI_Finalize();
}
