// Ordinary traffic that every hostile environment must carry: all pairs exchange messages of all
// protocols, check them, and do some of the host's collectives. Options:
//   --rounds=N     rounds
//   --largest=N    largest message in bytes
//   --pause_in=DIR in the middle each rank makes DIR/paused.RANK and waits for DIR/go_on
//   --undumpable=1 makes the process one that others may not inspect, before MPI_Init
#include <sys/prctl.h>
#include <unistd.h>

#include "odtest.h"

static void pause_in(const char* directory) {
  char path[4096];
  snprintf(path, sizeof path, "%s/paused.%d", directory, odt.rank);
  FILE* paused = fopen(path, "w");
  if (paused != NULL) fclose(paused);
  snprintf(path, sizeof path, "%s/go_on", directory);
  while (access(path, F_OK) != 0) odt_sleep_ms(10);
}

// Next to nothing, out of memory that may be shared, in a mode that needs the receiver.
static void shortest(long round) {
  static char out[16], in[16];
  const int to = (odt.rank + 1) % odt.size;
  const int from = (odt.rank + odt.size - 1) % odt.size;
  for (int bytes = 0; bytes < 16; bytes++) {
    MPI_Request request;
    odt_fill(out, (size_t)bytes, odt_key(odt.rank, to, round, 100 + bytes));
    MUST(MPI_Issend(out, bytes, MPI_BYTE, to, 100, MPI_COMM_WORLD, &request));
    MUST(MPI_Recv(in, bytes, MPI_BYTE, from, 100, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK_DATA(in, bytes, odt_key(from, odt.rank, round, 100 + bytes));
  }
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--undumpable=1") == 0) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  }
  odt_start("traffic", &argc, &argv);
  const long rounds = odt_number("rounds", 5);
  const long largest = odt_number("largest", 4 << 20);
  static const long kSizes[] = {0, 1, 64, 1000, 5000, 20000, 65536, 100000, 1 << 20, 4 << 20};
  const char* pause = odt_option("pause_in", NULL);
  for (long round = 0; round < rounds; round++) {
    for (int i = 0; i < 10; i++) {
      const long bytes = kSizes[i];
      if (bytes > largest) break;
      char* out = odt_memory((size_t)bytes);
      char* in = odt_memory((size_t)bytes);
      for (int distance = 1; distance < odt.size; distance++) {
        const int to = (odt.rank + distance) % odt.size;
        const int from = (odt.rank + odt.size - distance) % odt.size;
        MPI_Request requests[2];
        odt_fill(out, (size_t)bytes, odt_key(odt.rank, to, round, i));
        if ((round + i) % 2) {
          MUST(MPI_Irecv(in, (int)bytes, MPI_BYTE, from, i, MPI_COMM_WORLD, &requests[0]));
          MUST(MPI_Isend(out, (int)bytes, MPI_BYTE, to, i, MPI_COMM_WORLD, &requests[1]));
          MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        } else {
          MUST(MPI_Sendrecv(out, (int)bytes, MPI_BYTE, to, i, in, (int)bytes, MPI_BYTE,
                            MPI_ANY_SOURCE, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
        if ((round + i) % 2) CHECK_DATA(in, bytes, odt_key(from, odt.rank, round, i));
        // Messages from any source may come from another distance's sender: keep rounds apart.
        if ((round + i) % 2 == 0 && odt.size > 2) MUST(MPI_Barrier(MPI_COMM_WORLD));
      }
      free(in);
      free(out);
    }
    shortest(round);
    double one = 1, sum = 0;
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == odt.size, "sum %g", sum);
    if (round == rounds / 2 && pause != NULL) pause_in(pause);
  }
  return odt_finish();
}
