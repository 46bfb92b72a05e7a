// What an MPI library costs apart from messages: calls that move no data, memory per rank, and, as
// the physical reference, the raw exchange of cache lines.
#include <stdio.h>
#include <string.h>

#include "od_p2p.h"
#include "probe.h"

// What the calls return goes here, so that no compiler can drop them.
static volatile int int_sink;
static volatile double double_sink;

static void RunCommRank(void* context, int64_t iterations) {
  (void)context;
  for (int64_t i = 0; i < iterations; ++i) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int_sink = rank;
  }
}

static void RunTypeSize(void* context, int64_t iterations) {
  (void)context;
  for (int64_t i = 0; i < iterations; ++i) {
    int size;
    MPI_Type_size(MPI_DOUBLE, &size);
    int_sink = size;
  }
}

static void RunWtime(void* context, int64_t iterations) {
  (void)context;
  for (int64_t i = 0; i < iterations; ++i) double_sink = MPI_Wtime();
}

static void RunCommGetAttr(void* context, int64_t iterations) {
  (void)context;
  for (int64_t i = 0; i < iterations; ++i) {
    void* value;
    int found;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
    int_sink = found;
  }
}

static double Nanoseconds(const Label* label, double ns_per_iteration) {
  (void)label;
  return ns_per_iteration;
}

void RunCallCosts(const Bench* bench) {
  static const struct {
    const char* name;
    Body body;
  } kCalls[] = {{"MPI_Comm_rank", RunCommRank},
                {"MPI_Type_size", RunTypeSize},
                {"MPI_Wtime", RunWtime},
                {"MPI_Comm_get_attr", RunCommGetAttr}};
  enum { kCallCount = sizeof(kCalls) / sizeof(kCalls[0]) };
  static int64_t iterations[kCallCount];
  for (int i = 0; i < kCallCount; ++i) {
    Label label = {"cost", kCalls[i].name, "-", "-", "ns", 0};
    Sample(bench, &label, kCalls[i].body, NULL, &iterations[i], Nanoseconds);
  }
}

void RunRaw(const Bench* bench) {
  if (bench->calibrating || bench->ranks < 2) return;
  double before = od_probe_exchange_ns(0);
  double two_lines = od_probe_exchange_ns(1);
  double after = od_probe_exchange_ns(0);
  Label one = {"raw", "one_line", "-", "-", "ns", 0}, two = {"raw", "two_lines", "-", "-", "ns", 0};
  Report(bench, &one, (before + after) / 2, before, after, 0);
  Report(bench, &two, two_lines, before, after, 0);
}

// Everybody sends one short and one middle message to everybody, so that what a library sets up at
// first contact counts.
static void TouchEverybody(const Bench* bench) {
  static char out[65536], in[65536];
  for (int distance = 1; distance < bench->ranks; ++distance) {
    int to = (bench->rank + distance) % bench->ranks;
    int from = (bench->rank + bench->ranks - distance) % bench->ranks;
    for (int bytes = 8; bytes <= (int)sizeof(out); bytes += (int)sizeof(out) - 8) {
      MPI_Sendrecv(out, bytes, MPI_BYTE, to, 8, in, bytes, MPI_BYTE, from, 8, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE);
    }
  }
}

void RunMemory(const Bench* bench) {
  static const char* const kFields[] = {
      "Rss", "Pss", "Pss_Anon", "Pss_Shmem", "Private_Dirty", "Shared_Dirty", "Private_Clean"};
  enum { kFieldCount = sizeof(kFields) / sizeof(kFields[0]) };
  double kib[kFieldCount] = {0};
  TouchEverybody(bench);
  od_probe_sync();
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  if (file != NULL) {
    char line[256], name[64];
    double value;
    while (fgets(line, sizeof(line), file) != NULL) {
      if (sscanf(line, "%63[^:]: %lf", name, &value) != 2) continue;
      for (int i = 0; i < kFieldCount; ++i) {
        if (strcmp(name, kFields[i]) == 0) kib[i] = value;
      }
    }
    fclose(file);
  }
  double probe = od_probe_exchange_ns(0);
  for (int i = 0; i < kFieldCount; ++i) {
    double largest = od_probe_max(kib[i]);
    Label label = {"memory", kFields[i], "-", "-", "KiB", 0};
    if (largest > 0) Report(bench, &label, largest, probe, probe, 0);
  }
}
