// All-to-alls and broadcasts whose data is read from the back: blocks from the last rank on, each
// of them from its end; checked byte by byte.
//
//   --calls=N  of each kind (4)
#include "odtest.h"

enum { kBlock = 640 << 10, kPage = 4096 };

static unsigned char value(int from, int to, long call, long i) {
  return (unsigned char)(i / kPage * 11 + from * 31 + to * 57 + call * 13 + 1);
}

static long wrong_from_the_back(const char* block, int from, int to, long call) {
  for (long page = kBlock / kPage - 1; page >= 0; page--) {
    for (long i = page * kPage; i < (page + 1) * kPage; i++) {
      if ((unsigned char)block[i] != value(from, to, call, i)) return i;
    }
  }
  return -1;
}

static void check_from_the_back(const char* block, int from, int to, long call) {
  const long wrong = wrong_from_the_back(block, from, to, call);
  CHECK(wrong < 0, "call %ld, block from %d differs at %ld", call, from, wrong);
}

static void fill(char* block, int from, int to, long call) {
  for (long i = 0; i < kBlock; i++) block[i] = (char)value(from, to, call, i);
}

int main(int argc, char** argv) {
  odt_start("order", &argc, &argv);
  const long calls = odt_number("calls", 4);
  char* send = malloc((size_t)odt.size * kBlock);
  char* receive = malloc((size_t)odt.size * kBlock);
  for (long call = 0; call < calls; call++) {
    for (int to = 0; to < odt.size; to++) fill(send + (long)to * kBlock, odt.rank, to, call);
    MUST(MPI_Alltoall(send, kBlock, MPI_BYTE, receive, kBlock, MPI_BYTE, MPI_COMM_WORLD));
    for (int from = odt.size - 1; from >= 0; from--) {
      check_from_the_back(receive + (long)from * kBlock, from, odt.rank, call);
    }
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
  for (long call = 0; call < calls; call++) {
    const int root = (int)(call % odt.size);
    memset(receive, 0, kBlock);
    if (odt.rank == root) fill(receive, root, root, call);
    MUST(MPI_Bcast(receive, kBlock, MPI_BYTE, root, MPI_COMM_WORLD));
    check_from_the_back(receive, root, root, call);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
  free(send);
  free(receive);
  return odt_finish();
}
