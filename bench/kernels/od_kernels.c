// The kernels as a benchmark program: options and output are those of the other benchmark programs
// (p2p/harness.h).
//
// A line's test is the kernel, its shape the input (`short` or `long` messages), its mode how data
// get to everybody (`sendrecv`, or `collective` by the host's). The kind `time` is milliseconds per
// iteration, `messages` the share of the time that the ranks spent in messages. Before anything is
// measured each kernel's result is compared with that of a serial run; `--reps 0` does only that.
#include <math.h>
#include <stdio.h>

#include "../p2p/harness.h"
#include "../p2p/probe.h"
#include "kernels.h"

static const char kUsage[] =
    "usage: mpirun -n N od_kernels [options]\n"
    "  tests   ft is cg mg                     (comma-separated)\n"
    "  shapes  short long                      (messages)\n"
    "  modes   sendrecv collective             (how all-to-all is done)\n";

static const Kernel* const kKernels[] = {&kFourierTransform, &kIntegerSort, &kConjugateGradient,
                                         &kMultigrid};
static const char* const kInputs[] = {"short", "long"};
static const char* const kModes[] = {"sendrecv", "collective"};
enum { kKernelCount = sizeof(kKernels) / sizeof(kKernels[0]), kInputCount = 2, kModeCount = 2 };

typedef struct {
  const Kernel* kernel;
  void* state;
  Team team;
  int64_t iterations;
} Running;

static void CheckAgainstSerialRun(const Kernel* kernel, Running* running, int long_messages) {
  double result = kernel->result(running->state);
  Team alone = {.comm = MPI_COMM_SELF, .rank = 0, .ranks = 1};
  void* serial = kernel->create(&alone, long_messages);
  double expected = kernel->result(serial);
  kernel->destroy(serial);
  if (fabs(result - expected) > 1e-8 * fabs(expected)) {
    fprintf(stderr, "od_kernels: %s: %.15g instead of %.15g\n", kernel->name, result, expected);
    Require(0, "differs from the serial run");
  }
  if (running->team.rank == 0) {
    fprintf(stderr, "od_kernels: %s, %s: %.12g as in the serial run\n", kernel->name,
            kInputs[long_messages], result);
  }
}

static void RunTimed(void* context, int64_t iterations) {
  Running* running = context;
  double start = od_probe_now_ns();
  running->kernel->run(running->state, iterations);
  running->team.run_ns += od_probe_now_ns() - start;
}

static void Measure(const Bench* bench, Running* running, int input, int mode) {
  const Kernel* kernel = running->kernel;
  Team* team = &running->team;
  if (bench->calibrating) {
    *team = (Team){
        .comm = MPI_COMM_WORLD, .rank = bench->rank, .ranks = bench->ranks, .collectives = mode};
    running->state = kernel->create(team, input);
    if (running->state != NULL) CheckAgainstSerialRun(kernel, running, input);
  }
  if (running->state == NULL || (bench->repetitions == 0 && bench->seconds <= 0)) return;
  team->message_ns = team->run_ns = 0;
  Label label = {kernel->name, kInputs[input], kModes[mode], "time", "ms", 0};
  Sample(bench, &label, RunTimed, running, &running->iterations, Milliseconds);
  if (bench->calibrating) return;
  double share = od_probe_sum(team->message_ns / team->run_ns) / team->ranks;
  double probe = od_probe_exchange_ns(0);
  label.kind = "messages";
  label.unit = "share";
  Report(bench, &label, share, probe, probe, 0);
}

static void RunKernels(const Bench* bench) {
  static Running running[kKernelCount][kInputCount][kModeCount];
  for (int k = 0; k < kKernelCount; ++k) {
    if (!Listed(bench->tests, kKernels[k]->name)) continue;
    for (int input = 0; input < kInputCount; ++input) {
      if (!Listed(bench->shapes, kInputs[input])) continue;
      for (int mode = 0; mode < kModeCount; ++mode) {
        if (!Listed(bench->modes, kModes[mode])) continue;
        if (mode == 1 && !kKernels[k]->has_collectives) continue;
        running[k][input][mode].kernel = kKernels[k];
        Measure(bench, &running[k][input][mode], input, mode);
      }
    }
  }
}

int main(int argc, char** argv) {
  od_probe_apply_niceness();
  MPI_Init(&argc, &argv);
  Bench bench = {.program = "od_kernels",
                 .repetitions = 4,
                 .sample_ms = 30,
                 .tests = "ft,is,cg,mg",
                 .shapes = "short,long",
                 .modes = "sendrecv,collective",
                 .kinds = "heap"};
  int status = StartBench(argc, argv, kUsage, &bench);
  if (status != 0) return status;
  RunRounds(&bench, RunKernels);
  MPI_Finalize();
  return 0;
}
