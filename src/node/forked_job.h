// A job of forked processes with the exchange functions that joining a node needs, without an MPI:
// for tests and overdrive-measure.
//
//   std::vector<int> codes = run_forked_job(4, [](int rank, const Exchange& exchange) {
//     auto node = Node::join(exchange, {});
//     return node->size() == 4 ? 0 : 1;
//   });
// The result holds one exit code per rank: what the function returned, 128 + signal for a killed
// process, 124 for one that had to be killed because the time limit had passed. Children leave with
// _exit. A rank that ends early leaves the others waiting in their next exchange: give such jobs a
// short limit or no exchange afterwards. One that returns 77, kImpossible, ends the others as well.
#ifndef OVERDRIVE_NODE_FORKED_JOB_H_
#define OVERDRIVE_NODE_FORKED_JOB_H_

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "node/node.h"

namespace od::node {

// Shared by the processes of one forked job.
class ForkedJob {
 public:
  static constexpr std::size_t kSlotBytes = 64 << 10;
  static constexpr int kTimedOut = 124;
  static constexpr int kImpossible = 77;

  // The job of this process; the exchange functions of Exchange carry no context of their own.
  static inline ForkedJob* current = nullptr;
  static inline int current_rank = 0;

  static ForkedJob* create(int ranks) {
    const std::size_t bytes = kHeaderBytes + static_cast<std::size_t>(ranks) * kSlotBytes;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    auto* job = static_cast<ForkedJob*>(memory);
    job->ranks_ = ranks;
    job->bytes_ = bytes;
    return job;
  }
  void destroy() { munmap(this, bytes_); }
  int ranks() const { return ranks_; }

  void enter_barrier() {
    // The acquires pair with the release of the last one, which publishes what everybody wrote
    // before this round; the counter's acq_rel collects it from all.
    const std::uint32_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<unsigned>(ranks_)) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      syscall(SYS_futex, &round_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
      return;
    }
    while (round_.load(std::memory_order_acquire) == round) {
      syscall(SYS_futex, &round_, FUTEX_WAIT, round, nullptr, nullptr, 0);
    }
  }
  int allgather_bytes(const void* send, void* recv, std::size_t bytes) {
    auto* to = static_cast<char*>(recv);
    const auto* from = static_cast<const char*>(send);
    for (std::size_t done = 0; done < bytes; done += kSlotBytes) {
      const std::size_t part = bytes - done < kSlotBytes ? bytes - done : kSlotBytes;
      std::memcpy(slot(current_rank), from + done, part);
      enter_barrier();
      for (int rank = 0; rank < ranks_; ++rank) {
        std::memcpy(to + static_cast<std::size_t>(rank) * bytes + done, slot(rank), part);
      }
      enter_barrier();
    }
    return 0;
  }

  static Exchange exchange_of(int rank, int ranks) {
    return Exchange{
        .rank = rank,
        .size = ranks,
        .allgather = [](const void* send, void* recv,
                        std::size_t bytes) { return current->allgather_bytes(send, recv, bytes); },
        .barrier =
            [] {
              current->enter_barrier();
              return 0;
            }};
  }

 private:
  static constexpr std::size_t kHeaderBytes = 4096;
  char* slot(int rank) {
    return reinterpret_cast<char*>(this) + kHeaderBytes +
           static_cast<std::size_t>(rank) * kSlotBytes;
  }

  std::atomic<std::uint32_t> arrived_;
  std::atomic<std::uint32_t> round_;
  int ranks_;
  std::size_t bytes_;
};

// How many rounds a test's job makes. The thread sanitizer sees nothing of what processes do to
// each other: there the first rounds of a rank, which has one thread or a helper, show what the
// rest would.
constexpr int rounds_of_processes(int rounds) {
#if defined(__SANITIZE_THREAD__)
  return rounds / 4;
#else
  return rounds;
#endif
}

inline double forked_job_seconds() { return 1e-9 * static_cast<double>(now_ns()); }

// `function(rank, exchange)` runs in one forked process per rank and returns that rank's exit code.
// The limit is for jobs that hang: no job may come near it on a busy machine.
template <typename Function>
std::vector<int> run_forked_job(int ranks, Function&& function, double limit_seconds = 100) {
  std::fflush(nullptr);
  std::vector<int> codes(static_cast<std::size_t>(ranks), ForkedJob::kTimedOut);
  ForkedJob* job = ForkedJob::create(ranks);
  if (job == nullptr) return codes;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      ForkedJob::current = job;
      ForkedJob::current_rank = rank;
      const int code = function(rank, ForkedJob::exchange_of(rank, ranks));
      std::fflush(nullptr);
      _exit(code);
    }
    children.push_back(child);
  }
  // Counted in steps of which none is long: while this process stands still (suspended, frozen,
  // without a processor) its ranks may as well.
  constexpr double kLongestStepSeconds = 0.05;
  double waited_seconds = 0;
  double before = forked_job_seconds();
  int running = 0;
  for (const pid_t child : children) running += child > 0 ? 1 : 0;
  bool killed = false;
  while (running > 0) {
    for (std::size_t i = 0; i < children.size(); ++i) {
      int status = 0;
      if (children[i] <= 0 || waitpid(children[i], &status, WNOHANG) != children[i]) continue;
      if (WIFEXITED(status)) codes[i] = WEXITSTATUS(status);
      if (WIFSIGNALED(status) && !killed) codes[i] = 128 + WTERMSIG(status);
      children[i] = 0;
      --running;
    }
    const bool impossible =
        std::find(codes.begin(), codes.end(), ForkedJob::kImpossible) != codes.end();
    const double now = forked_job_seconds();
    waited_seconds += std::min(now - before, kLongestStepSeconds);
    before = now;
    if (!killed && (impossible || waited_seconds > limit_seconds)) {
      killed = true;
      for (const pid_t child : children) {
        if (child > 0) kill(child, SIGKILL);
      }
    }
    if (running > 0) usleep(500);
  }
  job->destroy();
  return codes;
}

}  // namespace od::node

#endif  // OVERDRIVE_NODE_FORKED_JOB_H_
