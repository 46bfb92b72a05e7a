// Persistent collectives that are the host's, completed by MPI_Waitall while a receive of this
// rank's is pending, so that the host is asked for them again and again.
#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("host_persistent", &argc, &argv);
#if MPI_VERSION >= 4
  const int left = (odt.rank + odt.size - 1) % odt.size, right = (odt.rank + 1) % odt.size;
  int late = -1, ranks = odt.size * (odt.size - 1) / 2;
  MPI_Request pending;
  MUST(MPI_Irecv(&late, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &pending));
  for (int round = 0; round < 50; round++) {
    int mine = odt.rank + round, sum = -1, out = odt.rank * 100 + round, in = -1;
    MPI_Request requests[4] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL,
                               MPI_REQUEST_NULL};
    MPI_Status statuses[4];
    MUST(MPI_Allreduce_init(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                            &requests[2]));
    MUST(MPI_Irecv(&in, 1, MPI_INT, left, 2, MPI_COMM_WORLD, &requests[0]));
    // Who comes last changes, and comes when the others have begun to wait.
    if (round % odt.size == odt.rank) odt_sleep_ms(2);
    MUST(MPI_Start(&requests[2]));
    const MPI_Request persistent = requests[2];
    MUST(MPI_Isend(&out, 1, MPI_INT, right, 2, MPI_COMM_WORLD, &requests[3]));
    MUST(MPI_Waitall(4, requests, round % 2 ? statuses : MPI_STATUSES_IGNORE));
    CHECK(sum == ranks + odt.size * round, "round %d: the sum is %d", round, sum);
    CHECK(in == left * 100 + round, "round %d: received %d", round, in);
    CHECK(requests[2] == persistent, "round %d: the persistent request has changed", round);
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[3] == MPI_REQUEST_NULL,
          "round %d: requests are not null", round);
    if (round % 2) {
      int count = -1;
      CHECK(statuses[0].MPI_SOURCE == left && statuses[0].MPI_TAG == 2, "round %d: from %d, tag %d",
            round, statuses[0].MPI_SOURCE, statuses[0].MPI_TAG);
      MUST(MPI_Get_count(&statuses[1], MPI_INT, &count));
      CHECK(count == 0 && statuses[1].MPI_SOURCE == MPI_ANY_SOURCE,
            "round %d: the status of no request is not empty", round);
    }
    MUST(MPI_Request_free(&requests[2]));
  }
  MUST(MPI_Send(&ranks, 1, MPI_INT, right, 1, MPI_COMM_WORLD));
  MUST(MPI_Wait(&pending, MPI_STATUS_IGNORE));
  CHECK(late == ranks, "got %d", late);
#else
  if (odt.rank == 0) printf("SKIP this host has no persistent collectives\n");
  MPI_Finalize();
  return 0;
#endif
  return odt_finish();
}
