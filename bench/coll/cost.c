// What collectives cost beside moving data: the first calls on a new communicator, and memory while
// communicators come and go.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../p2p/probe.h"
#include "od_coll.h"

enum {
  kRepeats = 20,
  kBytes = 65536,
  kWarmUpCommunicators = 1000,  // until caches of freed things are filled
};

static double in[kBytes / sizeof(double)], out[kBytes / sizeof(double)];

static void CallOn(MPI_Comm comm, const char* name, size_t bytes) {
  int count = (int)(bytes / sizeof(double));
  if (strcmp(name, "bcast") == 0) {
    MPI_Bcast(out, count, MPI_DOUBLE, 0, comm);
  } else if (strcmp(name, "barrier") == 0) {
    MPI_Barrier(comm);
  } else {
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
  }
}

// From the moment when all are there until the last rank is done.
static double OneCallNs(MPI_Comm comm, const char* name, size_t bytes) {
  MessageBarrier();
  od_probe_sync();
  double start = od_probe_now_ns();
  CallOn(comm, name, bytes);
  return Largest(od_probe_now_ns() - start);
}

static int CompareDoubles(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

void RunFirstUse(const Bench* bench) {
  static const struct {
    const char* name;
    size_t bytes;
  } kCalls[] = {
      {"barrier", 0}, {"allreduce", 8}, {"allreduce", kBytes}, {"bcast", 8}, {"bcast", kBytes}};
  static const char* const kOrder[] = {"first", "second", "third"};
  for (size_t c = 0; c < sizeof(kCalls) / sizeof(kCalls[0]); ++c) {
    if (!IsTimeLeft(bench)) return;
    double ns[3][kRepeats];
    double before = od_probe_exchange_ns(0);
    double waited = od_probe_waited_ns(), start = od_probe_now_ns();
    for (int i = 0; i < kRepeats; ++i) {
      MPI_Comm comm;
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      for (int call = 0; call < 3; ++call) {
        ns[call][i] = OneCallNs(comm, kCalls[c].name, kCalls[c].bytes);
      }
      MPI_Comm_free(&comm);
    }
    waited = Largest((od_probe_waited_ns() - waited) / (od_probe_now_ns() - start));
    double after = od_probe_exchange_ns(0);
    for (int call = 0; call < 3; ++call) {
      qsort(ns[call], kRepeats, sizeof(double), CompareDoubles);
      Label label = {"first", kCalls[c].name, kOrder[call], "-", "us", kCalls[c].bytes};
      Report(bench, &label, ns[call][kRepeats / 2] / 1e3, before, after, waited);
    }
    NextTurn(bench);
  }
}

// Resident memory of this process that belongs to it, shared pages in proportion; KiB.
static double MemoryKib(void) {
  double kib = 0;
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  if (file == NULL) return 0;
  char line[256];
  while (fgets(line, sizeof(line), file) != NULL && sscanf(line, "Pss: %lf", &kib) != 1) continue;
  fclose(file);
  return kib;
}

static void UseCommunicators(int count) {
  for (int i = 0; i < count; ++i) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    CallOn(comm, "allreduce", 8);
    CallOn(comm, "bcast", 4096);
    CallOn(comm, "barrier", 0);
    MPI_Comm_free(&comm);
  }
}

void RunCommunicators(const Bench* bench, int count) {
  UseCommunicators(kWarmUpCommunicators);
  od_probe_sync();
  double before_kib = MemoryKib();
  double probe = od_probe_exchange_ns(0);
  double start = od_probe_now_ns();
  UseCommunicators(count);
  double us = Largest(od_probe_now_ns() - start) / 1e3 / count;
  od_probe_sync();
  double growth_kib = Largest(MemoryKib() - before_kib);
  Label growth = {"communicators", "growth", "-", "-", "KiB", 0};
  Report(bench, &growth, growth_kib, probe, probe, 0);
  Label time = {"communicators", "time", "-", "-", "us", 0};
  Report(bench, &time, us, probe, probe, 0);
}
