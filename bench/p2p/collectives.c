// Collective calls, which tell whether those of the host MPI cost the same with and without
// Overdrive.
//
// bcast      the root moves on from call to call, so that no rank can run ahead
// alltoall   `bytes` from each rank to each
// allreduce  the sum of doubles
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "od_p2p.h"

typedef struct {
  char *in, *out;
  int count, ranks;
} Buffers;

static void RunBcast(void* context, int64_t iterations) {
  Buffers* b = context;
  for (int64_t i = 0; i < iterations; ++i) {
    MPI_Bcast(b->out, b->count, MPI_BYTE, (int)(i % b->ranks), MPI_COMM_WORLD);
  }
}

static void RunAlltoall(void* context, int64_t iterations) {
  Buffers* b = context;
  for (int64_t i = 0; i < iterations; ++i) {
    MPI_Alltoall(b->in, b->count, MPI_BYTE, b->out, b->count, MPI_BYTE, MPI_COMM_WORLD);
  }
}

static void RunAllreduce(void* context, int64_t iterations) {
  Buffers* b = context;
  for (int64_t i = 0; i < iterations; ++i) {
    MPI_Allreduce(b->in, b->out, b->count / (int)sizeof(double), MPI_DOUBLE, MPI_SUM,
                  MPI_COMM_WORLD);
  }
}

void RunCollectives(const Bench* bench) {
  static const struct {
    const char* name;
    Body body;
  } kCollectives[] = {{"bcast", RunBcast}, {"alltoall", RunAlltoall}, {"allreduce", RunAllreduce}};
  enum { kCount = sizeof(kCollectives) / sizeof(kCollectives[0]) };
  static int64_t iterations[kCount][kMaxSizes];
  for (int i = 0; i < bench->size_count; ++i) {
    size_t bytes = bench->sizes[i];
    size_t whole = bytes * (size_t)bench->ranks;
    Buffers b = {malloc(whole), malloc(whole), (int)bytes, bench->ranks};
    if (b.in == NULL || b.out == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(b.in, 0, whole);
    memset(b.out, 0, whole);
    for (int c = 0; c < kCount; ++c) {
      Label label = {kCollectives[c].name, "usual", "blocking", "heap", "us", bytes};
      Sample(bench, &label, kCollectives[c].body, &b, &iterations[c][i], StepMicroseconds);
    }
    free(b.in);
    free(b.out);
  }
}
