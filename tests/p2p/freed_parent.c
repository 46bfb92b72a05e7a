// A communicator that is freed while its duplicate is being made and a receive from any node is
// pending on it: what the duplicate needs of it has to outlive both.
#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("freed_parent", &argc, &argv);
  const int rounds = (int)odt_number("rounds", 20);
  for (int round = 0; round < rounds; round++) {
    MPI_Comm parent, child, other;
    MPI_Request receive = MPI_REQUEST_NULL, duplicate;
    int got = -1, sent = 1000 + round;
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &parent));
    if (odt.rank == 0) {
      MUST(MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 5, parent, &receive));
    }
    MUST(MPI_Comm_idup(parent, &child, &duplicate));
    if (odt.rank == 2) {
      // The receive is pending until its communicator has been freed where it was posted.
      MUST(MPI_Recv(NULL, 0, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      MUST(MPI_Send(&sent, 1, MPI_INT, 0, 5, parent));
    }
    MUST(MPI_Comm_free(&parent));
    if (odt.rank == 0) {
      MUST(MPI_Send(NULL, 0, MPI_INT, 2, 6, MPI_COMM_WORLD));
      MPI_Status status;
      MUST(MPI_Wait(&receive, &status));
      CHECK(got == sent && status.MPI_SOURCE == 2, "got %d from %d", got, status.MPI_SOURCE);
    }
    // What has been put off is done here, and its memory may be used again.
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    MUST(MPI_Wait(&duplicate, MPI_STATUS_IGNORE));
    for (int i = 0; i < 2; i++) {
      const MPI_Comm comm = i == 0 ? child : other;
      const int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
      const int mine = odt.rank * 10 + i;
      MUST(MPI_Sendrecv(&mine, 1, MPI_INT, right, 7, &got, 1, MPI_INT, left, 7, comm,
                        MPI_STATUS_IGNORE));
      CHECK(got == left * 10 + i, "round %d: got %d from %d", round, got, left);
    }
    MUST(MPI_Comm_free(&child));
    MUST(MPI_Comm_free(&other));
  }
  return odt_finish();
}
