// overdrive-measure: two processes that exchange messages through the engine, without any MPI.
//
// `overdrive calibrate` and `overdrive study` run it and read its samples. Exit status 0, also
// after a signal that ended it early (what was measured has been printed); 1 when it cannot measure
// here; 2 for wrong arguments.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "measure/pair.h"
#include "node/forked_job.h"
#include "observe/log.h"
#include "topology/cpu_set.h"
#include "topology/fingerprint.h"

namespace od::measure {
namespace {

// Written before the handler is installed; a handler has no context of its own.
SharedPage* signalled_page = nullptr;

void on_signal(int) { signalled_page->stop.store(1, std::memory_order_relaxed); }

bool pin(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(cpu), &one);
  return sched_setaffinity(0, sizeof one, &one) == 0;
}

// With the kernel's autogroups a niceness counts within a session only, unless it is told again.
void apply_niceness() {
  const int niceness = getpriority(PRIO_PROCESS, 0);
  if (niceness == 0) return;
  if (std::FILE* file = std::fopen("/proc/self/autogroup", "we")) {
    std::fprintf(file, "%d", niceness);
    std::fclose(file);
  }
}

int run_rank(const Options& options, SharedPage& page, const node::Exchange& exchange) {
  // The parent hears of Ctrl-C and tells through the page, so that a round of messages is finished.
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int cpu = exchange.rank == 0 ? options.cpu_a : options.cpu_b;
  if (!pin(cpu)) {
    std::fprintf(stderr, "overdrive-measure: processor %d may not be used\n", cpu);
    return 1;
  }
  Pair pair(page, exchange, options);
  switch (options.test) {
    case Options::Test::kPingPong:
      run_ping_pong(pair, options);
      break;
    case Options::Test::kSkew:
      run_skew(pair, options);
      break;
    case Options::Test::kCache:
      run_cache(pair, options);
      break;
    case Options::Test::kFingerprint:
      break;
  }
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  std::string reason;
  if (!parse_options(argc, argv, options, reason)) {
    std::fprintf(stderr, "overdrive-measure: %s\n%s", reason.c_str(), kUsage);
    return 2;
  }
  if (options.test == Options::Test::kFingerprint) {
    std::printf("%s\n", topology::fingerprint().c_str());
    return 0;
  }
  if (options.cpu_a < 0) {
    const topology::CpuSet mine = topology::own_affinity();
    options.cpu_a = mine.first();
    options.cpu_b = mine.next(options.cpu_a);
    if (options.cpu_a < 0 || options.cpu_b < 0) {
      std::fprintf(stderr, "overdrive-measure: two processors are needed, one may be used here\n");
      return 1;
    }
  }
  void* memory =
      mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* page = new (memory) SharedPage;
  signalled_page = page;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  log_setup(-1, 0);
  apply_niceness();
  // Nothing in a round takes a second; a pair that does not come back in time hangs.
  const double limit_seconds = options.seconds + 60;
  const std::vector<int> codes = node::run_forked_job(
      2, [&](int, const node::Exchange& exchange) { return run_rank(options, *page, exchange); },
      limit_seconds);
  for (const int code : codes) {
    if (code != 0) {
      std::fprintf(stderr, "overdrive-measure: a measuring process ended with status %d\n", code);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace od::measure

int main(int argc, char** argv) { return od::measure::run(argc, argv); }
