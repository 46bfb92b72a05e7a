// Processes made after MPI_Init: fork (the child computes on the parent's data, writes over all of
// it and leaves), fork and exec, system, popen, posix_spawn, vfork, while the parent goes on
// exchanging messages; the parent's memory, static and dynamic, must not change by what a child
// does.
#include <spawn.h>
#include <sys/wait.h>

#include "odtest.h"

extern char** environ;

enum { kValues = 200000 };

static double fixed[kValues];

static void exchange(int peer, int round) {
  enum { kBytes = 150000 };
  static char out[kBytes], in[kBytes];
  odt_fill(out, kBytes, odt_key(odt.rank, peer, 1, round));
  MUST(MPI_Sendrecv(out, kBytes, MPI_BYTE, peer, round, in, kBytes, MPI_BYTE, peer, round,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK_DATA(in, kBytes, odt_key(peer, odt.rank, 1, round));
}

static int end_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int main(int argc, char** argv) {
  odt_start("forking", &argc, &argv);
  const int peer = odt.rank ^ 1;
  double* heap = odt_memory(kValues * sizeof *heap);
  if (peer >= odt.size) return odt_finish();
  exchange(peer, 0);
  for (int round = 1; round <= 10; round++) {
    double sum = 0;
    for (int i = 0; i < kValues; i++) {
      fixed[i] = i + round;
      heap[i] = i - round;
      sum += fixed[i] + heap[i];
    }
    // A message is on its way and a receive is posted while the process doubles.
    char posted[50000], sent[50000];
    MPI_Request requests[2];
    odt_fill(sent, sizeof sent, odt_key(odt.rank, peer, 2, round));
    MUST(MPI_Irecv(posted, sizeof posted, MPI_BYTE, peer, 500, MPI_COMM_WORLD, &requests[0]));
    MUST(MPI_Isend(sent, sizeof sent, MPI_BYTE, peer, 500, MPI_COMM_WORLD, &requests[1]));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
      double mine = 0;
      for (int i = 0; i < kValues; i++) mine += fixed[i] + heap[i];
      int right = mine == sum;
      for (int i = 0; i < kValues; i++) fixed[i] = heap[i] = -7;
      memset(posted, 0xee, sizeof posted);
      memset(sent, 0xee, sizeof sent);
      void* fresh = malloc(5 << 20);
      memset(fresh, 1, 5 << 20);
      free(fresh);
      _exit(right ? 42 : 43);
    }
    exchange(peer, round);
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK_DATA(posted, sizeof posted, odt_key(peer, odt.rank, 2, round));
    int end = end_of(child);
    CHECK(end == 42, "the child ended with %d", end);
    for (int i = 0; i < kValues; i++) {
      CHECK(fixed[i] == i + round && heap[i] == i - round, "value %d: %g %g", i, fixed[i], heap[i]);
      if (fixed[i] != i + round) break;
    }
    exchange(peer, 100 + round);

    child = fork();
    if (child == 0) {
      execlp("true", "true", (char*)NULL);
      _exit(50);
    }
    exchange(peer, 200 + round);
    CHECK((end = end_of(child)) == 0, "fork and exec ended with %d", end);
    child = vfork();
    if (child == 0) {
      execlp("true", "true", (char*)NULL);
      _exit(50);
    }
    CHECK((end = end_of(child)) == 0, "vfork and exec ended with %d", end);
    CHECK(system("exit 3") == 3 << 8, "system does not work");
    FILE* pipe = popen("echo hello", "r");
    char line[20] = "";
    CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "hello\n") == 0,
          "popen gives '%s'", line);
    if (pipe != NULL) pclose(pipe);
    char* command[] = {"true", NULL};
    CHECK(posix_spawnp(&child, "true", NULL, NULL, command, environ) == 0, "posix_spawn failed");
    CHECK((end = end_of(child)) == 0, "posix_spawn ended with %d", end);
    exchange(peer, 300 + round);
  }
  free(heap);
  return odt_finish();
}
