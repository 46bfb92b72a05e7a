// Benchmark of collectives between nodes as a program meets them: from the first call on a new
// communicator on, so that what is tried out on the way is paid for. See harness.h for its output.
//
// Each point (a collective at one size) has a communicator of its own and calls without a pause up
// to the first of the numbers below at which --sample-ms are over, but 100 times at least. What has
// a root has another one in each call. The mode of a sample says what its value is:
//
//   10 30 60 100 300 1000   time of that many calls from the first on, divided by their number
//   last                    that of the calls after the last number but one
//
// Times are those of the slowest rank, because clocks of different nodes cannot be compared.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../coll/od_coll.h"
#include "../p2p/probe.h"

static const char kUsage[] =
    "usage: mpirun -n N od_between [options]\n"
    "  tests   bcast reduce allreduce allgather alltoall reduce_scatter barrier gather scatter "
    "scan\n"
    "          neighbor_alltoall neighbor_allgather (on a grid of two dimensions, not periodic)\n"
    "  shapes  usual app (what goes out is written before each call, what came in is read)\n";

enum { kMostBytes = 16 << 20, kPage = 4096, kSteps = 6, kLeastCalls = 100 };
static const int kNumbers[kSteps] = {10, 30, 60, 100, 300, 1000};

// Beside those of Collective.
typedef enum { kNone, kNeighborAlltoall, kNeighborAllgather, kNeighbors } Neighbors;
static const char* const kNeighborNames[kNeighbors] = {"", "neighbor_alltoall",
                                                       "neighbor_allgather"};

static Calls shared;

// A collective at one size; among neighbours `calls.words` is the size of a block.
typedef struct {
  Calls calls;
  Neighbors neighbors;
  int app;
} Measured;

static const char* NameOf(const Measured* m) {
  return m->neighbors != kNone ? kNeighborNames[m->neighbors]
                               : kCollectiveNames[m->calls.collective];
}

static void Tell(const Bench* bench, const Measured* m, const char* number, double us) {
  Label label = {NameOf(m), m->app ? "app" : "usual",       number, "-",
                 "us",      m->calls.words * sizeof(double)};
  Report(bench, &label, us, -1, -1, 0);
}

static void Wrong(const Calls* calls) {
  fprintf(stderr, "od_between: wrong results of %s: rank %d of %d, %zu words\n",
          kCollectiveNames[calls->collective], calls->bench->rank, calls->bench->ranks,
          calls->words);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void MakeComm(Measured* m, int ranks) {
  if (m->neighbors == kNone) {
    MPI_Comm_dup(MPI_COMM_WORLD, &m->calls.comm);
    return;
  }
  int dims[2] = {0, 0}, periods[2] = {0, 0};
  MPI_Dims_create(ranks, 2, dims);
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &m->calls.comm);
}

static void CallOnce(Measured* m, int64_t turn) {
  Calls* c = &m->calls;
  int count = (int)c->words;
  if (m->neighbors == kNeighborAlltoall) {
    MPI_Neighbor_alltoall(c->in, count, MPI_DOUBLE, c->out, count, MPI_DOUBLE, c->comm);
  } else if (m->neighbors == kNeighborAllgather) {
    MPI_Neighbor_allgather(c->in, count, MPI_DOUBLE, c->out, count, MPI_DOUBLE, c->comm);
  } else {
    if (m->app) WriteInput(c, turn, (uint64_t)turn);
    Call(c, turn);
    if (m->app) c->sum += ReadResult(c, turn);
  }
}

static void Point(const Bench* bench, Measured* m) {
  Calls* calls = &m->calls;
  LayOutBlocks(calls);
  MakeComm(m, bench->ranks);
  double before = 0, step = 0, expected = 0;
  int64_t turn = 0;
  int from = 0;
  for (int at = 0; at < kSteps; ++at) {
    from = (int)turn;
    // The first call is asked for when all ranks are there.
    MessageBarrier();
    double start = od_probe_now_ns();
    for (; turn < kNumbers[at]; ++turn) CallOnce(m, turn);
    step = Largest(od_probe_now_ns() - start);
    before += step;
    char number[16];
    snprintf(number, sizeof(number), "%d", kNumbers[at]);
    Tell(bench, m, number, before / 1e3 / (double)turn);
    if (turn >= kLeastCalls && before > bench->sample_ms * 1e6) break;
  }
  Tell(bench, m, "last", step / 1e3 / (double)(turn - from));
  for (int64_t i = 0; i < turn && m->app; ++i) expected += ExpectedSum(calls, i, (uint64_t)i);
  if (m->app && calls->sum != expected) Wrong(calls);
  MPI_Comm_free(&calls->comm);
  NextTurn(bench);
}

static void RunTests(const Bench* bench) {
  for (int test = 0; test < kCollectives + kNeighbors; ++test) {
    Measured m = {.calls = shared};
    m.calls.mode = kBlocking;
    m.calls.collective = test < kCollectives ? (Collective)test : kBarrier;
    m.neighbors = test < kCollectives ? kNone : (Neighbors)(test - kCollectives);
    if (test == kCollectives || !Listed(bench->tests, NameOf(&m))) continue;
    int sizes = test == kBarrier ? 1 : bench->size_count;
    for (int i = 0; i < sizes; ++i) {
      m.calls.words = test == kBarrier ? 0 : bench->sizes[i] / sizeof(double);
      if (!IsPossible(m.calls.collective, m.calls.words, bench->ranks)) continue;
      for (m.app = 0; m.app < 2; ++m.app) {
        if (!Listed(bench->shapes, m.app ? "app" : "usual")) continue;
        if (m.app && m.neighbors != kNone) continue;
        if (!IsTimeLeft(bench)) return;
        m.calls.sum = 0;
        Point(bench, &m);
      }
    }
  }
}

static double* Allocate(size_t words) {
  char* memory = malloc(words * sizeof(double) + kPage);
  if (memory == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  memory += kPage - (uintptr_t)memory % kPage;
  memset(memory, 0, words * sizeof(double));
  return (double*)memory;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Bench bench = {.program = "od_between",
                 .repetitions = 3,
                 .pointwise = 1,
                 .sample_ms = 200,
                 .tests = "bcast,reduce,allreduce,allgather,alltoall",
                 .shapes = "usual",
                 .modes = "",
                 .kinds = "",
                 .may_be_apart = 1,
                 .most_bytes = kMostBytes};
  ParseSizes("8,1K,16K,128K,1M", &bench);
  int status = StartBench(argc, argv, kUsage, &bench);
  if (status != 0) return status;
  size_t largest = 1;
  for (int i = 0; i < bench.size_count && strstr(bench.tests, "neighbor") != NULL; ++i) {
    if (4 * bench.sizes[i] / sizeof(double) > largest)
      largest = 4 * bench.sizes[i] / sizeof(double);
  }
  for (int collective = 0; collective < kCollectives; ++collective) {
    if (!Listed(bench.tests, kCollectiveNames[collective])) continue;
    for (int i = 0; i < bench.size_count; ++i) {
      size_t words =
          BufferWords((Collective)collective, bench.sizes[i] / sizeof(double), bench.ranks);
      if (words > largest) largest = words;
    }
  }
  shared = (Calls){.bench = &bench};
  shared.in = Allocate(largest);
  shared.out = Allocate(largest);
  MakeBlocks(&shared);
  MPI_Comm_split(MPI_COMM_WORLD, 0, bench.ranks - bench.rank, &shared.reversed);
  RunRounds(&bench, RunTests);
  MPI_Comm_free(&shared.reversed);
  MPI_Finalize();
  return 0;
}
