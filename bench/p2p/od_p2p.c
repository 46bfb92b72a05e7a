// Point-to-point benchmark of an MPI library: options, sampling loop and output of the program
// od_p2p.
//
// Output is one line per sample:
//   test,shape,mode,kind,size_bytes,ranks,value,unit,probe_before_ns,probe_after_ns,waited,
//   foreign_cores
// `waited` is the share of the sample's time for which a rank wanted its core and another process
// had it; `foreign_cores` is how many cores other programs used during the round of samples.
//
// The program is compiled once per MPI and knows nothing of Overdrive: whether it is there is
// decided by LD_PRELOAD.
#define _GNU_SOURCE
#include "od_p2p.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

static const char kUsage[] =
    "usage: mpirun -n N od_p2p [--tests LIST] [--shapes LIST] [--modes LIST] [--kinds LIST] "
    "[--sizes LIST]\n"
    "                          [--reps N] [--sample-ms MS]\n"
    "  tests   latency bw bibw rate ring halo cost raw memory init   (comma-separated; latency "
    "runs all pairs at once)\n"
    "  shapes  usual alternating app           (latency)\n"
    "  modes   blocking nonblocking            (latency)\n"
    "  kinds   heap stack static vector vector_contig column common allocatable (latency)\n"
    "  sizes   bytes; suffixes K and M\n";

// Short enough to stay within one regime mostly, long enough against the clock and the first cold
// iterations.
static const double kDefaultSampleMs = 3;

enum { kMaxLines = 4096 };

int Listed(const char* list, const char* name) {
  size_t length = strlen(name);
  for (const char* at = list; (at = strstr(at, name)) != NULL; at += length) {
    int starts = at == list || at[-1] == ',';
    if (starts && (at[length] == ',' || at[length] == '\0')) return 1;
  }
  return 0;
}

static int ParseSizes(const char* text, Bench* bench) {
  bench->size_count = 0;
  while (*text != '\0') {
    char* end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text) return 0;
    if (*end == 'K') value <<= 10, ++end;
    if (*end == 'M') value <<= 20, ++end;
    if (value > kMaxBytes || bench->size_count == kMaxSizes) return 0;
    bench->sizes[bench->size_count++] = value;
    if (*end == ',') ++end;
    text = end;
  }
  return bench->size_count > 0;
}

static int ParseOptions(int argc, char** argv, Bench* bench) {
  for (int i = 1; i < argc; i += 2) {
    const char* value = i + 1 < argc ? argv[i + 1] : NULL;
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
    } else if (strcmp(argv[i], "--sample-ms") == 0) {
      bench->sample_ms = atof(value);
    } else {
      return 0;
    }
  }
  return bench->repetitions > 0 && bench->sample_ms > 0;
}

double HalfRoundTripMicroseconds(const Label* label, double ns_per_iteration) {
  (void)label;
  return ns_per_iteration / 2e3;
}

double StepMicroseconds(const Label* label, double ns_per_iteration) {
  (void)label;
  return ns_per_iteration / 1e3;
}

static void RunTests(const Bench* bench);

// The lines of the present round, which lack their last column until the round is over.
static char* round_lines[kMaxLines];
static int round_line_count;

void Report(const Bench* bench, const Label* label, double value, double before_ns, double after_ns,
            double waited) {
  if (bench->rank != 0 || round_line_count == kMaxLines) return;
  char* line;
  int length = asprintf(&line, "%s,%s,%s,%s,%zu,%d,%.6g,%s,%.1f,%.1f,%.4f", label->test,
                        label->shape, label->mode, label->kind, label->bytes, bench->ranks, value,
                        label->unit, before_ns, after_ns, waited);
  if (length > 0) round_lines[round_line_count++] = line;
}

// Runs all tests once and prints their samples with the load that other programs made meanwhile.
static void RunRound(const Bench* bench) {
  double start = od_probe_now_ns(), busy = od_probe_busy_ns(), own = od_probe_cpu_ns();
  RunTests(bench);
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
static void MessageBarrier(void) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int step = 1; step < ranks; step *= 2) {
    MPI_Sendrecv(NULL, 0, MPI_CHAR, (rank + step) % ranks, 77, NULL, 0, MPI_CHAR,
                 (rank + ranks - step) % ranks, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

// Runs the body once on all ranks; the duration is from the first rank's start to the last one's
// end. With more ranks than cores the kernel may let some finish before others start, and the time
// of each rank alone would hide it.
static double Timed(Body body, void* context, int64_t iterations) {
  od_probe_sync();
  double start = od_probe_now_ns();
  body(context, iterations);
  double end = od_probe_now_ns();
  // Waiting on the shared page drives no MPI: a library that still has to deliver something does it
  // in here.
  MessageBarrier();
  return od_probe_max(end) + od_probe_max(-start);
}

void Sample(const Bench* bench, const Label* label, Body body, void* context, int64_t* iterations,
            double (*scale)(const Label* label, double ns_per_iteration)) {
  double goal_ns = bench->sample_ms * 1e6;
  if (*iterations == 0) {
    // Grow until a run is long enough to be extrapolated. The duration is the same on all ranks,
    // hence the decision.
    int64_t n = 1;
    double ns = Timed(body, context, n);
    while (ns < goal_ns / 8) {
      n = ns < goal_ns / 64 ? n * 8 : n * 4;
      ns = Timed(body, context, n);
    }
    double wanted = goal_ns / (ns / (double)n);
    *iterations = wanted < 2 ? 2 : (int64_t)wanted;
    return;
  }
  double before = od_probe_exchange_ns(0);
  int64_t warm_up =
      *iterations / 4 + 1;  // enough to touch all alternating buffers where that is affordable
  Timed(body, context, warm_up < kAlternatingBuffers ? warm_up : kAlternatingBuffers);
  double waited = od_probe_waited_ns();
  double ns = Timed(body, context, *iterations);
  waited = od_probe_max(od_probe_waited_ns() - waited);
  double after = od_probe_exchange_ns(0);
  Report(bench, label, scale(label, ns / (double)*iterations), before, after, waited / ns);
}

static void RunTests(const Bench* bench) {
  if (Listed(bench->tests, "raw")) RunRaw(bench);
  if (Listed(bench->tests, "latency")) RunLatency(bench);
  if (Listed(bench->tests, "latency")) RunFortranLatency(bench);
  RunStreams(bench);
  RunExchanges(bench);
  if (Listed(bench->tests, "cost")) RunCallCosts(bench);
}

static double StartMpi(int* argc, char*** argv) {
  double start = od_probe_now_ns();
  MPI_Init(argc, argv);
  return od_probe_now_ns() - start;
}

int main(int argc, char** argv) {
  // Two message buffers in main's frame: 2 x 2 MiB fit the usual 8 MiB stack limit.
  _Alignas(4096) char stack_send[2 << 20], stack_receive[2 << 20];
  od_probe_apply_niceness();
  double init_ns = StartMpi(&argc, &argv);

  Bench bench = {.repetitions = 4,
                 .sample_ms = kDefaultSampleMs,
                 .tests = "latency",
                 .shapes = "usual",
                 .modes = "blocking",
                 .kinds = "heap",
                 .stack_send = stack_send,
                 .stack_receive = stack_receive};
  MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &bench.ranks);
  ParseSizes("0,1,8,64,256,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M", &bench);
  if (!ParseOptions(argc, argv, &bench)) {
    if (bench.rank == 0) fputs(kUsage, stderr);
    MPI_Finalize();
    return 2;
  }

  char path[4096] = "";
  int failed = bench.rank == 0 ? od_probe_create(path, sizeof(path)) : 0;
  MPI_Bcast(path, sizeof(path), MPI_CHAR, 0, MPI_COMM_WORLD);
  failed = failed || od_probe_attach(path, bench.rank, bench.ranks);
  int any_failed;
  MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (bench.rank == 0) od_probe_unlink(path);
  if (any_failed) {
    fprintf(stderr,
            "od_p2p: rank %d cannot share the probe page %s; all ranks must run on one node\n",
            bench.rank, path);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  int pinned = od_probe_pin(bench.rank, bench.ranks);

  // The rank that came last waited for nobody: its time is the library's, not the launcher's.
  init_ns = -od_probe_max(-init_ns);
  if (Listed(bench.tests, "init")) {
    double probe = od_probe_exchange_ns(0);
    Label label = {.test = "init", .shape = "-", .mode = "-", .kind = "-", .unit = "ms"};
    Report(&bench, &label, init_ns / 1e6, probe, probe, 0);
  }
  if (Listed(bench.tests, "memory")) RunMemory(&bench);
  SetUpBuffers(&bench);
  if (bench.rank == 0) {
    fprintf(stderr, "od_p2p: %d ranks, %s\n", bench.ranks,
            pinned ? "one core each" : "more than cores");
  }
  for (int round = -1; round < bench.repetitions; ++round) {
    bench.calibrating = round < 0;
    RunRound(&bench);
  }
  MPI_Finalize();
  return 0;
}
