// Point-to-point benchmark of an MPI library: the program od_p2p. See harness.h for its output.
#include "od_p2p.h"

#include <stdio.h>
#include <string.h>

#include "probe.h"

static const char kUsage[] =
    "usage: mpirun -n N od_p2p [options]\n"
    "  tests   latency bw bibw rate ring halo cost raw memory init skew memcpy collectives   "
    "(latency runs all pairs at once)\n"
    "  shapes  usual alternating app           (latency, memcpy)\n"
    "  modes   blocking nonblocking            (latency)\n"
    "  kinds   heap stack static vector vector_contig column common allocatable (latency)\n";

// Short enough to stay within one regime mostly, long enough against the clock and the first cold
// iterations.
static const double kDefaultSampleMs = 3;

static void RunTests(const Bench* bench) {
  if (Listed(bench->tests, "raw")) RunRaw(bench);
  if (Listed(bench->tests, "latency")) RunLatency(bench);
  if (Listed(bench->tests, "latency")) RunFortranLatency(bench);
  RunStreams(bench);
  RunExchanges(bench);
  if (Listed(bench->tests, "cost")) RunCallCosts(bench);
  if (Listed(bench->tests, "memcpy")) RunMemcpy(bench);
  if (Listed(bench->tests, "skew")) RunSkew(bench);
  if (Listed(bench->tests, "collectives")) RunCollectives(bench);
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

  Bench bench = {.program = "od_p2p",
                 .repetitions = 4,
                 .sample_ms = kDefaultSampleMs,
                 .tests = "latency",
                 .shapes = "usual",
                 .modes = "blocking",
                 .kinds = "heap",
                 .stack_send = stack_send,
                 .stack_receive = stack_receive};
  ParseSizes("0,1,8,64,256,1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M,4M", &bench);
  int status = StartBench(argc, argv, kUsage, &bench);
  if (status != 0) return status;

  // The rank that came last waited for nobody: its time is the library's, not the launcher's.
  init_ns = -od_probe_max(-init_ns);
  if (Listed(bench.tests, "init")) {
    double probe = od_probe_exchange_ns(0);
    Label label = {.test = "init", .shape = "-", .mode = "-", .kind = "-", .unit = "ms"};
    Report(&bench, &label, init_ns / 1e6, probe, probe, 0);
  }
  if (Listed(bench.tests, "memory")) RunMemory(&bench);
  SetUpBuffers(&bench);
  RunRounds(&bench, RunTests);
  MPI_Finalize();
  return 0;
}
