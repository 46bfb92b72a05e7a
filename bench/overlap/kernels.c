// FT and IS of bench/kernels over any nodes, with the host's collectives.
//
// One line per program on rank 0: name, median ms of an iteration, share of it in calls of MPI.
// Results are compared with those of a serial run first.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../kernels/kernels.h"
#include "../p2p/probe.h"

enum { kSamples = 15, kIterations = 4, kWarmIterations = 40 };

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void* create(const Kernel* kernel, Team* team) {
  Team alone = {.comm = MPI_COMM_SELF, .rank = 0, .ranks = 1};
  void* serial = kernel->create(&alone, 1);
  void* state = kernel->create(team, 1);
  Require(serial != NULL && state != NULL, "an input that cannot be divided among the ranks");
  const double expected = kernel->result(serial);
  const double result = kernel->result(state);
  Require(fabs(result - expected) <= 1e-9 * fabs(expected), "not that of a serial run");
  kernel->destroy(serial);
  return state;
}

static void measure(const Kernel* kernel, int rank, int ranks) {
  Team team = {.comm = MPI_COMM_WORLD, .rank = rank, .ranks = ranks, .collectives = 1};
  void* state = create(kernel, &team);
  kernel->run(state, kWarmIterations);
  team.message_ns = 0;
  double samples[kSamples], all_ms = 0;
  for (int i = 0; i < kSamples; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = od_probe_now_ns();
    kernel->run(state, kIterations);
    const double mine = (od_probe_now_ns() - begin) * 1e-6;
    all_ms += mine;
    MPI_Allreduce(&mine, &samples[i], 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    samples[i] /= kIterations;
  }
  double share = team.message_ns * 1e-6 / all_ms, sum;
  MPI_Allreduce(&share, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  qsort(samples, kSamples, sizeof(double), ascending);
  if (rank == 0) {
    printf("%s %.3f %.3f\n", kernel->name, samples[kSamples / 2], sum / ranks);
    fflush(stdout);
  }
  kernel->destroy(state);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  measure(&kFourierTransform, rank, ranks);
  measure(&kIntegerSort, rank, ranks);
  MPI_Finalize();
  return 0;
}
