// Other programs are started with words that are still on their way: what the kernel reads of
// guarded memory, in this process and in a child that shares it.
#define _GNU_SOURCE
#include <pty.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odtest.h"

enum { kBytes = 6 << 20, kPlace = (3 << 20) + 4000, kWays = 9 };

extern char** environ;

static const char* const kNames[kWays] = {"system", "popen", "posix_spawn", "posix_spawnp", "vfork",
                                          "execvp", "execl", "execle",      "forkpty"};

// In a child of vfork: it lives on this stack, and its words in guarded memory.
static pid_t in_vfork(char* const words[]) {
  const pid_t child = vfork();
  if (child == 0) {
    execve("/bin/sh", words, environ);
    _exit(99);
  }
  return child;
}

// In a child of its own, whose memory is a copy.
static pid_t in_fork(int way, char* const words[]) {
  const pid_t child = fork();
  if (child != 0) return child;
  if (way == 5) execvp("sh", words);
  if (way == 6) execl("/bin/sh", words[0], words[1], words[2], (char*)NULL);
  if (way == 7) execle("/bin/sh", words[0], words[1], words[2], (char*)NULL, environ);
  _exit(98);
}

// By a function that forks without fork().
static pid_t in_terminal(char* const words[]) {
#if __GLIBC_PREREQ(2, 34)  // in a library of its own before
  int terminal = -1;
  const pid_t child = forkpty(&terminal, NULL, NULL, NULL);
  if (child != 0) return child;
#else
  const pid_t child = fork();
  if (child != 0) return child;
#endif
  _exit(atoi(words[2] + strlen("exit ")));
}

static int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }

int main(int argc, char** argv) {
  odt_start("processes", &argc, &argv);
  char* buffer = malloc(kBytes);
  for (int round = 0; round < 2 * kWays; round++) {
    const int way = round % kWays;
    const int root = round % odt.size;
    memset(buffer, 0, kBytes);
    char* const words[] = {buffer + kPlace, buffer + kPlace + 3, buffer + kPlace + 6, NULL};
    if (odt.rank == root) {
      memcpy(words[0], "sh", 3);
      memcpy(words[1], "-c", 3);
      snprintf(words[2], 32, "exit %d", round + 1);
    }
    MUST(MPI_Bcast(buffer, kBytes, MPI_BYTE, root, MPI_COMM_WORLD));
    int status = -1;
    pid_t child = -1;
    if (way == 0) {
      status = system(words[2]);
    } else if (way == 1) {
      FILE* const pipe = popen(words[2], "r");
      status = pipe == NULL ? -1 : pclose(pipe);
    } else if (way == 2) {
      CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0, "%s", "spawns");
    } else if (way == 3) {
      CHECK(posix_spawnp(&child, "sh", NULL, NULL, words, environ) == 0, "%s", "spawns");
    } else if (way == 4) {
      child = in_vfork(words);
    } else if (way == 8) {
      child = in_terminal(words);
    } else {
      child = in_fork(way, words);
    }
    if (child > 0) waitpid(child, &status, 0);
    CHECK(exit_code(status) == round + 1, "round %d, %s ended with %x", round, kNames[way],
          (unsigned)status);
  }
  free(buffer);
  return odt_finish();
}
