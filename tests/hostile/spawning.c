// Jobs that a job starts: every rank starts one of its own at the same time, then all together one.
// They have the launcher's variables in common. Their ranks talk among themselves, and to those who
// have started them while receives from any source are pending on both sides.
#include "odtest.h"

enum { kChildren = 2, kRounds = 20, kElements = 100000 };

static void ring(int rounds) {
  const int before = (odt.rank + odt.size - 1) % odt.size;
  for (int round = 0; round < rounds; round++) {
    int word = 100 * round + odt.rank, got = -1, sum = -1;
    MUST(MPI_Sendrecv(&word, 1, MPI_INT, (odt.rank + 1) % odt.size, 1, &got, 1, MPI_INT,
                      MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(got == 100 * round + before, "%d came", got);
    MUST(MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == 100 * round * odt.size + odt.size * (odt.size - 1) / 2, "sum %d", sum);
  }
}

// Every rank of one side has one on the other if both have as many.
static void meet(MPI_Comm other, int high) {
  static int out[kElements], in[kElements];
  int rank, local, remote, world = -1, sum = -1, all;
  MPI_Comm merged;
  MPI_Request requests[4];
  MPI_Comm_rank(other, &rank);
  MPI_Comm_size(other, &local);
  MPI_Comm_remote_size(other, &remote);
  for (int i = 0; i < kElements; i++) out[i] = i + 1000 * high + rank;
  int n = 0, one = odt.rank;
  MUST(MPI_Irecv(&world, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &requests[n++]));
  if (local == remote) {
    MUST(MPI_Irecv(in, kElements, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, other, &requests[n++]));
    MUST(MPI_Isend(out, kElements, MPI_INT, rank, 2, other, &requests[n++]));
  }
  MUST(MPI_Isend(&one, 1, MPI_INT, (odt.rank + 1) % odt.size, 2, MPI_COMM_WORLD, &requests[n++]));
  MUST(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
  CHECK(world == (odt.rank + odt.size - 1) % odt.size, "%d came", world);
  const int last = local == remote ? kElements - 1 + 1000 * (1 - high) + rank : 0;
  CHECK(in[kElements - 1] == last, "%d came", in[kElements - 1]);
  one = 1;
  MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, other));
  CHECK(sum == remote, "%d ranks on the other side", sum);
  MUST(MPI_Intercomm_merge(other, high, &merged));
  MUST(MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, merged));
  CHECK(all == local + remote, "%d ranks together", all);
  MUST(MPI_Comm_free(&merged));
}

static void start(const char* program, MPI_Comm who) {
  MPI_Comm children;
  MUST(MPI_Comm_spawn(program, MPI_ARGV_NULL, kChildren, MPI_INFO_NULL, 0, who, &children,
                      MPI_ERRCODES_IGNORE));
  meet(children, 0);
  MUST(MPI_Comm_disconnect(&children));
}

int main(int argc, char** argv) {
  MPI_Comm parent;
  odt_start("spawning", &argc, &argv);
  MPI_Comm_get_parent(&parent);
  ring(kRounds);
  if (parent != MPI_COMM_NULL) {
    meet(parent, 1);
    MUST(MPI_Comm_disconnect(&parent));
  } else {
    start(argv[0], MPI_COMM_SELF);
    start(argv[0], MPI_COMM_WORLD);
  }
  ring(kRounds);
  return odt_finish();
}
