// Streaming bandwidth, bidirectional bandwidth and message rate between two ranks, always with 64
// messages in flight.
//
// bw    rank 0 sends windows of 64 messages, rank 1 acknowledges each window with one short message
// bibw  both send and receive windows of 64 messages at once
// rate  rank 0 keeps exactly 64 sends in flight: it waits for the oldest and starts the next,
// without acknowledgements As in the usual bandwidth benchmarks, all messages of a window come from
// one buffer and go to one buffer; the validation before uses different ones.
#include <stdlib.h>

#include "od_p2p.h"
#include "probe.h"

typedef struct {
  const Bench* bench;
  Message send, receive;
} Stream;

static MPI_Request requests[2 * kInFlight];

static void Post(const Stream* s, int receiving, MPI_Request* request) {
  int partner = 1 - s->bench->rank;
  if (receiving) {
    MPI_Irecv(s->receive.data, s->receive.count, MPI_BYTE, partner, 2, MPI_COMM_WORLD, request);
  } else {
    MPI_Isend(s->send.data, s->send.count, MPI_BYTE, partner, 2, MPI_COMM_WORLD, request);
  }
}

static void RunBandwidth(void* context, int64_t iterations) {
  const Stream* s = context;
  int receiving = s->bench->rank == 1;
  char acknowledgement = 0;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int k = 0; k < kInFlight; ++k) Post(s, receiving, &requests[k]);
    MPI_Waitall(kInFlight, requests, MPI_STATUSES_IGNORE);
    if (receiving) {
      MPI_Send(&acknowledgement, 1, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
    } else {
      MPI_Recv(&acknowledgement, 1, MPI_CHAR, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
}

static void RunBidirectional(void* context, int64_t iterations) {
  const Stream* s = context;
  for (int64_t i = 0; i < iterations; ++i) {
    for (int k = 0; k < kInFlight; ++k) Post(s, 1, &requests[k]);
    for (int k = 0; k < kInFlight; ++k) Post(s, 0, &requests[kInFlight + k]);
    MPI_Waitall(2 * kInFlight, requests, MPI_STATUSES_IGNORE);
  }
}

// One iteration is kInFlight messages here too.
static void RunRate(void* context, int64_t iterations) {
  const Stream* s = context;
  int receiving = s->bench->rank == 1;
  for (int k = 0; k < kInFlight; ++k) Post(s, receiving, &requests[k]);
  for (int64_t i = 1; i < iterations; ++i) {
    for (int k = 0; k < kInFlight; ++k) {
      MPI_Wait(&requests[k], MPI_STATUS_IGNORE);
      Post(s, receiving, &requests[k]);
    }
  }
  MPI_Waitall(kInFlight, requests, MPI_STATUSES_IGNORE);
}

static double Megabytes(const Label* label, double ns_per_iteration) {
  return (double)label->bytes * kInFlight / ns_per_iteration * 1e3;
}

static double MegabytesBothWays(const Label* label, double ns_per_iteration) {
  return 2 * Megabytes(label, ns_per_iteration);
}

static double MessagesPerSecond(const Label* label, double ns_per_iteration) {
  (void)label;
  return kInFlight / ns_per_iteration * 1e9;
}

// Several different messages in flight both ways; each must arrive in its own buffer.
static void Validate(const Bench* bench, size_t bytes) {
  int messages = bytes > 65536 ? 4 : kInFlight;
  int partner = 1 - bench->rank;
  size_t slot_bytes = (bytes + 63) / 64 * 64 + 64;
  char* memory = aligned_alloc(64, slot_bytes * 2 * (size_t)messages);
  if (memory == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int k = 0; k < messages; ++k) {
    MPI_Irecv(memory + slot_bytes * (size_t)k, (int)bytes, MPI_BYTE, partner, 4, MPI_COMM_WORLD,
              &requests[k]);
  }
  for (int k = messages; k < 2 * messages; ++k) {
    Message m = {memory + slot_bytes * (size_t)k, (int)bytes, MPI_BYTE, bytes, bytes, bytes};
    Fill(&m, (uint64_t)(100000 * bench->rank + k));
    MPI_Isend(m.data, m.count, MPI_BYTE, partner, 4, MPI_COMM_WORLD, &requests[k]);
  }
  MPI_Waitall(2 * messages, requests, MPI_STATUSES_IGNORE);
  for (int k = 0; k < messages; ++k) {
    Message m = {memory + slot_bytes * (size_t)k, (int)bytes, MPI_BYTE, bytes, bytes, bytes};
    Verify(bench, &m, (uint64_t)(100000 * partner + messages + k), "stream");
  }
  free(memory);
}

void RunStreams(const Bench* bench) {
  static const struct {
    const char *name, *unit;
    Body body;
    double (*scale)(const Label*, double);
  } kTests[] = {{"bw", "MB/s", RunBandwidth, Megabytes},
                {"bibw", "MB/s", RunBidirectional, MegabytesBothWays},
                {"rate", "msg/s", RunRate, MessagesPerSecond}};
  enum { kTestCount = sizeof(kTests) / sizeof(kTests[0]) };
  static int64_t iterations[kTestCount][kMaxSizes];
  if (bench->ranks != 2) return;
  for (int t = 0; t < kTestCount; ++t) {
    if (!Listed(bench->tests, kTests[t].name)) continue;
    for (int i = 0; i < bench->size_count; ++i) {
      size_t bytes = bench->sizes[i];
      if (bytes == 0) continue;
      Stream s = {.bench = bench};
      if (!MakeMessage(bench, kHeap, 1, 0, bytes, &s.send) ||
          !MakeMessage(bench, kHeap, 0, 0, bytes, &s.receive)) {
        continue;
      }
      if (bench->calibrating) Validate(bench, bytes);
      Label label = {kTests[t].name, "usual", "nonblocking", "heap", kTests[t].unit, bytes};
      Sample(bench, &label, kTests[t].body, &s, &iterations[t][i], kTests[t].scale);
    }
  }
}
