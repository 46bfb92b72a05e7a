// Calls one collective many times and says how long calls take as the program goes on.
//
//   mpirun -n N od_learning COLLECTIVE BYTES:CALLS[,BYTES:CALLS...]
//
// Each size has a communicator of its own, so what is learnt about it begins anew. Each line of the
// output is a window of calls: collective, bytes, its first and last call, and microseconds of a
// call, waits between calls included, in the mean over the ranks. There is no barrier between
// windows, which would be a collective as well: each rank looks at its own clock. What has a root
// has another one in each call, so nobody runs ahead by more than a few calls.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../coll/od_coll.h"

enum { kMostWindows = 64, kMostBytes = 16 << 20 };

// Windows end so that measurements at call 128, and 1024 and each further power of two, lie at the
// beginning of one, and the window before it has none.
static const long kEnds[] = {50, 100, 200, 400, 800, 1000};
static const long kOctave[] = {1600, 2000};  // and these times each power of two

static int Windows(long calls, long* ends) {
  int count = 0;
  for (size_t i = 0; i < sizeof(kEnds) / sizeof(*kEnds) && kEnds[i] < calls; ++i) {
    ends[count++] = kEnds[i];
  }
  for (long times = 1; count + 3 <= kMostWindows && kOctave[0] * times < calls; times *= 2) {
    ends[count++] = kOctave[0] * times;
    if (kOctave[1] * times < calls) ends[count++] = kOctave[1] * times;
  }
  ends[count++] = calls;
  return count;
}

static void Stop(const char* why) {
  fprintf(stderr, "od_learning: %s\n", why);
  MPI_Abort(MPI_COMM_WORLD, 2);
  exit(2);
}

static double* Allocate(size_t words) {
  double* memory = calloc(words, sizeof(double));
  if (memory == NULL) Stop("no memory");
  return memory;
}

static Collective Find(const char* name) {
  for (int i = 0; i < kCollectives; ++i) {
    // A scan would need communicators of both directions.
    if (!RunsBothWays((Collective)i) && strcmp(kCollectiveNames[i], name) == 0)
      return (Collective)i;
  }
  Stop("no such collective");
  return kCollectives;
}

// One call with each root, with new data each. Not among the timed ones: writing and reading would
// be timed, too.
static void Check(Calls* c) {
  int turns = c->bench->ranks;
  double sum = 0, expected = 0;
  for (int turn = 0; turn < turns; ++turn) {
    WriteInput(c, turn, (uint64_t)turn);
    Call(c, turn);
    sum += ReadResult(c, turn);
    expected += ExpectedSum(c, turn, (uint64_t)turn);
  }
  if (sum != expected) Stop("wrong results");
}

static void Measure(Calls* c, long calls) {
  long ends[kMostWindows];
  double taken[kMostWindows], all[kMostWindows];
  int windows = Windows(calls, ends);
  MPI_Comm_dup(MPI_COMM_WORLD, &c->comm);
  MessageBarrier();
  double before = MPI_Wtime();
  long turn = 0;
  for (int i = 0; i < windows; ++i) {
    for (; turn < ends[i]; ++turn) Call(c, turn);
    double now = MPI_Wtime();
    taken[i] = now - before;
    before = now;
  }
  MPI_Reduce(taken, all, windows, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  Check(c);
  MPI_Comm_free(&c->comm);
  if (c->bench->rank != 0) return;
  long first = 1;
  for (int i = 0; i < windows; ++i) {
    printf("%s,%zu,%ld,%ld,%.4f\n", kCollectiveNames[c->collective], c->words * sizeof(double),
           first, ends[i], all[i] / c->bench->ranks / (double)(ends[i] - first + 1) * 1e6);
    first = ends[i] + 1;
  }
  fflush(stdout);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) Stop("usage: od_learning COLLECTIVE BYTES:CALLS[,BYTES:CALLS...]");
  Bench bench = {0};
  MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &bench.ranks);
  Calls calls = {.bench = &bench, .collective = Find(argv[1]), .mode = kBlocking};
  MakeBlocks(&calls);
  for (char* at = argv[2]; *at != '\0'; at += *at == ',') {
    char* end;
    unsigned long bytes = strtoul(at, &end, 10);
    long count = *end == ':' ? strtol(end + 1, &at, 10) : 0;
    calls.words = bytes / sizeof(double);
    if (count <= 0 || (*at != ',' && *at != '\0')) Stop("points are BYTES:CALLS");
    if (bytes > kMostBytes || !IsPossible(calls.collective, calls.words, bench.ranks)) {
      Stop("that size is not possible");
    }
    size_t words = BufferWords(calls.collective, calls.words, bench.ranks);
    calls.in = Allocate(words + 1);
    calls.out = Allocate(words + 1);
    LayOutBlocks(&calls);
    Measure(&calls, count);
    free(calls.in);
    free(calls.out);
  }
  MPI_Finalize();
  return 0;
}
