// What the benchmark programs share: options, the sampling loop and its output.
//
// Output is one line per sample:
//   test,shape,mode,kind,size_bytes,ranks,value,unit,probe_before_ns,probe_after_ns,waited,
//   foreign_cores
// `waited` is the share of the sample's time for which a rank wanted its core and another process
// had it; `foreign_cores` is how many cores other programs used during the round of samples.
//
// A *sample* is one short timed repetition with a cache-line probe before and after it. All samples
// of one invocation are taken round by round (every point once, then every point again), because
// the machine changes its distance regime within seconds and each point should see each regime.
#ifndef OVERDRIVE_BENCH_P2P_HARNESS_H_
#define OVERDRIVE_BENCH_P2P_HARNESS_H_

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

enum { kMaxSizes = 64, kMaxBytes = 8 << 20 };

typedef struct {
  const char* program;
  int rank, ranks, calibrating;
  // Rounds after the first, which calibrates; with `seconds` above 0 as many as fit into them.
  int repetitions;
  // Set by programs whose rounds may take long, because some library takes long: they calibrate
  // each point when they first come to it, before its first sample, and ask IsTimeLeft before every
  // point. So a run that is too short for a round still has samples of some points.
  int pointwise;
  // With `seconds`: every point is measured once, however long that takes.
  int whole_round;
  uint64_t order;  // of the points of od_coll
  double seconds, sample_ms;
  const char *tests, *shapes, *modes, *kinds;  // comma-separated lists
  size_t sizes[kMaxSizes];
  int size_count;
  const char* turns;  // file shared with other jobs, see turns.h, or NULL
  int job, jobs;      // which of how many jobs this is
  // Folder of the page that the ranks share, which nodes of a virtual cluster must have in common;
  // NULL for the usual one.
  const char* share;
  // Set by programs that can do without the shared page: ranks may then be on several nodes.
  int may_be_apart;
  int apart;  // whether they are, as far as memory is concerned
  // Wait for each other after a batch over the shared page instead of with messages. Where a
  // library does not give its core away while it waits, messages would cost more than what is
  // measured.
  int page_barrier;
  size_t most_bytes;  // the largest size accepted, kMaxBytes if 0
  char* stack_send;   // od_p2p only: 2 MiB each in main's frame
  char* stack_receive;
} Bench;

// For loops that stand for a program's own reading and writing: compiled for wide vectors where the
// machine has them, so that memory and not arithmetic is what is measured.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default"), noinline))
#else
#define WIDE __attribute__((noinline))
#endif

// 1 if `list` (comma-separated) contains `name`.
int Listed(const char* list, const char* name);

// The options that all programs know, as text for their usage message.
extern const char kCommonOptions[];
// 0 if an option is unknown or its value makes no sense.
int ParseOptions(int argc, char** argv, Bench* bench);
int ParseSizes(const char* text, Bench* bench);

// After MPI_Init: options, shared pages, pinning, and the first turn. Returns an exit status for a
// program that cannot go on (after MPI_Finalize), or 0.
int StartBench(int argc, char** argv, const char* usage, Bench* bench);
// Calls `run` once to calibrate (not where `pointwise` is set) and then for each round.
void RunRounds(Bench* bench, void (*run)(const Bench* bench));
// Collective, for pointwise programs. 0 when the time is over: what is left of the round is not
// run. All jobs that take turns get the same answer, so they must ask equally often. The first
// answer is yes.
int IsTimeLeft(const Bench* bench);

// A timed body: runs `iterations` on this rank.
typedef void (*Body)(void* context, int64_t iterations);
typedef struct {
  const char *test, *shape, *mode, *kind, *unit;
  size_t bytes;
} Label;
// Collective: warms up, calibrates `*iterations` if it is 0 (so that a sample lasts about
// bench->sample_ms; at least two iterations, but a single one where it takes longer than that by
// itself and the program is pointwise), and otherwise takes one sample and prints scale(ns per
// iteration). Ends with the job's next turn.
void Sample(const Bench* bench, const Label* label, Body body, void* context, int64_t* iterations,
            double (*scale)(const Label* label, double ns_per_iteration));
// The same in parts, for programs that report more than one value of a sample.
typedef struct {
  double whole_ns, mine_ns;  // of all iterations: from first start to last end, and of this rank
  double before_ns, after_ns, waited;
} SampleTimes;
// Returns 0 when it has calibrated and there is no sample yet.
int TakeSample(const Bench* bench, Body body, void* context, int64_t* iterations,
               SampleTimes* times);
// Collective. Everybody gets the largest value.
double Largest(double value);
// Prints one value (rank 0 does) with the probes around it and the share of the time that a rank
// waited for its core.
void Report(const Bench* bench, const Label* label, double value, double before_ns, double after_ns,
            double waited);
// Collective. A barrier made of messages, which also drives what the library still has to deliver.
void MessageBarrier(void);
// Collective. Lets the other jobs measure and returns when it is this one's turn again.
void NextTurn(const Bench* bench);

double HalfRoundTripMicroseconds(const Label* label, double ns_per_iteration);
double StepMicroseconds(const Label* label, double ns_per_iteration);
double Milliseconds(const Label* label, double ns_per_iteration);

#endif  // OVERDRIVE_BENCH_P2P_HARNESS_H_
