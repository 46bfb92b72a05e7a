// Options, sampling loop and output of the benchmark programs.
//
// The programs are compiled once per MPI and know nothing of Overdrive: whether it is there is
// decided by LD_PRELOAD.
#define _GNU_SOURCE
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"
#include "turns.h"

const char kCommonOptions[] =
    "  --tests --shapes --modes --kinds LIST   comma-separated names\n"
    "  --sizes LIST     bytes; suffixes K and M\n"
    "  --reps N         rounds (0: only those checks that come before), or\n"
    "  --seconds S      as many rounds as fit\n"
    "  --whole-round 1  with --seconds: the first round takes as long as it needs\n"
    "  --sample-ms MS   how long a sample lasts\n"
    "  --turns FILE,JOB,JOBS   take turns with other jobs over a file of their own\n"
    "  --share FOLDER   where the ranks of this job share a page\n"
    "  --order N        od_coll: the N-th of many orders of the points (0: as they are listed)\n";

enum {
  kMaxLines = 4096,
  kMostWarmUps = 16,  // od_p2p alternates between as many buffers
  kMostGrowths = 6,   // of a batch; learning ends sooner
};
static const double kLongEnough = 0.7;  // of the length that a batch should have

int Listed(const char* list, const char* name) {
  size_t length = strlen(name);
  for (const char* at = list; (at = strstr(at, name)) != NULL; at += length) {
    int starts = at == list || at[-1] == ',';
    if (starts && (at[length] == ',' || at[length] == '\0')) return 1;
  }
  return 0;
}

int ParseSizes(const char* text, Bench* bench) {
  bench->size_count = 0;
  while (*text != '\0') {
    char* end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text) return 0;
    if (*end == 'K') value <<= 10, ++end;
    if (*end == 'M') value <<= 20, ++end;
    size_t most = bench->most_bytes != 0 ? bench->most_bytes : (size_t)kMaxBytes;
    if (value > most || bench->size_count == kMaxSizes) return 0;
    bench->sizes[bench->size_count++] = value;
    if (*end == ',') ++end;
    text = end;
  }
  return bench->size_count > 0;
}

static int ParseTurns(char* text, Bench* bench) {
  char* comma = strchr(text, ',');
  if (comma == NULL || sscanf(comma, ",%d,%d", &bench->job, &bench->jobs) != 2) return 0;
  *comma = '\0';
  bench->turns = text;
  return 1;
}

int ParseOptions(int argc, char** argv, Bench* bench) {
  for (int i = 1; i < argc; i += 2) {
    char* value = i + 1 < argc ? argv[i + 1] : NULL;
    if (value == NULL) return 0;
    if (strcmp(argv[i], "--tests") == 0) {
      bench->tests = value;
    } else if (strcmp(argv[i], "--shapes") == 0) {
      bench->shapes = value;
    } else if (strcmp(argv[i], "--modes") == 0) {
      bench->modes = value;
    } else if (strcmp(argv[i], "--kinds") == 0) {
      bench->kinds = value;
    } else if (strcmp(argv[i], "--sizes") == 0) {
      if (!ParseSizes(value, bench)) return 0;
    } else if (strcmp(argv[i], "--reps") == 0) {
      bench->repetitions = atoi(value);
    } else if (strcmp(argv[i], "--seconds") == 0) {
      bench->seconds = atof(value);
    } else if (strcmp(argv[i], "--whole-round") == 0) {
      bench->whole_round = atoi(value);
    } else if (strcmp(argv[i], "--turns") == 0) {
      if (!ParseTurns(value, bench)) return 0;
    } else if (strcmp(argv[i], "--share") == 0) {
      bench->share = value;
    } else if (strcmp(argv[i], "--order") == 0) {
      bench->order = (uint64_t)atoll(value);
    } else if (strcmp(argv[i], "--sample-ms") == 0) {
      bench->sample_ms = atof(value);
    } else {
      return 0;
    }
  }
  return bench->repetitions >= 0 && bench->sample_ms > 0;
}

double HalfRoundTripMicroseconds(const Label* label, double ns_per_iteration) {
  (void)label;
  return ns_per_iteration / 2e3;
}

double StepMicroseconds(const Label* label, double ns_per_iteration) {
  (void)label;
  return ns_per_iteration / 1e3;
}

double Milliseconds(const Label* label, double ns_per_iteration) {
  (void)label;
  return ns_per_iteration / 1e6;
}

// The lines of the present round, which lack their last column until the round is over. Where jobs
// take turns it is 0, because the other jobs are not foreign and their use of the cores is not
// known: such lines are printed at once and stay, however the job ends.
static char* round_lines[kMaxLines];
static int round_line_count;

void Report(const Bench* bench, const Label* label, double value, double before_ns, double after_ns,
            double waited) {
  if (bench->rank != 0 || round_line_count == kMaxLines) return;
  char* line;
  int length = asprintf(&line, "%s,%s,%s,%s,%zu,%d,%.6g,%s,%.1f,%.1f,%.4f", label->test,
                        label->shape, label->mode, label->kind, label->bytes, bench->ranks, value,
                        label->unit, before_ns, after_ns, waited);
  if (length > 0 && bench->turns != NULL) {
    printf("%s,0.000\n", line);
    fflush(stdout);
    free(line);
    return;
  }
  if (length > 0) round_lines[round_line_count++] = line;
}

// Runs all tests once and prints their samples with the load that other programs made meanwhile.
static void RunRound(const Bench* bench, void (*run)(const Bench* bench)) {
  double start = od_probe_now_ns(), busy = od_probe_busy_ns(), own = od_probe_cpu_ns();
  run(bench);
  own = od_probe_sum(od_probe_cpu_ns() - own);
  double foreign = (od_probe_busy_ns() - busy - own) / (od_probe_now_ns() - start);
  for (int i = 0; i < round_line_count; ++i) {
    printf("%s,%.3f\n", round_lines[i], foreign > 0 ? foreign : 0);
    free(round_lines[i]);
  }
  round_line_count = 0;
  fflush(stdout);
}

// All ranks wait for each other by messages: what is measured here is point-to-point, and a rank
// that is done early must not disturb the others by how the library waits inside a collective.
void MessageBarrier(void) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int step = 1; step < ranks; step *= 2) {
    MPI_Sendrecv(NULL, 0, MPI_CHAR, (rank + step) % ranks, 77, NULL, 0, MPI_CHAR,
                 (rank + ranks - step) % ranks, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

double Largest(double value) { return od_probe_max(value); }

typedef struct {
  double whole_ns, mine_ns;
} Duration;

static void Drive(void) {
  int flag;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
}

// Runs the body once on all ranks. The whole is from the first rank's start to the last one's end:
// with more ranks than cores the kernel may let some finish before others start, and the time of
// each rank alone would hide it. Clocks of different nodes cannot be compared; there it is the time
// of the slowest rank.
static Duration Timed(const Bench* bench, Body body, void* context, int64_t iterations) {
  od_probe_sync();
  double start = od_probe_now_ns();
  body(context, iterations);
  double end = od_probe_now_ns();
  // Waiting on the shared page drives no MPI: a library that still has to deliver something does it
  // in here.
  if (bench->page_barrier) {
    od_probe_sync_driving(Drive);
  } else {
    MessageBarrier();
  }
  double whole =
      bench->apart ? od_probe_max(end - start) : od_probe_max(end) + od_probe_max(-start);
  return (Duration){whole, end - start};
}

int TakeSample(const Bench* bench, Body body, void* context, int64_t* iterations,
               SampleTimes* times) {
  double goal_ns = bench->sample_ms * 1e6;
  if (*iterations == 0) {
    // Grow until a run is long enough to be extrapolated. The duration is the same on all ranks,
    // hence the decision.
    int64_t n = 1;
    double ns = Timed(bench, body, context, n).whole_ns;
    while (ns < goal_ns / 8) {
      n = ns < goal_ns / 64 ? n * 8 : n * 4;
      ns = Timed(bench, body, context, n).whole_ns;
    }
    double wanted = goal_ns / (ns / (double)n);
    // A library that is still trying what is fastest is slower than it will be, and a run may be
    // disturbed; batches that are too short for ever would then count how they begin more than what
    // is measured.
    for (int again = 0; again < kMostGrowths; ++again) {
      n = wanted > 1 ? (int64_t)wanted : 1;
      ns = Timed(bench, body, context, n).whole_ns;
      if (ns >= goal_ns * kLongEnough) break;
      wanted = goal_ns / (ns / (double)n);
    }
    *iterations = wanted >= 2 ? (int64_t)wanted : bench->pointwise && wanted < 1 ? 1 : 2;
    NextTurn(bench);
    return 0;
  }
  times->before_ns = od_probe_exchange_ns(0);
  int64_t warm_up =
      *iterations / 4 + 1;  // enough to touch all alternating buffers where that is affordable
  // Where even one iteration is longer than a sample should be, nothing is left to warm up for.
  if (*iterations > 1) {
    Timed(bench, body, context, warm_up < kMostWarmUps ? warm_up : kMostWarmUps);
  }
  double waited = od_probe_waited_ns();
  Duration duration = Timed(bench, body, context, *iterations);
  waited = od_probe_max(od_probe_waited_ns() - waited);
  times->after_ns = od_probe_exchange_ns(0);
  times->whole_ns = duration.whole_ns;
  times->mine_ns = duration.mine_ns;
  times->waited = waited / duration.whole_ns;
  return 1;
}

void Sample(const Bench* bench, const Label* label, Body body, void* context, int64_t* iterations,
            double (*scale)(const Label* label, double ns_per_iteration)) {
  SampleTimes times;
  if (!TakeSample(bench, body, context, iterations, &times)) return;
  Report(bench, label, scale(label, times.whole_ns / (double)*iterations), times.before_ns,
         times.after_ns, times.waited);
  NextTurn(bench);
}

void NextTurn(const Bench* bench) {
  if (bench->turns == NULL) return;
  od_probe_sync();
  od_turns_next(bench->rank == 0);
}

// The shared page's collective functions by messages, for ranks that share no memory.
static void SyncByMessages(void) { MessageBarrier(); }

static double MaxByMessages(double value) {
  double result;
  MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return result;
}

static double SumByMessages(double value) {
  double result;
  MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return result;
}

static double ShareByMessages(double value) {
  MPI_Bcast(&value, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return value;
}

static int AnyOf(int failed) {
  int any;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return any;
}

static int SharePages(Bench* bench) {
  static const od_probe_messages kMessages = {SyncByMessages, MaxByMessages, SumByMessages,
                                              ShareByMessages};
  char path[4096] = "";
  int failed = bench->rank == 0 ? od_probe_create(bench->share, path, sizeof(path)) : 0;
  MPI_Bcast(path, sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
  failed = failed || od_probe_attach(path, bench->rank, bench->ranks) != 0;
  od_probe_drive_when_late(Drive);
  int any_failed = AnyOf(failed);
  if (bench->rank == 0) od_probe_unlink(path);
  if (any_failed && bench->may_be_apart) {
    od_probe_use_messages(&kMessages, bench->rank, bench->ranks);
    bench->apart = 1;
  } else if (failed) {
    fprintf(stderr, "%s: rank %d cannot share the probe page %s; all ranks must run on one node\n",
            bench->program, bench->rank, path);
  }
  if (any_failed && !bench->apart) return 1;
  if (bench->turns == NULL) return 0;
  failed = od_turns_attach(bench->turns, bench->job, bench->jobs) != 0;
  if (failed) fprintf(stderr, "%s: cannot use %s to take turns\n", bench->program, bench->turns);
  return AnyOf(failed);
}

int StartBench(int argc, char** argv, const char* usage, Bench* bench) {
  MPI_Comm_rank(MPI_COMM_WORLD, &bench->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &bench->ranks);
  if (!ParseOptions(argc, argv, bench)) {
    if (bench->rank == 0) fprintf(stderr, "%s%s", usage, kCommonOptions);
    MPI_Finalize();
    return 2;
  }
  if (SharePages(bench)) MPI_Abort(MPI_COMM_WORLD, 1);
  // Which cores the ranks of a node may share the launcher knows best where there are several
  // nodes.
  int pinned = !bench->apart && od_probe_pin(bench->rank, bench->ranks);
  if (bench->rank == 0) {
    const char* unpinned = bench->apart ? "on several nodes" : "more than cores";
    fprintf(stderr, "%s: %d ranks, %s\n", bench->program, bench->ranks,
            pinned ? "one core each" : unpinned);
  }
  od_turns_begin(bench->rank == 0);
  return 0;
}

static double until_ns;
static int steps, is_over, in_first_round;

// Whether to take another step, a round or a point: all ranks of all jobs need the same answer.
static int GoOn(const Bench* bench) {
  if (steps++ == 0 || (bench->whole_round && in_first_round)) return 1;
  double mine = bench->rank == 0 ? od_turns_go_on(steps, until_ns) : 0;
  return od_probe_share(mine) != 0;
}

int IsTimeLeft(const Bench* bench) {
  if (bench->seconds > 0 && !is_over) is_over = !GoOn(bench);
  return !is_over;
}

static int IsAnotherRound(const Bench* bench, int round) {
  if (round < 0) return 1;
  if (bench->seconds <= 0) return round < bench->repetitions;
  return bench->pointwise ? !is_over : GoOn(bench);
}

void RunRounds(Bench* bench, void (*run)(const Bench* bench)) {
  until_ns = od_probe_now_ns() + bench->seconds * 1e9;
  int before = -1;
  for (int round = bench->pointwise ? 0 : -1; IsAnotherRound(bench, round); ++round) {
    // Without a point there is nobody who asks for the time.
    if (bench->pointwise && bench->seconds > 0 && steps == before) break;
    before = steps;
    bench->calibrating = round < 0;
    in_first_round = round <= 0;
    RunRound(bench, run);
  }
  od_probe_sync();
  od_turns_end(bench->rank == 0);
}
