// A rank that waits for a message of ours still makes the host progress, on which other ranks wait:
// one-sided access to its window, and non-blocking collectives it has started before.
#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("host_progress", &argc, &argv);
  const int last = odt.size - 1;
  long cells[64] = {0};
  MPI_Win window;
  MUST(
      MPI_Win_create(cells, sizeof cells, sizeof cells[0], MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  for (int round = 0; round < 20; round++) {
    long mine = odt.rank + round, sum = 0, ignored = 0;
    MPI_Request request;
    MUST(MPI_Iallreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request));
    if (odt.rank == 0) {
      // Nothing but a receive: everybody else needs this rank's progress to get to the send.
      MUST(MPI_Recv(&ignored, 1, MPI_LONG, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
      const long value = 1000 * odt.rank + round;
      MUST(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
      MUST(MPI_Put(&value, 1, MPI_LONG, 0, odt.rank % 64, 1, MPI_LONG, window));
      MUST(MPI_Win_unlock(0, window));
      if (odt.rank == last) MUST(MPI_Send(&ignored, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD));
    }
    CHECK(sum == (long)odt.size * (odt.size - 1) / 2 + (long)odt.size * round, "sum %ld", sum);
  }
  MUST(MPI_Win_free(&window));
  return odt_finish();
}
