// A message between two ranks of which one is late: how long the sender's call takes, and when the
// receiver has the message.
//
// Both ranks agree on a time T. The rank in time calls MPI at T, the late one at T + delay, having
// computed until then. `call` is the time in MPI_Send; `total` is from T + delay, when both are
// there, to the end of MPI_Recv. The buffer is written before and read after each message, outside
// of the times.
#include <stdio.h>
#include <stdlib.h>

#include "od_p2p.h"
#include "probe.h"

enum { kMostExchanges = 16, kWarmUps = 2 };

typedef struct {
  const char* name;
  int receiver_late;
  double delay_ns;
  int exchanges;  // per sample, whose value is their median
} Case;

static const Case kCases[] = {
    {"together", 0, 0, 16},
    {"receiver late 10 us", 1, 1e4, 16},
    {"receiver late 100 us", 1, 1e5, 8},
    {"receiver late 1 ms", 1, 1e6, 3},
    {"receiver late 10 ms", 1, 1e7, 1},
    {"sender late 10 us", 0, 1e4, 16},
    {"sender late 100 us", 0, 1e5, 8},
    {"sender late 1 ms", 0, 1e6, 3},
    {"sender late 10 ms", 0, 1e7, 1},
};
enum { kCaseCount = sizeof(kCases) / sizeof(kCases[0]) };

// Long enough for both ranks to have left the barrier before.
static const double kHeadStartNs = 2e4;

typedef struct {
  double call_ns, total_ns;
} Times;

static void ComputeUntil(double time_ns) {
  while (od_probe_now_ns() < time_ns) continue;
}

static Times Exchange(const Bench* bench, const Case* c, const Message* message, uint64_t seed) {
  int sender = bench->rank == 0;
  double call_ns = -1, total_ns = -1;
  if (sender) Fill(message, seed);
  double start_ns = od_probe_share(od_probe_now_ns() + kHeadStartNs);
  ComputeUntil(start_ns + (sender == !c->receiver_late ? c->delay_ns : 0));
  if (sender) {
    double before_ns = od_probe_now_ns();
    MPI_Send(message->data, message->count, message->type, 1, 3, MPI_COMM_WORLD);
    call_ns = od_probe_now_ns() - before_ns;
  } else {
    MPI_Recv(message->data, message->count, message->type, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    total_ns = od_probe_now_ns() - (start_ns + c->delay_ns);
    if (Checksum(message) != ExpectedChecksum(message->bytes, seed)) {
      fprintf(stderr, "od_p2p: wrong checksum of a message of %zu bytes, %s\n", message->bytes,
              c->name);
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
  }
  // The sender's library may need calls to deliver what it has accepted.
  MessageBarrier();
  return (Times){od_probe_max(call_ns), od_probe_max(total_ns)};
}

static int CompareDoubles(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double Median(double* values, int count) {
  qsort(values, (size_t)count, sizeof(values[0]), CompareDoubles);
  return values[count / 2];
}

static void MeasureCase(const Bench* bench, const Case* c, size_t bytes) {
  static uint64_t seed;
  Message message;
  if (!MakeMessage(bench, kHeap, bench->rank == 0, 0, bytes, &message)) return;
  double calls[kMostExchanges], totals[kMostExchanges];
  double before = od_probe_exchange_ns(0);
  for (int i = 0; i < kWarmUps; ++i) Exchange(bench, &kCases[0], &message, ++seed);
  double start = od_probe_now_ns(), waited = od_probe_waited_ns();
  for (int i = 0; i < c->exchanges; ++i) {
    Times times = Exchange(bench, c, &message, ++seed);
    calls[i] = times.call_ns;
    totals[i] = times.total_ns;
  }
  waited = od_probe_max((od_probe_waited_ns() - waited) / (od_probe_now_ns() - start));
  double after = od_probe_exchange_ns(0);
  Label label = {"skew", c->name, "call", "heap", "us", bytes};
  Report(bench, &label, Median(calls, c->exchanges) / 1e3, before, after, waited);
  label.mode = "total";
  Report(bench, &label, Median(totals, c->exchanges) / 1e3, before, after, waited);
}

void RunSkew(const Bench* bench) {
  if (bench->ranks != 2 || bench->calibrating) return;
  for (int i = 0; i < bench->size_count; ++i) {
    for (int c = 0; c < kCaseCount; ++c) {
      MeasureCase(bench, &kCases[c], bench->sizes[i]);
      NextTurn(bench);
    }
  }
}
