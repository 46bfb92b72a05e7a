// A program whose handler of crashes ends the job, as many do: it runs in the middle of what the
// library does, here where a message arrives in memory that is not there.
#include <signal.h>
#include <sys/mman.h>

#include "odtest.h"

static void crashed(int number) {
  (void)number;
  MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char** argv) {
  MPI_Request request;
  odt_start_as("aborting", &argc, &argv, MPI_THREAD_MULTIPLE);
  const int bytes = (int)odt_number("bytes", 100);
  char* buffer = calloc(1, (size_t)bytes);
  if (odt.rank == 0) {
    buffer = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGSEGV, crashed);
    signal(SIGBUS, crashed);
    MPI_Irecv(buffer, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(buffer, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  printf("rank %d went on\n", odt.rank);
  MPI_Finalize();
  return 0;
}
