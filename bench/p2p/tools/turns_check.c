// Checks that jobs taking turns are never two at a time, have the same number of turns, and agree
// on when to stop: forked processes play jobs of two ranks each. Exit status 0 if all is well.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../probe.h"
#include "../turns.h"

enum { kJobs = 3, kRanks = 2, kTurnsPerRound = 5 };

typedef struct {
  _Atomic int inside, failures, order_changes, last, before_last;
  _Atomic int rounds[kJobs];
} Seen;

static const double kMeasureNs = 5e7;

static Seen* seen;

// What a job does in its turn: nobody else may be in here meanwhile.
static void Measure(int job) {
  if (atomic_fetch_add(&seen->inside, 1) != 0) atomic_fetch_add(&seen->failures, 1);
  usleep(200);
  // Two jobs in an order that differs from the one in which they followed each other before.
  int last = atomic_exchange(&seen->last, job + 1);
  int before = atomic_exchange(&seen->before_last, last);
  if (before == job + 1) atomic_fetch_add(&seen->order_changes, 1);
  atomic_fetch_sub(&seen->inside, 1);
}

static int RunRank(const char* turns, const char* probe, int job, int rank) {
  int leader = rank == 0;
  if (od_probe_attach(probe, rank, kRanks) != 0) return 1;
  if (od_turns_attach(turns, job, kJobs) != 0) return 1;
  // Jobs start at different times.
  usleep((useconds_t)(job * 20000));
  od_turns_begin(leader);
  double until_ns = od_probe_now_ns() + kMeasureNs;
  for (int round = 0;; ++round) {
    if (round > 0 && od_probe_share(leader ? od_turns_go_on(round, until_ns) : 0) == 0) break;
    for (int turn = 0; turn < kTurnsPerRound; ++turn) {
      if (leader) Measure(job);
      od_probe_sync();
      od_turns_next(leader);
    }
    if (leader) atomic_fetch_add(&seen->rounds[job], 1);
  }
  od_probe_sync();
  od_turns_end(leader);
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (seen == MAP_FAILED) return 1;
  char probes[kJobs][4096];
  for (int job = 0; job < kJobs; ++job) {
    if (od_probe_create(NULL, probes[job], sizeof(probes[job])) != 0) return 1;
  }
  for (int child = 0; child < kJobs * kRanks; ++child) {
    if (fork() == 0)
      _exit(RunRank(argv[1], probes[child / kRanks], child / kRanks, child % kRanks));
  }
  int failed = 0, status;
  while (wait(&status) > 0) failed |= status != 0;
  for (int job = 0; job < kJobs; ++job) od_probe_unlink(probes[job]);
  printf("rounds %d %d %d, overlaps %d, changes of order %d\n", seen->rounds[0], seen->rounds[1],
         seen->rounds[2], seen->failures, seen->order_changes);
  int equal = seen->rounds[0] == seen->rounds[1] && seen->rounds[1] == seen->rounds[2];
  return failed || !equal || seen->rounds[0] < 1 || seen->failures != 0 || seen->order_changes == 0;
}
