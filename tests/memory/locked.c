// mlockall() in a rank: the memory that is locked is what is in use, not every hole that is mapped.
#include <errno.h>
#include <sys/mman.h>

#include "odtest.h"

static long locked_kib(void) {
  FILE* status = fopen("/proc/self/status", "re");
  char line[256];
  long kib = -1;
  while (status != NULL && fgets(line, sizeof line, status) != NULL) {
    if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
  }
  if (status != NULL) fclose(status);
  return kib;
}

int main(int argc, char** argv) {
  odt_start("locked", &argc, &argv);
  char* block = malloc(4 << 20);
  memset(block, 1, 4 << 20);
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
    CHECK(errno == EPERM || errno == ENOMEM, "mlockall: %d", errno);
  }
  char* more = malloc(64 << 20);
  CHECK(more != NULL, "malloc after mlockall");
  CHECK(locked_kib() < 1000000, "%ld KiB", locked_kib());
  free(more);
  free(block);
  return odt_finish();
}
