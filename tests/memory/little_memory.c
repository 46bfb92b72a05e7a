// Lives close to the limit of its memory: a work array of another size in each round, freed before
// the next; large blocks that are hardly touched; a block that grows; a forked child.
#include <sys/wait.h>

#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("little_memory", &argc, &argv);
  const size_t most = (size_t)odt_number("mib", 60) << 20;
  char* sparse[8];
  for (int i = 0; i < 8; i++) {
    sparse[i] = malloc(2 * most);
    for (size_t at = 0; at < 2 * most; at += most / 2) sparse[i][at] = (char)i;
  }
  for (int round = 0; round < 40; round++) {
    const size_t bytes = most - (size_t)(round * 7 % 40) * (most / 80);
    char* block = malloc(bytes);
    memset(block, round, bytes);
    CHECK(block[bytes - 1] == (char)round, "round %d", round);
    free(block);
  }
  char* growing = NULL;
  for (size_t bytes = 1 << 16; bytes <= most / 2; bytes += bytes / 3) {
    growing = realloc(growing, bytes);
    memset(growing, 1, bytes);
  }
  pid_t child = fork();
  if (child == 0) _exit(growing[100] == 1 ? 0 : 3);
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0, "child: %d", status);
  free(growing);
  for (int i = 0; i < 8; i++) {
    CHECK(sparse[i][most / 2] == (char)i, "sparse block %d", i);
    free(sparse[i]);
  }
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  return odt_finish();
}
