// A rank ends in the middle, while what it owes others is still on its way and they stand at pages
// that wait for it. --how says in which way:
//   kill  SIGKILL    abort  MPI_Abort    exit  exit without MPI_Finalize
#include <signal.h>

#include "odtest.h"

enum { kBlock = 8 << 20, kRounds = 4 };

int main(int argc, char** argv) {
  odt_start("death", &argc, &argv);
  const char* how = odt_option("how", "kill");
  char* send = malloc((size_t)odt.size * kBlock);
  char* receive = malloc((size_t)odt.size * kBlock);
  for (int round = 0; round < kRounds; round++) {
    memset(send, odt.rank + round, (size_t)odt.size * kBlock);
    MUST(MPI_Alltoall(send, kBlock, MPI_BYTE, receive, kBlock, MPI_BYTE, MPI_COMM_WORLD));
    if (round == kRounds - 1 && odt.rank == odt.size - 1) {
      if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
      if (strcmp(how, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
      exit(3);
    }
    for (int from = 0; from < odt.size; from++) {
      long at = 0;
      while (at < kBlock && receive[(long)from * kBlock + at] == (char)(from + round)) at += 1024;
      CHECK(at == kBlock, "round %d, block from %d differs at %ld", round, from, at);
    }
  }
  return odt_finish();
}
