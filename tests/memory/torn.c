// Forks with too little memory for a copy of what is shared: the child sees what its parent had at
// that moment, whatever the parent does afterwards.
#include <sys/wait.h>
#include <unistd.h>

#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("torn", &argc, &argv);
  const size_t bytes = (size_t)odt_number("mib", 150) << 20;
  char* block = malloc(bytes);
  int ends[2];
  char go = 0;
  memset(block, 1, bytes);
  CHECK(pipe(ends) == 0, "no pipe");
  pid_t child = fork();
  CHECK(child >= 0, "fork failed");
  if (child == 0) {
    int wrong = read(ends[0], &go, 1) != 1;
    for (size_t i = 0; i < bytes; i += 512) wrong |= block[i] != 1;
    _exit(wrong ? 3 : 0);
  }
  memset(block, 2, bytes);
  CHECK(write(ends[1], "g", 1) == 1, "no pipe");
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child: %d", status);
  CHECK(block[bytes / 2] == 2, "the parent's");
  free(block);
  return odt_finish();
}
