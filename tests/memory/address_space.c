// How much memory a program still gets where its address space is limited (ulimit -v), after
// MPI_Init and some messages: it is printed, in MiB.
#include "odtest.h"

enum { kBlock = 4 << 20, kMostBlocks = 1 << 14 };

int main(int argc, char** argv) {
  odt_start("address_space", &argc, &argv);
  static char out[300000], in[300000];
  const int to = (odt.rank + 1) % odt.size, from = (odt.rank + odt.size - 1) % odt.size;
  odt_fill(out, sizeof out, odt_key(odt.rank, to, 0, 0));
  MUST(MPI_Sendrecv(out, sizeof out, MPI_BYTE, to, 1, in, sizeof in, MPI_BYTE, from, 1,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK_DATA(in, sizeof in, odt_key(from, odt.rank, 0, 0));
  static char* blocks[kMostBlocks];
  int count = 0;
  while (count < kMostBlocks && (blocks[count] = malloc(kBlock)) != NULL) blocks[count++][0] = 1;
  const int got = count;
  while (count > 0) free(blocks[--count]);
  int least = 0;
  MUST(MPI_Allreduce(&got, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
  if (odt.rank == 0) printf("got %d MiB\n", least * (kBlock >> 20));
  return odt_finish();
}
