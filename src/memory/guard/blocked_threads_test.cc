// Who cannot wait at a guarded page is found, whoever else is there.
#include "memory/guard/blocked_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/test_emulator.h"

namespace od::memory::guard {
namespace {

// A thread with that mask, until it is destroyed.
class Masked {
 public:
  explicit Masked(const sigset_t& set, const char* name = nullptr)
      : thread_([this, set, name] {
          // The system call itself: sanitizers and libraries may stand before the function.
          syscall(SYS_rt_sigprocmask, SIG_SETMASK, &set, nullptr, 8);
          if (name != nullptr) pthread_setname_np(pthread_self(), name);
          id_ = static_cast<pid_t>(syscall(SYS_gettid));
          while (!over_) usleep(2000);
        }) {
    while (id_ == 0) usleep(100);
  }
  ~Masked() {
    over_ = true;
    thread_.join();
  }
  Masked(const Masked&) = delete;
  Masked& operator=(const Masked&) = delete;
  pid_t id() const { return id_; }

 private:
  std::atomic<pid_t> id_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class BlockedThreads : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the thread sanitizer has a thread with all signals blocked";
#endif
    if (under_emulator()) GTEST_SKIP() << "an emulator keeps the masks of its threads for itself";
  }
};

sigset_t all_but(int number) {
  sigset_t set;
  sigfillset(&set);
  if (number != 0) sigdelset(&set, number);
  return set;
}

TEST_F(BlockedThreads, OnlyTheSignalCounts) {
  const Masked can_wait(all_but(SIGSEGV));
  EXPECT_EQ(find_blocked_thread(), 0);
  {
    const Masked cannot(all_but(SIGUSR1));
    EXPECT_EQ(find_blocked_thread(), cannot.id());
  }
  EXPECT_EQ(find_blocked_thread(), 0);
}

TEST_F(BlockedThreads, AmongMany) {
  std::vector<std::unique_ptr<Masked>> threads;
  for (int i = 0; i < 150; ++i) threads.push_back(std::make_unique<Masked>(all_but(SIGSEGV)));
  EXPECT_EQ(find_blocked_thread(), 0);
  threads.push_back(std::make_unique<Masked>(all_but(0)));
  EXPECT_EQ(find_blocked_thread(), threads.back()->id());
}

TEST_F(BlockedThreads, OwnOnesTouchNothing) {
  const Masked own(all_but(0), "overdrive-agent");
  EXPECT_EQ(find_blocked_thread(), 0);
}

TEST_F(BlockedThreads, TheCallerIsAskedFromElsewhere) {
  const std::uint64_t only = std::uint64_t{1} << (SIGSEGV - 1);
  std::uint64_t before = 0;
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &only, &before, sizeof only);
  EXPECT_EQ(find_blocked_thread(), 0);
  pid_t found = 0;
  const auto own = static_cast<pid_t>(syscall(SYS_gettid));
  std::thread other([&] {
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &only, nullptr, sizeof only);
    found = find_blocked_thread();
  });
  other.join();
  EXPECT_EQ(found, own);
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, nullptr, sizeof before);
}

TEST_F(BlockedThreads, OneThatNeverSleepsIsFound) {
  std::atomic<pid_t> id{0};
  std::atomic<bool> over{false};
  std::thread busy([&] {
    const std::uint64_t all = ~std::uint64_t{0};
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof all);
    id = static_cast<pid_t>(syscall(SYS_gettid));
    while (!over) {
    }
  });
  while (id == 0) usleep(100);
  EXPECT_EQ(find_blocked_thread(), id);
  over = true;
  busy.join();
}

// The C library blocks signals while it starts a thread, for one.
TEST_F(BlockedThreads, MomentsDoNotCount) {
  std::atomic<bool> over{false};
  std::thread blinking([&] {
    const std::uint64_t only = std::uint64_t{1} << (SIGSEGV - 1);
    while (!over) {
      syscall(SYS_rt_sigprocmask, SIG_BLOCK, &only, nullptr, sizeof only);
      syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &only, nullptr, sizeof only);
      usleep(500);
    }
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(find_blocked_thread(), 0);
  over = true;
  blinking.join();
}

}  // namespace
}  // namespace od::memory::guard
