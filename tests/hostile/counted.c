// A known number of calls, for the profiling tool: 100 sends, 100 receives and 50 waits per rank.
#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("counted", &argc, &argv);
  const int peer = odt.rank ^ 1;
  for (int i = 0; i < 50 && peer < odt.size; i++) {
    int out = i, in = -1;
    MPI_Request requests[2];
    if (odt.rank < peer) {
      MUST(MPI_Send(&out, 1, MPI_INT, peer, 1, MPI_COMM_WORLD));
      MUST(MPI_Recv(&in, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
      MUST(MPI_Recv(&in, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      MUST(MPI_Send(&out, 1, MPI_INT, peer, 1, MPI_COMM_WORLD));
    }
    CHECK(in == i, "got %d, not %d", in, i);
    MUST(MPI_Irecv(&in, 1, MPI_INT, peer, 2, MPI_COMM_WORLD, &requests[0]));
    MUST(MPI_Isend(&out, 1, MPI_INT, peer, 2, MPI_COMM_WORLD, &requests[1]));
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(in == i, "got %d, not %d", in, i);
  }
  return odt_finish();
}
