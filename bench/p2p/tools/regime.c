// Prints the one-way time in ns of a raw cache-line exchange between two cores, without any MPI, so
// that scripts can tell in which distance regime the machine is.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../probe.h"

int main(void) {
  char path[4096];
  if (od_probe_create(NULL, path, sizeof(path)) != 0) return 1;
  pid_t child = fork();
  int rank = child == 0 ? 1 : 0;
  int failed = child < 0 || od_probe_attach(path, rank, 2) != 0;
  if (failed) {
    od_probe_unlink(path);
    return 1;
  }
  od_probe_pin(rank, 2);
  double ns = od_probe_exchange_ns(0);
  if (rank == 1) return 0;
  od_probe_unlink(path);
  printf("%.1f\n", ns);
  return waitpid(child, NULL, 0) == child ? 0 : 1;
}
