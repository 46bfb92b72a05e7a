// Guards: who touches a closed page waits for it, what arrived opens together, what is the
// program's stays the program's.
#include "memory/guard/guards.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "memory/guard/fault_handler.h"

namespace od::memory::guard {
namespace {

const std::size_t kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
constexpr std::size_t kPages = 16;

std::atomic<int> hurried;
std::atomic<int> waited;
std::atomic<int> settled;

const GuardClient kClient = {nullptr,
                             [](void*, bool waits) { (waits ? hurried : waited).fetch_add(1); },
                             [](void*, bool) { settled.fetch_add(1); }};

// The same pages twice: as the program sees them, and where they are written.
class GuardsTest : public testing::Test {
 protected:
  void SetUp() override {
    const int fd = static_cast<int>(syscall(SYS_memfd_create, "guards", 0));
    ASSERT_EQ(ftruncate(fd, static_cast<off_t>(kPages * kPage)), 0);
    seen_ = map(fd);
    written_ = map(fd);
    close(fd);
    guards.set_client(&kClient);
    ASSERT_TRUE(install_handler(::sigaction));
    hurried = 0;
    waited = 0;
  }
  void TearDown() override {
    guards.end();
    munmap(seen_, kPages * kPage);
    munmap(written_, kPages * kPage);
  }

  static char* map(int fd) {
    void* const at = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<char*>(at);
  }
  // One part per entry, `pages` long each, from the page `first` on.
  void guard(std::size_t first, const std::vector<std::size_t>& pages) {
    parts_.clear();
    auto at = reinterpret_cast<std::uintptr_t>(seen_ + first * kPage);
    for (const std::size_t count : pages) {
      parts_.push_back({at, at + count * kPage, GuardPart::kClosed});
      at += count * kPage;
    }
    ASSERT_TRUE(guards.begin(parts_.data(), static_cast<std::uint32_t>(parts_.size())));
  }

  char* seen_ = nullptr;
  char* written_ = nullptr;
  std::vector<GuardPart> parts_;
};

TEST_F(GuardsTest, ReaderWaitsForItsPart) {
  guard(0, {2, 2, 2});
  std::atomic<int> got{-1};
  std::thread reader([&] { got = static_cast<volatile char*>(seen_)[3 * kPage]; });
  while (hurried == 0) std::this_thread::yield();
  EXPECT_EQ(got, -1);
  written_[3 * kPage] = 7;
  guards.arrived(&parts_[1]);
  reader.join();
  EXPECT_EQ(got, 7);
  EXPECT_EQ(hurried, 1);
  EXPECT_EQ(waited, 1);
  EXPECT_EQ(parts_[0].state, GuardPart::kClosed);
  EXPECT_EQ(parts_[1].state, GuardPart::kOpen);
  EXPECT_EQ(parts_[2].state, GuardPart::kClosed);
}

TEST_F(GuardsTest, NeighboursThatArrivedOpenTogether) {
  guard(1, {1, 3, 1, 2});
  guards.arrived(&parts_[0]);
  guards.arrived(&parts_[1]);
  guards.arrived(&parts_[3]);
  written_[2 * kPage] = 5;
  EXPECT_EQ(static_cast<volatile char*>(seen_)[2 * kPage], 5);
  EXPECT_EQ(parts_[0].state, GuardPart::kOpen);
  EXPECT_EQ(parts_[1].state, GuardPart::kOpen);
  EXPECT_EQ(parts_[2].state, GuardPart::kClosed);
  EXPECT_EQ(parts_[3].state, GuardPart::kArrived);
}

TEST_F(GuardsTest, FirstTouchesAreNoted) {
  parts_.clear();
  const auto at = reinterpret_cast<std::uintptr_t>(seen_);
  for (std::size_t i = 0; i < 4; ++i) {
    parts_.push_back({at + i * kPage, at + (i + 1) * kPage, GuardPart::kArrived});
    written_[i * kPage] = static_cast<char>(i + 1);
  }
  ASSERT_TRUE(guards.begin(parts_.data(), 4, true));
  for (const std::size_t page : {2u, 0u}) {
    EXPECT_EQ(static_cast<volatile char*>(seen_)[page * kPage], static_cast<char>(page + 1));
  }
  EXPECT_TRUE(guards.settle_range(at + 3 * kPage, 1));
  // One by one: what lies beside it stays closed.
  EXPECT_EQ(parts_[1].state, GuardPart::kArrived);
  EXPECT_EQ(parts_[1].touched_ns, 0u);
  EXPECT_NE(parts_[2].touched_ns, 0u);
  EXPECT_LE(parts_[2].touched_ns, parts_[0].touched_ns);
  EXPECT_LE(parts_[0].touched_ns, parts_[3].touched_ns);
  for (const std::size_t page : {0u, 2u, 3u}) {
    EXPECT_LE(parts_[page].touched_ns, parts_[page].opened_ns);
  }
  guards.end();
  EXPECT_EQ(parts_[1].touched_ns, 0u);
  EXPECT_EQ(static_cast<volatile char*>(seen_)[kPage], 2);
}

TEST_F(GuardsTest, SettlesWhatOverlapsOnly) {
  guard(2, {2, 2, 2});
  guards.arrived(&parts_[0]);
  const auto at = reinterpret_cast<std::uintptr_t>(seen_);
  EXPECT_FALSE(guards.settle_range(at, 2 * kPage));
  EXPECT_FALSE(guards.settle_range(at + 8 * kPage, kPage));
  EXPECT_TRUE(guards.settle_range(at, 2 * kPage + 1));
  EXPECT_FALSE(guards.settle_range(at, 4 * kPage));
  EXPECT_EQ(parts_[1].state, GuardPart::kClosed);
  std::atomic<bool> settled_all{false};
  std::thread waiter([&] {
    guards.settle_all();
    settled_all = true;
  });
  while (hurried == 0) std::this_thread::yield();
  EXPECT_FALSE(settled_all);
  guards.arrived(&parts_[1]);
  guards.arrived(&parts_[2]);
  waiter.join();
  EXPECT_EQ(parts_[2].state, GuardPart::kOpen);
}

// Ends a child that changes its mask of signals from here on; false: the kernel does not.
bool forbid_masks() {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof steps / sizeof *steps, steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The child's exit code; -1: it was ended.
int settle_without_masks(uintptr_t start, uint64_t bytes) {
  constexpr int kCannotForbid = 3;
  const pid_t child = fork();
  if (child == 0) {
    if (!forbid_masks()) _exit(kCannotForbid);
    _exit(guards.settle_range(start, bytes) ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(GuardsTest, WhatLiesOutsideCostsNoSystemCall) {
  guard(4, {2, 2});
  for (GuardPart& part : parts_) guards.arrived(&part);
  const auto at = reinterpret_cast<std::uintptr_t>(seen_);
  // What the first part overlaps is looked up.
  const int inside = settle_without_masks(at, 4 * kPage + 1);
  if (inside == 3) GTEST_SKIP() << "system calls cannot be forbidden here";
  EXPECT_EQ(inside, -1);
  EXPECT_EQ(settle_without_masks(at + 8 * kPage - 1, 1), -1);
  EXPECT_EQ(settle_without_masks(0, ~std::uint64_t{0}), -1);
  EXPECT_EQ(settle_without_masks(at, 4 * kPage), 0);
  EXPECT_EQ(settle_without_masks(at + 8 * kPage, kPage), 0);
  guards.end();
  // Calls that are only measured have no parts.
  ASSERT_TRUE(guards.begin(nullptr, 0));
  EXPECT_TRUE(is_active());
  EXPECT_EQ(settle_without_masks(at + 4 * kPage, kPage), 0);
  EXPECT_EQ(settle_without_masks(0, ~std::uint64_t{0}), 0);
}

// As free() of a thread that has heard of some flight while others come and go.
TEST_F(GuardsTest, WhoHasHeardOfAFlightFindsIt) {
  constexpr int kFlights = 300;
  std::atomic<int> heard{0};
  std::atomic<int> missed{0};
  std::thread other([&] {
    for (int flight = 1; flight <= kFlights; ++flight) {
      while (heard.load(std::memory_order_acquire) < flight) std::this_thread::yield();
      const std::size_t page = flight % 2 != 0 ? 0 : 12;
      // Waits, or finds it open: then what was written is there.
      guards.settle_range(reinterpret_cast<std::uintptr_t>(seen_ + page * kPage), 1);
      char byte = 0;
      // The kernel does not wait.
      int ends[2];
      if (pipe(ends) != 0) break;
      if (write(ends[1], seen_ + page * kPage, 1) != 1 || read(ends[0], &byte, 1) != 1 ||
          byte != static_cast<char>(flight)) {
        ++missed;
      }
      close(ends[0]);
      close(ends[1]);
      heard.store(-flight, std::memory_order_release);
    }
  });
  for (int flight = 1; flight <= kFlights; ++flight) {
    const std::size_t page = flight % 2 != 0 ? 0 : 12;
    guard(page, {4});
    heard.store(flight, std::memory_order_release);
    written_[page * kPage] = static_cast<char>(flight);
    guards.arrived(&parts_[0]);
    while (heard.load(std::memory_order_acquire) != -flight) std::this_thread::yield();
    guards.end();
  }
  other.join();
  EXPECT_EQ(missed, 0);
}

TEST_F(GuardsTest, WaitsNoLongerThanItMay) {
  guard(0, {1});
  EXPECT_TRUE(guards.settle_all(1'000'000));
  EXPECT_EQ(parts_[0].state, GuardPart::kClosed);
}

TEST_F(GuardsTest, TheEndOpensEverything) {
  guard(0, {1, 1, 1, 4});
  EXPECT_TRUE(is_active());
  guards.end();
  EXPECT_FALSE(is_active());
  std::memset(seen_, 1, kPages * kPage);
}

TEST_F(GuardsTest, ManyFlightsAndReaders) {
  constexpr int kFlights = 200;
  for (int flight = 1; flight <= kFlights; ++flight) {
    guard(0, {1, 2, 1, 4, 8});
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int reader = 0; reader < 3; ++reader) {
      readers.emplace_back([&, reader] {
        for (std::size_t i = 0; i < kPages; ++i) {
          const std::size_t page = (i * 5 + static_cast<std::size_t>(reader)) % kPages;
          if (static_cast<volatile char*>(seen_)[page * kPage] != static_cast<char>(flight))
            ++wrong;
        }
      });
    }
    for (std::size_t page = 0; page < kPages; ++page)
      written_[page * kPage] = static_cast<char>(flight);
    for (const std::size_t part : {3u, 0u, 4u, 1u, 2u}) guards.arrived(&parts_[part]);
    for (std::thread& reader : readers) reader.join();
    guards.end();
    ASSERT_EQ(wrong, 0);
  }
}

// In a child: the exit by the signal itself.
int status_of_crash(void (*prepare)(), char* address) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    // A sanitizer has a handler of its own.
    struct sigaction plain = {};
    plain.sa_handler = SIG_DFL;
    program_action(&plain, nullptr);
    prepare();
    *static_cast<volatile char*>(address) = 1;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(GuardsTest, CrashesOfTheProgramStayCrashes) {
  guard(0, {2});
  guards.end();
  munmap(seen_ + 8 * kPage, kPage);
  const auto nothing = [] {};
  int status = status_of_crash(nothing, seen_ + 8 * kPage);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  // Closed by the program, where guards once were.
  mprotect(seen_, kPage, PROT_NONE);
  status = status_of_crash(nothing, seen_);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  status = status_of_crash([] { raise(SIGSEGV); }, seen_ + kPage);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  mprotect(seen_, kPage, PROT_READ | PROT_WRITE);
  mmap(seen_ + 8 * kPage, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

sigjmp_buf jump;
void* fault_address;

TEST_F(GuardsTest, HandlersOfTheProgramAreCalled) {
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    fault_address = info->si_addr;
    siglongjmp(jump, 1);
  };
  program_action(&action, &before);
  guard(0, {2});
  guards.arrived(&parts_[0]);
  mprotect(seen_ + 4 * kPage, kPage, PROT_READ);
  for (int i = 0; i < 3; ++i) {
    fault_address = nullptr;
    if (sigsetjmp(jump, 1) == 0) static_cast<volatile char*>(seen_)[4 * kPage] = 1;
    EXPECT_EQ(fault_address, seen_ + 4 * kPage);
  }
  program_action(&before, nullptr);
}

// By a handler that has interrupted the wait.
TEST_F(GuardsTest, WhoJumpsAwayFromAWaitHoldsNobody) {
#if defined(__SANITIZE_THREAD__)
  // It runs handlers with all signals blocked, and holds others back until the next call it knows.
  GTEST_SKIP() << "the thread sanitizer lets no handler interrupt the wait";
#endif
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) { siglongjmp(jump, 1); };
  sigaction(SIGUSR2, &action, &before);
  guard(0, {2, 2});
  const pthread_t self = pthread_self();
  for (const bool by_access : {true, false}) {
    hurried = 0;
    std::thread interrupter([&] {
      while (hurried == 0) std::this_thread::yield();
      pthread_kill(self, SIGUSR2);
    });
    if (sigsetjmp(jump, 1) == 0) {
      if (by_access) {
        EXPECT_EQ(static_cast<volatile char*>(seen_)[0], -1);
      } else {
        EXPECT_FALSE(guards.settle_all());
      }
    }
    interrupter.join();
  }
  guards.end();
  EXPECT_EQ(static_cast<volatile char*>(seen_)[0], 0);
  sigaction(SIGUSR2, &before, nullptr);
}

TEST_F(GuardsTest, WhoMovesWhatIsUnderWayNeverWaits) {
  guard(0, {1});
  std::thread agent([&] {
    guards.exempt_thread();
    EXPECT_TRUE(guards.is_exempt());
    EXPECT_FALSE(guards.settle_all());
  });
  agent.join();
  EXPECT_FALSE(guards.is_exempt());
}

}  // namespace
}  // namespace od::memory::guard
