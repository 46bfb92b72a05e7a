// Benchmark of broadcasts, reductions to a root, gathers and scatters to which ranks come at
// different times: the program od_arrival.
//
// Before each call all ranks agree on a moment on a common clock; each spins until that moment and
// its own delay have passed. What is reported is how long ranks were inside the call, and how far
// they were from the moment at which they should have come.
//
// Output, one line per call, in microseconds:
//   arrival,pattern,bytes,ranks,wait,others,whole,off
//     wait    mean over all ranks of the time inside the call
//     others  the same without the rank that came last
//     whole   from the common moment until the last rank has left
//     off     largest distance of a rank's arrival from where it should have been
// and first `clock,NANOSECONDS,ERROR`: the largest difference of a clock from rank 0's that was
// found, and how wrong that may be. A difference within its error counts as none.
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../p2p/turns.h"

enum { kMostRanks = 1024, kMostPatterns = 32, kMostSizes = 32, kPings = 60, kTag = 7 };
// Rehearsals that a job makes that learns nothing in them.
enum { kFewRehearsals = 3 };

static int rank, ranks, node, rank_on_node;
static double clock_ahead;  // of this rank's clock before rank 0's, in ns

static double NowNs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec - clock_ahead;
}

static _Noreturn void Fail(const char* text) {
  fprintf(stderr, "od_arrival: %s\n", text);
  MPI_Abort(MPI_COMM_WORLD, 1);
  abort();
}

// --- a common clock --------------------------------------------------------------------------

static void CompareClocks(void) {
  double worst[2] = {0, 0};
  for (int other = 1; other < ranks; ++other) {
    if (rank != 0 && rank != other) continue;
    double shortest = 1e18, ahead = 0;
    for (int i = 0; i < kPings; ++i) {
      double times[2] = {NowNs(), 0};
      if (rank == 0) {
        MPI_Send(times, 1, MPI_DOUBLE, other, kTag, MPI_COMM_WORLD);
        MPI_Recv(&times[1], 1, MPI_DOUBLE, other, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        double back = NowNs();
        if (back - times[0] < shortest) {
          shortest = back - times[0];
          ahead = times[1] - (times[0] + back) / 2;
        }
      } else {
        MPI_Recv(times, 1, MPI_DOUBLE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        times[0] = NowNs();
        MPI_Send(times, 1, MPI_DOUBLE, 0, kTag, MPI_COMM_WORLD);
      }
    }
    double found[2] = {ahead, shortest / 2};
    if (rank == 0) {
      MPI_Send(found, 2, MPI_DOUBLE, other, kTag, MPI_COMM_WORLD);
      if (found[1] > worst[1]) worst[1] = found[1];
      double size = ahead < 0 ? -ahead : ahead;
      if (size > worst[0]) worst[0] = size;
    } else {
      MPI_Recv(found, 2, MPI_DOUBLE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      double size = found[0] < 0 ? -found[0] : found[0];
      if (size > found[1]) clock_ahead = found[0];
    }
  }
  if (rank == 0) printf("clock,%.0f,%.0f\n", worst[0], worst[1]);
}

// Sleeps until shortly before, then spins; gives the core away meanwhile, since ranks may share it.
static void WaitUntil(double moment_ns) {
  const double kSpin = 300e3;
  double left = moment_ns - NowNs();
  if (left > kSpin) {
    double sleep = left - kSpin;
    struct timespec span = {(time_t)(sleep / 1e9),
                            (long)(sleep - 1e9 * (double)(time_t)(sleep / 1e9))};
    nanosleep(&span, NULL);
  }
  while (NowNs() < moment_ns) sched_yield();
}

// --- patterns --------------------------------------------------------------------------------

static double* from_file;  // microseconds per rank
static long lines_in_file;

static void ReadFile(const char* path) {
  FILE* file = fopen(path, "r");
  if (file == NULL) Fail("cannot read the file of delays");
  long room = 0;
  double value;
  while (fscanf(file, "%lf%*[, \t\n]", &value) == 1) {
    if (lines_in_file == room) {
      room = room == 0 ? 64 : 2 * room;
      from_file = realloc(from_file, (size_t)room * sizeof(double));
      if (from_file == NULL) Fail("out of memory");
    }
    from_file[lines_in_file++] = value;
  }
  fclose(file);
  lines_in_file /= ranks;
  if (lines_in_file == 0) Fail("the file has fewer delays than there are ranks");
}

// This rank's delay in microseconds, in the call with this number.
static double DelayOf(const char* pattern, int root, double delay_us, uint64_t call) {
  if (strcmp(pattern, "one-late") == 0) return rank == ranks - 1 && rank != root ? delay_us : 0;
  if (strcmp(pattern, "linear") == 0) {
    return ranks == 1 ? 0 : delay_us * ((rank - root + ranks) % ranks) / (ranks - 1);
  }
  if (strcmp(pattern, "random") == 0) {
    uint64_t state = (call + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(rank + 1) * 0xbf58476d1ce4e5b9u;
    state ^= state >> 31;
    state *= 0x94d049bb133111ebu;
    state ^= state >> 29;
    return delay_us * (double)(state >> 11) / 9007199254740992.0;
  }
  // The first rank of the second node.
  if (strcmp(pattern, "late-leader") == 0) return node == 1 && rank_on_node == 0 ? delay_us : 0;
  if (strcmp(pattern, "late-root") == 0) return rank == root ? delay_us : 0;
  if (strcmp(pattern, "file") == 0)
    return from_file[(long)(call % (uint64_t)lines_in_file) * ranks + rank];
  if (strcmp(pattern, "together") != 0) Fail("there is no such pattern");
  return 0;
}

// Numbers nodes by their lowest rank.
static void FindNode(void) {
  MPI_Comm mine;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &mine);
  MPI_Comm_rank(mine, &rank_on_node);
  int first = rank, firsts[kMostRanks];
  MPI_Bcast(&first, 1, MPI_INT, 0, mine);
  MPI_Allgather(&first, 1, MPI_INT, firsts, 1, MPI_INT, MPI_COMM_WORLD);
  for (int other = 0; other < first; ++other) node += firsts[other] == other;
  MPI_Comm_free(&mine);
}

// --- one call --------------------------------------------------------------------------------

enum Collective { kBcast, kReduce, kGather, kScatter };
static enum Collective collective = kBcast;

static unsigned char Expected(size_t at, uint64_t call) {
  return (unsigned char)(at * 7 + (at >> 12) + call * 13);
}

static void Barrier(void) {
  for (int step = 1; step < ranks; step *= 2) {
    MPI_Sendrecv(NULL, 0, MPI_CHAR, (rank + step) % ranks, kTag, NULL, 0, MPI_CHAR,
                 (rank + ranks - step) % ranks, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

// The moment at which the call begins for those who are not late, the same everywhere.
static double Agree(void) {
  double moment = NowNs() + 1.5e6 + 150e3 * ranks;
  for (int step = 1; step < ranks; step *= 2) {
    if (rank < step && rank + step < ranks) {
      MPI_Send(&moment, 1, MPI_DOUBLE, rank + step, kTag, MPI_COMM_WORLD);
    } else if (rank >= step && rank < 2 * step) {
      MPI_Recv(&moment, 1, MPI_DOUBLE, rank - step, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  return moment;
}

// What this rank contributes, or what the root has for all: bytes of a rank, in `in`; of all ranks,
// in `all`.
static void Fill(char* in, char* all, size_t bytes, int root, uint64_t call) {
  if ((collective == kBcast || collective == kScatter) && rank != root) return;
  for (int who = 0; who < (collective == kScatter ? ranks : 1); ++who) {
    char* block = collective == kScatter ? all + (size_t)who * bytes : in;
    int number = collective == kScatter ? who : collective == kBcast ? 0 : rank;
    for (size_t at = 0; at < bytes; at += 61) {
      block[at] = (char)Expected(at, call + (uint64_t)number);
    }
  }
}

static void Make(char* in, char* out, size_t bytes, int root) {
  switch (collective) {
    case kBcast:
      MPI_Bcast(in, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
      return;
    case kReduce:
      // The largest: each byte is some rank's, so it can be checked, and so much is computed.
      MPI_Reduce(in, out, (int)bytes, MPI_UNSIGNED_CHAR, MPI_MAX, root, MPI_COMM_WORLD);
      return;
    case kGather:
      MPI_Gather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
      return;
    case kScatter:
      MPI_Scatter(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
  }
}

static void Check(const char* in, const char* out, size_t bytes, int root, uint64_t call) {
  if ((collective == kReduce || collective == kGather) && rank != root) return;
  for (int who = 0; who < (collective == kGather ? ranks : 1); ++who) {
    for (size_t at = 0; at < bytes; at += 61) {
      int number = collective == kGather ? who : collective == kScatter ? rank : 0;
      unsigned char wanted = Expected(at, call + (uint64_t)number);
      for (int other = 1; collective == kReduce && other < ranks; ++other) {
        unsigned char value = Expected(at, call + (uint64_t)other);
        if (value > wanted) wanted = value;
      }
      int taken = collective == kBcast || collective == kScatter;
      const char* found = taken ? in : out + (size_t)who * bytes;
      if ((unsigned char)found[at] != wanted) Fail("a collective has brought wrong data");
    }
  }
}

static void Call(const char* pattern, char* in, char* out, size_t bytes, int root, double delay_us,
                 uint64_t call, int print) {
  Fill(in, out, bytes, root, call);
  Barrier();
  double moment = Agree();
  double mine = moment + 1e3 * DelayOf(pattern, root, delay_us, call);
  WaitUntil(mine);
  double times[3] = {NowNs(), 0, mine};
  Make(in, out, bytes, root);
  times[1] = NowNs();
  Check(in, out, bytes, root, call);
  static double all[3 * kMostRanks];
  Barrier();
  MPI_Gather(times, 3, MPI_DOUBLE, all, 3, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  if (rank != 0 || !print) return;
  double sum = 0, last = 0, off = 0;
  int latest = 0;
  for (int i = 0; i < ranks; ++i) {
    const double* of = &all[3 * i];
    sum += of[1] - of[0];
    if (of[1] > last) last = of[1];
    if (of[0] - of[2] > off) off = of[0] - of[2];
    if (of[0] > all[3 * latest]) latest = i;
  }
  double others = ranks == 1 ? 0 : (sum - (all[3 * latest + 1] - all[3 * latest])) / (ranks - 1);
  printf("arrival,%s,%zu,%d,%.1f,%.1f,%.1f,%.1f\n", pattern, bytes, ranks, sum / ranks / 1e3,
         others / 1e3, (last - moment) / 1e3, off / 1e3);
  fflush(stdout);
}

// --- options ---------------------------------------------------------------------------------

typedef struct {
  const char* words[kMostPatterns];
  int count;
} Words;

static Words Split(char* list) {
  Words found = {.count = 0};
  for (char* word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
    if (found.count < kMostPatterns) found.words[found.count++] = word;
  }
  return found;
}

static size_t SizeOf(const char* text) {
  char* end;
  size_t value = strtoul(text, &end, 10);
  if (*end == 'K') value <<= 10;
  if (*end == 'M') value <<= 20;
  return value;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > kMostRanks) Fail("too many ranks");
  char all_patterns[] = "together", all_sizes[] = "1M";
  char usual_delay[] = "40000";
  Words patterns = {{all_patterns}, 1}, sizes = {{all_sizes}, 1}, delays = {{usual_delay}, 1};
  int repeats = 10, warm_up = 2, rehearsals = 0, learns = 1, root = 0, job = 0, jobs = 1;
  char* turns = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    char* value = argv[i + 1];
    if (strcmp(argv[i], "--patterns") == 0)
      patterns = Split(value);
    else if (strcmp(argv[i], "--sizes") == 0)
      sizes = Split(value);
    else if (strcmp(argv[i], "--delay-us") == 0)
      delays = Split(value);
    else if (strcmp(argv[i], "--repeats") == 0)
      repeats = atoi(value);
    else if (strcmp(argv[i], "--warm-up") == 0)
      warm_up = atoi(value);
    else if (strcmp(argv[i], "--rehearsals") == 0)
      rehearsals = atoi(value);
    else if (strcmp(argv[i], "--learns") == 0)
      learns = atoi(value);
    else if (strcmp(argv[i], "--root") == 0)
      root = atoi(value);
    else if (strcmp(argv[i], "--collective") == 0)
      collective = strcmp(value, "reduce") == 0    ? kReduce
                   : strcmp(value, "gather") == 0  ? kGather
                   : strcmp(value, "scatter") == 0 ? kScatter
                                                   : kBcast;
    else if (strcmp(argv[i], "--file") == 0)
      ReadFile(value);
    else if (strcmp(argv[i], "--turns") == 0) {
      turns = strtok(value, ",");
      char* number = strtok(NULL, ",");
      char* count = strtok(NULL, ",");
      if (number == NULL || count == NULL) Fail("--turns takes FILE,JOB,JOBS");
      job = atoi(number);
      jobs = atoi(count);
    } else {
      Fail("unknown option");
    }
  }
  if (root < 0 || root >= ranks) Fail("there is no such root");
  if (delays.count != 1 && delays.count != sizes.count) Fail("a delay for each size, or one");
  FindNode();
  if (turns != NULL && od_turns_attach(turns, job, jobs) != 0) Fail("cannot map the file of turns");
  size_t most = 1;
  for (int i = 0; i < sizes.count; ++i) {
    if (SizeOf(sizes.words[i]) > most) most = SizeOf(sizes.words[i]);
  }
  char* buffer = malloc(most);
  if (buffer == NULL) Fail("out of memory");
  memset(buffer, 0, most);
  int blocks = collective == kGather || collective == kScatter ? ranks : 1;
  char* result = malloc(most * (size_t)blocks);
  if (result == NULL) Fail("out of memory");
  memset(result, 0, most * (size_t)blocks);
  Barrier();
  od_turns_begin(rank == 0);
  CompareClocks();
  uint64_t call = 0;
  for (int size = 0; size < sizes.count; ++size) {
    for (int i = 0; i < warm_up; ++i) {
      Call("together", buffer, result, SizeOf(sizes.words[size]), root, 0, call++, 0);
    }
  }
  // A size and pattern at a time if there are rehearsals, so that what is learnt in them holds.
  int rounds = rehearsals > 0 ? 1 : repeats, in_a_row = rehearsals > 0 ? repeats : 1;
  for (int round = 0; round < rounds; ++round) {
    for (int size = 0; size < sizes.count; ++size) {
      double delay_us = atof(delays.words[delays.count == 1 ? 0 : size]);
      for (int i = 0; i < patterns.count; ++i) {
        for (int n = -rehearsals; n < in_a_row; ++n) {
          Barrier();
          od_turns_next(rank == 0);
          if (n < -kFewRehearsals && !learns) {
            ++call;  // so that all jobs have the same delays
            continue;
          }
          Call(patterns.words[i], buffer, result, SizeOf(sizes.words[size]), root, delay_us, call++,
               n >= 0);
        }
      }
    }
  }
  Barrier();
  od_turns_end(rank == 0);
  free(buffer);
  free(result);
  free(from_file);
  MPI_Finalize();
  return 0;
}
