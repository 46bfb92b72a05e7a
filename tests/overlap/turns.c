// All-to-alls whose ranks take turns on the link, as a trace of an earlier run says; and with
// --shorter=RANK those of ranks of which one has shorter blocks, about which the trace says
// nothing: nobody waits for a turn that the other one does not give.
#include "odtest.h"

enum { kBlock = 640 << 10, kPage = 4096, kCalls = 4, kShort = 100 << 10 };

static int class_of(int error) {
  int class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MUST(MPI_Error_class(error, &class));
  return class;
}

int main(int argc, char** argv) {
  odt_start("turns", &argc, &argv);
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  const long shorter = odt_number("shorter", -1);
  const int bytes = odt.rank == shorter ? kShort : kBlock;
  char* send = malloc((size_t)odt.size * kBlock);
  char* receive = malloc((size_t)odt.size * kBlock);
  memset(send, odt.rank + 1, (size_t)odt.size * kBlock);
  for (int call = 0; call < kCalls; call++) {
    memset(receive, 0, (size_t)odt.size * kBlock);
    const int first =
        class_of(MPI_Alltoall(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, MPI_COMM_WORLD));
    // From the back, which is not the order in which blocks lie.
    for (int from = odt.size - 1; from >= 0 && shorter < 0; from--) {
      const char* block = receive + (long)from * bytes;
      for (long page = bytes / kPage - 1; page >= 0; page--) {
        CHECK(block[page * kPage] == from + 1, "call %d, block from %d, page %ld: %d", call, from,
              page, block[page * kPage]);
      }
    }
    int one = 1, sum = 0;
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == odt.size, "call %d: a sum of %d", call, sum);
    // What was late is told by the next one that takes the same way.
    const int second = class_of(MPI_Bcast(receive, kBlock, MPI_BYTE, 0, MPI_COMM_WORLD));
    const int wanted = shorter < 0 ? MPI_SUCCESS : MPI_ERR_TRUNCATE;
    CHECK(first == wanted || second == wanted, "call %d: classes %d and %d", call, first, second);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
  free(send);
  free(receive);
  return odt_finish();
}
