// Neighbour exchange among all ranks, the communication step of a stencil program.
//
// ring  MPI_Sendrecv to the right neighbour and from the left one
// halo  Irecv from both neighbours, Isend to both, Waitall
#include "od_p2p.h"
#include "probe.h"

typedef struct {
  const Bench* bench;
  char *send, *receive[2];
  int count, left, right;
} Exchange;

static void RingStep(const Exchange* e) {
  MPI_Sendrecv(e->send, e->count, MPI_BYTE, e->right, 5, e->receive[0], e->count, MPI_BYTE, e->left,
               5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void HaloStep(const Exchange* e) {
  MPI_Request requests[4];
  // The tag is the direction of travel: with two ranks both neighbours are the same rank.
  MPI_Irecv(e->receive[0], e->count, MPI_BYTE, e->left, 6, MPI_COMM_WORLD, &requests[0]);
  MPI_Irecv(e->receive[1], e->count, MPI_BYTE, e->right, 7, MPI_COMM_WORLD, &requests[1]);
  MPI_Isend(e->send, e->count, MPI_BYTE, e->right, 6, MPI_COMM_WORLD, &requests[2]);
  MPI_Isend(e->send, e->count, MPI_BYTE, e->left, 7, MPI_COMM_WORLD, &requests[3]);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

static void RunRing(void* context, int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i) RingStep(context);
}

static void RunHalo(void* context, int64_t iterations) {
  for (int64_t i = 0; i < iterations; ++i) HaloStep(context);
}

static void Validate(const Bench* bench, const Exchange* e, int halo) {
  size_t bytes = (size_t)e->count;
  Message out = {e->send, e->count, MPI_BYTE, bytes, bytes, bytes};
  Message in = {e->receive[0], e->count, MPI_BYTE, bytes, bytes, bytes};
  Fill(&out, (uint64_t)(7000 + bench->rank));
  if (halo) {
    HaloStep(e);
  } else {
    RingStep(e);
  }
  Verify(bench, &in, (uint64_t)(7000 + e->left), "neighbour exchange, from the left");
  if (!halo) return;
  in.data = e->receive[1];
  Verify(bench, &in, (uint64_t)(7000 + e->right), "neighbour exchange, from the right");
}

void RunExchanges(const Bench* bench) {
  static int64_t iterations[2][kMaxSizes];
  if (bench->ranks < 2) return;
  for (int halo = 0; halo < 2; ++halo) {
    const char* name = halo ? "halo" : "ring";
    if (!Listed(bench->tests, name)) continue;
    for (int i = 0; i < bench->size_count; ++i) {
      size_t bytes = bench->sizes[i];
      Message send, first, second;
      if (!MakeMessage(bench, kHeap, 1, 0, bytes, &send) ||
          !MakeMessage(bench, kHeap, 0, 0, bytes, &first) ||
          !MakeMessage(bench, kStatic, 0, 0, bytes, &second)) {
        continue;
      }
      Exchange e = {.bench = bench,
                    .send = send.data,
                    .receive = {first.data, second.data},
                    .count = send.count,
                    .left = (bench->rank + bench->ranks - 1) % bench->ranks,
                    .right = (bench->rank + 1) % bench->ranks};
      if (bench->calibrating) Validate(bench, &e, halo);
      Label label = {name, "usual", halo ? "nonblocking" : "blocking", "heap", "us", bytes};
      Sample(bench, &label, halo ? RunHalo : RunRing, &e, &iterations[halo][i], StepMicroseconds);
    }
  }
}
