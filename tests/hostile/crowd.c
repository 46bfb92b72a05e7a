// Many ranks on few cores, with messages only (some hosts spin without yielding in their own
// collectives): a ring, exchanges with partners at powers of two, everything to rank 0 from any
// source.
#include "odtest.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  odt.name = "crowd";
  odt.argc = argc;
  odt.argv = argv;
  MPI_Comm_rank(MPI_COMM_WORLD, &odt.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &odt.size);
  odt.seed = 1;
  enum { kBytes = 20000 };
  static char out[kBytes], in[kBytes];
  int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  for (int round = 0; round < 3; round++) {
    odt_fill(out, kBytes, odt_key(odt.rank, right, 1, round));
    MUST(MPI_Sendrecv(out, kBytes, MPI_BYTE, right, 1, in, kBytes, MPI_BYTE, left, 1,
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_DATA(in, kBytes, odt_key(left, odt.rank, 1, round));
    for (int bit = 1; bit < odt.size; bit *= 2) {
      int peer = odt.rank ^ bit;
      if (peer >= odt.size) continue;
      odt_fill(out, 500, odt_key(odt.rank, peer, 2, round));
      MUST(MPI_Sendrecv(out, 500, MPI_BYTE, peer, 2, in, 500, MPI_BYTE, peer, 2, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
      CHECK_DATA(in, 500, odt_key(peer, odt.rank, 2, round));
    }
  }
  long mine = odt.failures, all = odt.failures;
  if (odt.rank != 0) {
    MUST(MPI_Send(&mine, 1, MPI_LONG, 0, 3, MPI_COMM_WORLD));
  } else {
    for (int i = 1; i < odt.size; i++) {
      MUST(MPI_Recv(&mine, 1, MPI_LONG, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      all += mine;
    }
    if (all == 0) printf("PASS crowd: %d ranks\n", odt.size);
    fflush(stdout);
  }
  MPI_Finalize();
  return odt.failures == 0 ? 0 : 1;
}
