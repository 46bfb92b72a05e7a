// Benchmark of collectives of an MPI library: the program od_coll. See harness.h for its output.
//
// A batch of calls follows each other without a pause; before and after it all ranks wait for each
// other. Rooted collectives have another root in each call, so that no rank can run ahead and a
// call is counted until its data are there.
//
// usual  buffers are never rewritten, as in the usual benchmarks
// app    every rank writes all it contributes before each call and reads all it gets after it,
//        everything timed; the sum of all that was read is checked afterwards
// work   the same writing and reading without the calls, for comparison with app
//
// The kind of a sample says what its value is: `all`, from the first rank's start of a batch to the
// last one's end, divided by the number of calls; or the smallest, mean or largest time of a rank.
#include "od_coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../p2p/probe.h"

static const char kUsage[] =
    "usage: mpirun -n N od_coll [options]\n"
    "  tests   bcast reduce allreduce allgather alltoall reduce_scatter reduce_scatter_block "
    "barrier\n"
    "          gather scatter scan exscan allgatherv alltoallv alltoallw gatherv scatterv; first\n"
    "          communicators\n"
    "  shapes  usual app (with app comes work)\n"
    "  modes   blocking nonblocking persistent\n"
    "  kinds   all min avg max\n";

static const double kDefaultSampleMs = 3;
enum {
  kMostBytes = 64 << 20,
  kPage = 4096,
  kCommunicators = 10000,
};

typedef enum { kUsual, kApp, kWork, kShapes } Shape;
static const char* const kShapeNames[kShapes] = {"usual", "app", "work"};

static Calls shared;  // what all points have in common: buffers and communicators

static void RunUsual(void* context, int64_t iterations) {
  const Calls* calls = context;
  for (int64_t i = 0; i < iterations; ++i) Call(calls, i);
}

static void RunApp(void* context, int64_t iterations) {
  Calls* calls = context;
  for (int64_t i = 0; i < iterations; ++i) {
    uint64_t seed = calls->done++;
    WriteInput(calls, (int64_t)seed, seed);
    Call(calls, (int64_t)seed);
    calls->sum += ReadResult(calls, (int64_t)seed);
  }
}

static void RunWork(void* context, int64_t iterations) {
  Calls* calls = context;
  for (int64_t i = 0; i < iterations; ++i) {
    uint64_t seed = calls->done++;
    WriteInput(calls, (int64_t)seed, seed);
    calls->sum += ReadResult(calls, (int64_t)seed);
  }
}

// Compares what has been read in all calls with what must have been there.
static void CheckSum(const Calls* calls) {
  double expected = 0;
  for (uint64_t seed = 0; seed < calls->done; ++seed) {
    expected += ExpectedSum(calls, (int64_t)seed, seed);
  }
  if (calls->sum == expected) return;
  fprintf(stderr, "od_coll: wrong sum of the results of %s: rank %d of %d, %zu words\n",
          kCollectiveNames[calls->collective], calls->bench->rank, calls->bench->ranks,
          calls->words);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void Point(const Bench* bench, Collective collective, Mode mode, Shape shape, size_t bytes,
                  int64_t* iterations) {
  static const Body kBodies[kShapes] = {RunUsual, RunApp, RunWork};
  Calls calls = shared;
  calls.collective = collective;
  calls.mode = mode;
  calls.words = bytes / sizeof(double);
  LayOutBlocks(&calls);
  SampleTimes times;
  BeginCalls(&calls);
  if (*iterations == 0) {
    Verify(&calls);
    TakeSample(bench, kBodies[shape], &calls, iterations, &times);
  }
  TakeSample(bench, kBodies[shape], &calls, iterations, &times);
  if (shape == kApp) CheckSum(&calls);
  EndCalls(&calls);
  double count = (double)*iterations * 1e3;
  const struct {
    const char* kind;
    double us;
  } values[] = {{"all", times.whole_ns / count},
                {"min", -Largest(-times.mine_ns) / count},
                {"avg", od_probe_sum(times.mine_ns) / bench->ranks / count},
                {"max", Largest(times.mine_ns) / count}};
  for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); ++i) {
    Label label = {kCollectiveNames[collective],
                   kShapeNames[shape],
                   kModeNames[mode],
                   values[i].kind,
                   "us",
                   bytes};
    if (Listed(bench->kinds, values[i].kind)) {
      Report(bench, &label, values[i].us, times.before_ns, times.after_ns, times.waited);
    }
  }
  NextTurn(bench);
}

typedef struct {
  Collective collective;
  int size;  // which of the bench's
} Place;

// Every collective at every size, in the order that was asked for: a run that is too short for all
// of them takes others than the run before.
static int ListPlaces(const Bench* bench, Place* places) {
  int count = 0;
  for (int collective = 0; collective < kCollectives; ++collective) {
    if (!Listed(bench->tests, kCollectiveNames[collective])) continue;
    int sizes = collective == kBarrier ? 1 : bench->size_count;
    for (int i = 0; i < sizes; ++i) places[count++] = (Place){(Collective)collective, i};
  }
  uint64_t state = bench->order;
  for (int i = count - 1; i > 0 && bench->order != 0; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int other = (int)((state >> 33) % (uint64_t)(i + 1));
    Place held = places[i];
    places[i] = places[other];
    places[other] = held;
  }
  return count;
}

static void RunTests(const Bench* bench) {
  static int64_t iterations[kCollectives][kModes][kShapes][kMaxSizes];
  static Place places[kCollectives * kMaxSizes];
  int count = ListPlaces(bench, places);
  for (int at = 0; at < count; ++at) {
    Collective collective = places[at].collective;
    int i = places[at].size;
    size_t bytes = collective == kBarrier ? 0 : bench->sizes[i] / sizeof(double) * sizeof(double);
    if (!IsPossible(collective, bytes / sizeof(double), bench->ranks)) continue;
    if (!IsTimeLeft(bench)) return;
    for (int each = 0; each < kModes * kShapes; ++each) {
      int mode = each / kShapes, shape = each % kShapes;
      if (!Listed(bench->modes, kModeNames[mode]) || !IsModeKnown((Mode)mode)) continue;
      if (!Listed(bench->shapes, kShapeNames[shape == kWork ? kApp : shape])) continue;
      if (collective == kBarrier && shape != kUsual) continue;
      Point(bench, collective, (Mode)mode, (Shape)shape, bytes,
            &iterations[collective][mode][shape][i]);
    }
  }
  if (Listed(bench->tests, "first")) RunFirstUse(bench);
}

static double* Allocate(size_t words) {
  // Plain malloc, as programs do it, aligned by hand so that all hosts and runs get the same offset
  // within a page.
  char* memory = malloc(words * sizeof(double) + kPage);
  if (memory == NULL) {
    fputs("od_coll: out of memory\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  memory += kPage - (uintptr_t)memory % kPage;
  memset(memory, 0, words * sizeof(double));
  return (double*)memory;
}

static void SetUp(const Bench* bench) {
  size_t largest = 1;
  for (int collective = 0; collective < kCollectives; ++collective) {
    if (!Listed(bench->tests, kCollectiveNames[collective])) continue;
    for (int i = 0; i < bench->size_count; ++i) {
      size_t words =
          BufferWords((Collective)collective, bench->sizes[i] / sizeof(double), bench->ranks);
      if (words > largest) largest = words;
    }
  }
  shared = (Calls){.bench = bench, .comm = MPI_COMM_WORLD};
  shared.in = Allocate(largest);
  shared.out = Allocate(largest);
  MakeBlocks(&shared);
  shared.persistent = malloc((size_t)(bench->ranks + 1) * sizeof(MPI_Request));
  if (shared.persistent == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Comm_split(MPI_COMM_WORLD, 0, bench->ranks - bench->rank, &shared.reversed);
}

int main(int argc, char** argv) {
  od_probe_apply_niceness();
  MPI_Init(&argc, &argv);
  Bench bench = {.program = "od_coll",
                 .repetitions = 4,
                 .pointwise = 1,
                 .sample_ms = kDefaultSampleMs,
                 .tests = "bcast,reduce,allreduce,allgather,alltoall,reduce_scatter,barrier",
                 .shapes = "usual",
                 .modes = "blocking",
                 .kinds = "all",
                 .may_be_apart = 1,
                 .page_barrier = 1,
                 .most_bytes = kMostBytes};
  ParseSizes("8,64,512,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M", &bench);
  int status = StartBench(argc, argv, kUsage, &bench);
  if (status != 0) return status;
  SetUp(&bench);
  if (Listed(bench.tests, "communicators")) RunCommunicators(&bench, kCommunicators);
  RunRounds(&bench, RunTests);
  MPI_Comm_free(&shared.reversed);
  MPI_Finalize();
  return 0;
}
