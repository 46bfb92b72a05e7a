// Ping-pong latency between pairs of ranks, in three shapes, blocking and non-blocking, from
// buffers of every kind.
//
// usual        the send buffer is never rewritten, as in the usual latency benchmarks
// alternating  16 send and 16 receive buffers in turn, never rewritten
// app          the sender writes the whole buffer with fresh values before each send, the receiver
// reads all of it;
//              both are timed, and the checksum of every message is checked after the sample
#include <stdio.h>

#include "od_p2p.h"
#include "probe.h"

typedef enum { kUsual, kAlternating, kApp, kShapes } Shape;
static const char* const kShapeNames[kShapes] = {"usual", "alternating", "app"};
enum { kBlocking, kNonblocking, kModes };
static const char* const kModeNames[kModes] = {"blocking", "nonblocking"};

typedef struct {
  const Bench* bench;
  Message send[kAlternatingBuffers], receive[kAlternatingBuffers];
  int buffers, nonblocking, app, partner, first;
  uint64_t seed, sum, expected;
} PingPong;

static void SendOne(const PingPong* pp, const Message* m) {
  if (pp->nonblocking) {
    MPI_Request request;
    MPI_Isend(m->data, m->count, m->type, pp->partner, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Send(m->data, m->count, m->type, pp->partner, 1, MPI_COMM_WORLD);
  }
}

static void ReceiveOne(const PingPong* pp, const Message* m) {
  if (pp->nonblocking) {
    MPI_Request request;
    MPI_Irecv(m->data, m->count, m->type, pp->partner, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(m->data, m->count, m->type, pp->partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

static void RunPingPong(void* context, int64_t iterations) {
  PingPong* pp = context;
  if (pp->app) {
    // The seed of both directions is the iteration's, so that each side knows what must arrive.
    for (int64_t i = 0; i < iterations; ++i) {
      uint64_t seed = ++pp->seed;
      pp->expected += ExpectedChecksum(pp->send[0].bytes, seed);
      if (!pp->first) {
        ReceiveOne(pp, &pp->receive[0]);
        pp->sum += Checksum(&pp->receive[0]);
      }
      Fill(&pp->send[0], seed);
      SendOne(pp, &pp->send[0]);
      if (pp->first) {
        ReceiveOne(pp, &pp->receive[0]);
        pp->sum += Checksum(&pp->receive[0]);
      }
    }
  } else {
    int slot = 0;
    for (int64_t i = 0; i < iterations; ++i) {
      if (pp->first) {
        SendOne(pp, &pp->send[slot]);
        ReceiveOne(pp, &pp->receive[slot]);
      } else {
        ReceiveOne(pp, &pp->receive[slot]);
        SendOne(pp, &pp->send[slot]);
      }
      if (++slot == pp->buffers) slot = 0;
    }
  }
  if (pp->sum != pp->expected) {
    fprintf(stderr, "od_p2p: wrong checksum of a message of %zu bytes, rank %d\n",
            pp->send[0].bytes, pp->bench->rank);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
}

static void Validate(PingPong* pp) {
  const Bench* bench = pp->bench;
  for (int slot = 0; slot < pp->buffers; ++slot) {
    uint64_t base = 0x1000u * (uint64_t)(slot + 1);
    Fill(&pp->send[slot], base + (uint64_t)bench->rank);
    if (pp->first) SendOne(pp, &pp->send[slot]);
    ReceiveOne(pp, &pp->receive[slot]);
    if (!pp->first) SendOne(pp, &pp->send[slot]);
    Verify(bench, &pp->receive[slot], base + (uint64_t)pp->partner, "ping-pong");
  }
}

// Rank i is paired with i + ranks/2; with two ranks this is the ordinary latency test.
static void RunVariant(const Bench* bench, const char* test, Shape shape, int mode, Kind kind,
                       size_t bytes, int64_t* iterations) {
  int half = bench->ranks / 2;
  PingPong pp = {.bench = bench,
                 .buffers = shape == kAlternating ? kAlternatingBuffers : 1,
                 .nonblocking = mode == kNonblocking,
                 .app = shape == kApp,
                 .first = bench->rank < half,
                 .partner = bench->rank < half ? bench->rank + half : bench->rank - half};
  for (int slot = 0; slot < pp.buffers; ++slot) {
    if (!MakeMessage(bench, kind, 1, slot, bytes, &pp.send[slot])) return;
    if (!MakeMessage(bench, kind, 0, slot, bytes, &pp.receive[slot])) return;
  }
  if (bench->calibrating) Validate(&pp);
  Label label = {test, kShapeNames[shape], kModeNames[mode], kKindNames[kind], "us", bytes};
  Sample(bench, &label, RunPingPong, &pp, iterations, HalfRoundTripMicroseconds);
  for (int slot = 0; slot < pp.buffers; ++slot) {
    FreeMessage(&pp.send[slot]);
    FreeMessage(&pp.receive[slot]);
  }
}

void RunLatency(const Bench* bench) {
  static int64_t iterations[kShapes][kModes][kKinds][kMaxSizes];
  const char* test = bench->ranks > 2 ? "pairs" : "latency";
  if (bench->ranks % 2 != 0) return;
  for (int shape = 0; shape < kShapes; ++shape) {
    if (!Listed(bench->shapes, kShapeNames[shape])) continue;
    for (int mode = 0; mode < kModes; ++mode) {
      if (!Listed(bench->modes, kModeNames[mode])) continue;
      for (int kind = 0; kind < kKinds; ++kind) {
        if (!Listed(bench->kinds, kKindNames[kind]) || (shape == kAlternating && kind != kHeap))
          continue;
        for (int i = 0; i < bench->size_count; ++i) {
          RunVariant(bench, test, (Shape)shape, mode, (Kind)kind, bench->sizes[i],
                     &iterations[shape][mode][kind][i]);
        }
      }
    }
  }
}
