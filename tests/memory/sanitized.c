// To be compiled with a sanitizer: large and small blocks, static data with gaps between variables,
// messages, reductions, a forked child; with --wrong=1 a read behind a block, which must be found.
#include <sys/wait.h>

#include "odtest.h"

static char first[70001];
static char second[70001];
static int initialised[3] = {1, 2, 3};

static void exchange(void* out, void* in, int bytes, int tag) {
  const int peer = odt.rank ^ 1;
  memset(out, odt.rank + 1, (size_t)bytes);
  MUST(MPI_Sendrecv(out, bytes, MPI_BYTE, peer, tag, in, bytes, MPI_BYTE, peer, tag, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
  CHECK(((char*)in)[bytes - 1] == peer + 1, "%d bytes", bytes);
}

int main(int argc, char** argv) {
  double sum = 0, mine = 1;
  odt_start("sanitized", &argc, &argv);
  CHECK(initialised[2] == 3, "static data");
  for (int bytes = 1; bytes <= 1 << 20; bytes *= 32) {
    char* out = malloc((size_t)bytes);
    char* in = calloc(1, (size_t)bytes);
    exchange(out, in, bytes, 1);
    out = realloc(out, 2 * (size_t)bytes);
    CHECK(out[bytes - 1] == odt.rank + 1, "contents after realloc");
    free(out);
    free(in);
  }
  exchange(first, second, sizeof first, 2);
  MUST(MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  CHECK(sum == odt.size, "the sum is %g", sum);
  pid_t child = fork();
  if (child == 0) _exit(second[5] == (odt.rank ^ 1) + 1 ? 0 : 3);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %d", status);
  if (odt_number("wrong", 0)) {
    volatile char* block = malloc(100000);
    first[0] = block[100000 + odt_number("wrong", 0)];
    free((void*)block);
  }
  return odt_finish();
}
