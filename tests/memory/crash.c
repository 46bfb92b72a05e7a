// Allocates, touches a little, tells its process number and waits to be dumped.
#include <signal.h>

#include "odtest.h"

static char fixed[4 << 20];

int main(int argc, char** argv) {
  odt_start("crash", &argc, &argv);
  char* block = malloc(8 << 20);
  memset(block, 'q', 8 << 20);
  memset(fixed, 'r', sizeof fixed);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(block[5] == 'q', "block");
  if (odt.rank == 0) {
    fflush(NULL);
    raise(SIGABRT);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return odt_finish();
}
