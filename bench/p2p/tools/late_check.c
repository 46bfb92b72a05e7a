// Checks that who waits for a late rank drives the library meanwhile, though not at once: what the
// late rank waits for may stand in its queue. Forked processes play two ranks. Exit status 0 if all
// is well.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../probe.h"

static _Atomic int* driven;

static void Drive(void) { atomic_store(driven, 1); }

static int RunRank(const char* probe, int rank) {
  if (od_probe_attach(probe, rank, 2) != 0) return 1;
  od_probe_drive_when_late(Drive);
  double largest = od_probe_max(rank);
  if (largest != 1) return 1;
  // Rank 1 comes when rank 0 has done what it waits for.
  for (int tenths = 0; rank == 1 && atomic_load(driven) == 0; ++tenths) {
    if (tenths == 100) return 1;
    usleep(100000);
  }
  return od_probe_max(2 * rank) != 2;
}

int main(void) {
  driven = mmap(NULL, sizeof(*driven), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (driven == MAP_FAILED) return 1;
  char probe[4096];
  if (od_probe_create(NULL, probe, sizeof(probe)) != 0) return 1;
  for (int rank = 0; rank < 2; ++rank) {
    if (fork() == 0) _exit(RunRank(probe, rank));
  }
  int failed = 0, status;
  while (wait(&status) > 0) failed |= status != 0;
  od_probe_unlink(probe);
  return failed;
}
