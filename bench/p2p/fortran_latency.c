// The part of the latency test that runs through the Fortran interface of MPI (COMMON blocks and
// allocatable arrays). Without OD_BENCH_FORTRAN it does nothing, for hosts that have no Fortran.
#include <stdio.h>

#include "od_p2p.h"
#include "probe.h"

#ifdef OD_BENCH_FORTRAN

int64_t od_fortran_ping_pong(int use_common, int words, int app, int nonblocking, int first,
                             int partner, int64_t* seed, int64_t iterations);

typedef struct {
  int use_common, words, app, nonblocking, first, partner, rank;
  int64_t seed;
} FortranPingPong;

static void RunFortran(void* context, int64_t iterations) {
  FortranPingPong* pp = context;
  int64_t first_seed = pp->seed;
  int64_t sum = od_fortran_ping_pong(pp->use_common, pp->words, pp->app, pp->nonblocking, pp->first,
                                     pp->partner, &pp->seed, iterations);
  uint64_t expected = 0;
  for (int64_t seed = first_seed + 1; pp->app && seed <= pp->seed; ++seed) {
    expected += ExpectedChecksum((size_t)pp->words * 8, (uint64_t)(seed + 1));
  }
  if ((uint64_t)sum != expected) {
    fprintf(stderr, "od_p2p: wrong checksum of a Fortran message of %d words, rank %d\n", pp->words,
            pp->rank);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
}

void RunFortranLatency(const Bench* bench) {
  static const char* const kKinds[] = {"allocatable", "common"};
  static const char* const kModes[] = {"blocking", "nonblocking"};
  static const char* const kShapes[] = {"usual", "app"};
  static int64_t iterations[2][2][2][kMaxSizes];
  if (bench->ranks != 2) return;
  for (int variant = 0; variant < 8; ++variant) {
    int kind = variant / 4, mode = variant / 2 % 2, shape = variant % 2;
    if (!Listed(bench->kinds, kKinds[kind]) || !Listed(bench->modes, kModes[mode])) continue;
    if (!Listed(bench->shapes, kShapes[shape])) continue;
    for (int i = 0; i < bench->size_count; ++i) {
      size_t bytes = bench->sizes[i];
      if (bytes == 0 || bytes % 8 != 0) continue;
      FortranPingPong pp = {.use_common = kind,
                            .words = (int)(bytes / 8),
                            .nonblocking = mode,
                            .first = bench->rank == 0,
                            .partner = 1 - bench->rank,
                            .rank = bench->rank};
      if (bench->calibrating) {
        pp.app = 1;  // one round trip whose content is checked
        RunFortran(&pp, 1);
      }
      pp.app = shape;
      Label label = {"latency", kShapes[shape], kModes[mode], kKinds[kind], "us", bytes};
      Sample(bench, &label, RunFortran, &pp, &iterations[kind][mode][shape][i],
             HalfRoundTripMicroseconds);
    }
  }
}

#else

void RunFortranLatency(const Bench* bench) { (void)bench; }

#endif  // OD_BENCH_FORTRAN
