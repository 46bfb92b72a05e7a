// Stress of the armed protocol with forked processes, and the choice of waiting plans.
//
// Lost wake-ups are made visible by sleeps that only a wake-up ends: a lost one leaves the ring
// standing until an alarm ends it. How late a rank is on a busy machine makes no difference.
#include "node/wait.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace od::node {
namespace {

struct alignas(kFalseSharingBytes) Mailbox {
  std::atomic<std::uint32_t> armed;
  std::atomic<std::uint32_t> away;
  alignas(kFalseSharingBytes) std::atomic<std::uint64_t> token;
};

Mailbox* shared_mailboxes(int count) {
  void* memory = mmap(nullptr, sizeof(Mailbox) * static_cast<std::size_t>(count),
                      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Mailbox*>(memory);
}

// Longer than any test may take, and after how long a ring stands still for good.
constexpr std::uint64_t kEndlessNs = 3'600'000'000'000;
constexpr unsigned kHangSeconds = 100;
constexpr std::uint64_t kHangNs = 60'000'000'000;

void random_delay(std::minstd_rand& random) {
  const unsigned pick = static_cast<unsigned>(random()) % 16;
  if (pick == 0) {
    sched_yield();
  } else if (pick < 4) {
    const unsigned pauses = static_cast<unsigned>(random()) % 300;
    for (unsigned i = 0; i < pauses; ++i) pause_processor();
  }
}

// Passes tokens around a ring of processes in which everybody always sleeps. Exit code 2: no
// expedited barrier; a lost wake-up never ends.
int ring_process(Mailbox* boxes, int ranks, int rank, std::uint64_t laps, bool expedited,
                 const WaitPlan& plan) {
  WakeMode mode{expedited};
  if (expedited && !register_expedited_barrier()) return 2;
  // Everybody must be registered before the first token moves.
  boxes[0].token.fetch_add(1, std::memory_order_acq_rel);
  while (boxes[0].token.load(std::memory_order_acquire) < static_cast<std::uint64_t>(ranks)) {
    sched_yield();
  }
  std::minstd_rand random(static_cast<unsigned>(rank) + 1);
  Mailbox& mine = boxes[1 + rank];
  Mailbox& next = boxes[1 + (rank + 1) % ranks];
  Mailbox& previous = boxes[1 + (rank + ranks - 1) % ranks];
  for (std::uint64_t lap = 1; lap <= laps; ++lap) {
    if (rank == 0) {
      random_delay(random);
      next.token.store(lap, std::memory_order_release);
      wake_if_armed(next.armed, mode);
    }
    Idler idler(plan, {&mine.away, &previous.away});
    const auto arrived = [&] { return mine.token.load(std::memory_order_acquire) >= lap; };
    while (!arrived()) {
      idler.step(mine.armed, mode, false, [&] {
        random_delay(random);
        return arrived();
      });
    }
    if (rank != 0) {
      random_delay(random);
      next.token.store(lap, std::memory_order_release);
      wake_if_armed(next.armed, mode);
    }
  }
  return 0;
}

void run_ring(int ranks, std::uint64_t laps, bool expedited, const WaitPlan& plan) {
  Mailbox* boxes = shared_mailboxes(ranks + 1);
  ASSERT_NE(boxes, nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(kHangSeconds);
      _exit(ring_process(boxes, ranks, rank, laps, expedited, plan));
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "no expedited membarrier here";
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  munmap(boxes, sizeof(Mailbox) * static_cast<std::size_t>(ranks + 1));
}

WaitPlan always_asleep() {
  WaitPlan plan;
  plan.pauses_per_check = 1;
  plan.spin_ns = 0;
  plan.yield_ns = 0;
  plan.first_sleep_ns = plan.sleep_ns = kEndlessNs;
  return plan;
}

TEST(Armed, NoLostWakeUpWithFences) {
  run_ring(2, 20000, false, always_asleep());
  run_ring(6, 3000, false, always_asleep());
}

TEST(Armed, NoLostWakeUpWithExpeditedBarriers) {
  run_ring(2, 20000, true, always_asleep());
  run_ring(6, 3000, true, always_asleep());
}

TEST(Armed, NoLostWakeUpWithTheOversubscribedPlan) {
  WaitPlan plan = plan_waiting(WaitPolicy::automatic, true, 0);
  plan.first_sleep_ns = plan.sleep_ns = kEndlessNs;
  run_ring(8, 2000, false, plan);
  run_ring(8, 2000, true, plan);
}

TEST(Armed, ASleeperNobodyWakesComesBack) {
  WaitPlan plan = always_asleep();
  plan.first_sleep_ns = 1'000'000;
  plan.sleep_ns = 4'000'000;
  std::atomic<std::uint32_t> armed{0};
  Idler idler(plan);
  const std::uint64_t start = now_ns();
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(idler.step(armed, {}, false, [] { return false; }));
    EXPECT_EQ(armed.load(std::memory_order_relaxed), 0u);
  }
  EXPECT_GE(now_ns() - start, 11'000'000u);  // 1 + 2 + 4 + 4 ms
}

TEST(Armed, ALimitAndHostTrafficShortenTheSleep) {
  WaitPlan plan = always_asleep();
  std::atomic<std::uint32_t> armed{0};
  Idler idler(plan);
  const std::uint64_t start = now_ns();
  EXPECT_TRUE(idler.step(armed, {}, true, [] { return false; }));
  EXPECT_TRUE(idler.step(
      armed, {}, false, [] { return false; }, 100'000));
  EXPECT_LT(now_ns() - start, kHangNs);
}

TEST(Armed, TheSecondLookPreventsTheSleep) {
  std::atomic<std::uint32_t> armed{0};
  const WaitPlan plan = always_asleep();
  Idler idler(plan);
  const std::uint64_t start = now_ns();
  EXPECT_FALSE(idler.step(armed, {}, false, [&] {
    EXPECT_EQ(armed.load(std::memory_order_relaxed), 1u);
    return true;
  }));
  EXPECT_EQ(armed.load(std::memory_order_relaxed), 0u);
  EXPECT_LT(now_ns() - start, kHangNs);
}

struct Awake {
  std::uint64_t ns = 0;      // until the idler arms itself
  std::uint64_t cpu_ns = 0;  // of that, what this thread was given a processor for
  int reports = 0;
  bool slept = false;
};

// Steps until the idler arms itself, or until `least_ns` have passed and it has reported. Neither
// comes soon when other programs have the processors.
Awake awake(const WaitPlan& plan, std::uint64_t least_ns = kHangNs) {
  const auto cpu_ns = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_nsec);
  };
  std::atomic<std::uint32_t> armed{0};
  Idler idler(plan);
  Awake result;
  const std::uint64_t start = now_ns();
  const std::uint64_t cpu_start = cpu_ns();
  while (!result.slept && result.ns < kHangNs && (result.ns < least_ns || result.reports == 0)) {
    if (idler.step(armed, {}, false, [&] { return result.slept = true; })) ++result.reports;
    result.ns = now_ns() - start;
  }
  result.cpu_ns = cpu_ns() - cpu_start;
  return result;
}

WaitPlan watching_peer(std::uint64_t peer_spin_ns) {
  WaitPlan plan;
  plan.pauses_per_check = 1;
  plan.spin_ns = 0;
  plan.yield_ns = kForeverNs;
  plan.peer_spin_ns = peer_spin_ns;
  return plan;
}

TEST(Presence, APeerThatRunsIsNotYieldedFor) {
  const WaitPlan plan = watching_peer(kForeverNs);
  std::atomic<std::uint32_t> armed{0};
  std::atomic<std::uint32_t> mine{0};
  std::atomic<std::uint32_t> peer{0};
  Idler idler(plan, {&mine, &peer});
  for (int i = 0; i < 1000; ++i) idler.step(armed, {}, false, [] { return false; });
  EXPECT_EQ(idler.yields(), 0u);
}

TEST(Presence, APeerThatIsAwayIsYieldedForAfterAnotherLook) {
  const WaitPlan plan = watching_peer(kForeverNs);
  std::atomic<std::uint32_t> armed{0};
  std::atomic<std::uint32_t> mine{0};
  std::atomic<std::uint32_t> peer{1};
  Idler idler(plan, {&mine, &peer});
  const auto step = [&] { idler.step(armed, {}, false, [] { return false; }); };
  step();
  EXPECT_EQ(idler.yields(), 0u);
  step();
  EXPECT_EQ(idler.yields(), 1u);
  EXPECT_EQ(idler.yields_with_peer(), 1u);
  EXPECT_EQ(mine.load(), 0u);
  // The peer comes back before the second look: nothing is given away.
  step();
  peer = 0;
  step();
  peer = 1;
  step();
  EXPECT_EQ(idler.yields(), 1u);
  // After something has come the look is due again.
  idler.reset();
  step();
  EXPECT_EQ(idler.yields(), 1u);
  step();
  EXPECT_EQ(idler.yields(), 2u);
}

TEST(Presence, APeerThatRunsForLongIsYieldedFor) {
  const WaitPlan plan = watching_peer(1);
  std::atomic<std::uint32_t> armed{0};
  std::atomic<std::uint32_t> peer{0};
  Idler idler(plan, {nullptr, &peer});
  const std::uint64_t start = now_ns();
  while (idler.yields() == 0 && now_ns() - start < kHangNs) {
    idler.step(armed, {}, false, [] { return false; });
  }
  EXPECT_GT(idler.yields(), 0u);
  EXPECT_EQ(idler.yields_with_peer(), 0u);
}

TEST(Presence, AnotherPeerIsWatched) {
  const WaitPlan plan = watching_peer(kForeverNs);
  std::atomic<std::uint32_t> armed{0};
  std::atomic<std::uint32_t> runs{0}, away{1};
  Idler idler(plan, {nullptr, &runs});
  const auto step = [&] { idler.step(armed, WakeMode{}, false, [] { return true; }); };
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(idler.yields(), 0u);
  idler.watch(&away);
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(idler.yields_with_peer(), 5u);  // after another look each
  idler.watch(&runs);
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(idler.yields(), 5u);
  idler.watch(nullptr);  // as if nobody were known
  step();
  EXPECT_EQ(idler.yields(), 6u);
}

TEST(Presence, WithoutAPeerTheUsualSpinPrecedesYields) {
  WaitPlan plan = watching_peer(kForeverNs);
  plan.pauses_per_check = 10;
  std::atomic<std::uint32_t> armed{0};
  std::atomic<std::uint32_t> mine{0};
  Idler idler(plan, {&mine, nullptr});
  for (int i = 0; i < 9; ++i) idler.step(armed, {}, false, [] { return false; });
  EXPECT_EQ(idler.yields(), 0u);
  idler.step(armed, {}, false, [] { return false; });
  EXPECT_EQ(idler.yields(), 1u);
}

TEST(Presence, ASleeperSaysThatItIsAway) {
  const WaitPlan plan = always_asleep();
  std::atomic<std::uint32_t> armed{0};
  std::atomic<std::uint32_t> mine{0};
  std::thread waker([&] {
    while (mine.load(std::memory_order_acquire) == 0) std::this_thread::yield();
    wake_if_armed(armed, {});
  });
  Idler idler(plan, {&mine, nullptr});
  EXPECT_TRUE(idler.step(armed, {}, false, [] { return false; }));
  EXPECT_EQ(mine.load(), 0u);
  waker.join();
}

TEST(Plan, OnlySharedCoresWatchTheirPeers) {
  EXPECT_GT(plan_waiting(WaitPolicy::automatic, true, 0).peer_spin_ns, 0u);
  EXPECT_GT(plan_waiting(WaitPolicy::yield, true, 0).peer_spin_ns, 0u);
  EXPECT_EQ(plan_waiting(WaitPolicy::automatic, false, 0).peer_spin_ns, 0u);
  EXPECT_EQ(plan_waiting(WaitPolicy::yield, false, 0).peer_spin_ns, 0u);
  EXPECT_EQ(plan_waiting(WaitPolicy::sleep, true, 0).peer_spin_ns, 0u);
  EXPECT_EQ(plan_waiting(WaitPolicy::spin, true, 0).peer_spin_ns, 0u);
  // Who sets how long to spin gets that.
  EXPECT_EQ(plan_waiting(WaitPolicy::automatic, true, 1000).peer_spin_ns, 0u);
}

TEST(Plan, OwnCoreSpinsAMillisecondFirst) {
  const Awake result = awake(plan_waiting(WaitPolicy::automatic, false, 0));
  EXPECT_GE(result.ns, 1'000'000u);
  EXPECT_TRUE(result.slept);
  // A processor of its own is used up to then, not longer: 50 ms.
  EXPECT_LT(result.cpu_ns, 500'000'000u);
}

TEST(Plan, SharedCoreSpinsBrieflyAndYieldsForSomeTenthsOfAMillisecond) {
  const WaitPlan plan = plan_waiting(WaitPolicy::automatic, true, 0);
  EXPECT_EQ(plan.yield_ns, 300'000u);
  EXPECT_EQ(plan.spin_ns, 0u);
  EXPECT_GE(plan.pauses_per_check, 1u);
  EXPECT_LE(plan.pauses_per_check, 100u);
  std::uint64_t best = kForeverNs;
  for (int i = 0; i < 20; ++i) {
    const Awake result = awake(plan);
    EXPECT_TRUE(result.slept);
    EXPECT_GE(result.ns, 300'000u);
    // The processor's time: each yield may give it to others for milliseconds.
    best = std::min(best, result.cpu_ns);
  }
  EXPECT_LT(best, 900'000u);
}

TEST(Plan, ForcedPoliciesNeverSleepButReport) {
  for (const WaitPolicy policy : {WaitPolicy::spin, WaitPolicy::yield}) {
    for (const bool oversubscribed : {false, true}) {
      const Awake result = awake(plan_waiting(policy, oversubscribed, 0), 20'000'000);
      EXPECT_FALSE(result.slept);
      EXPECT_GE(result.ns, 20'000'000u);
      EXPECT_GE(result.reports, 1);
    }
  }
  const Awake result = awake(plan_waiting(WaitPolicy::sleep, false, 0));
  EXPECT_TRUE(result.slept);
  EXPECT_LT(result.cpu_ns, 500'000'000u);
}

TEST(Plan, TheUsersSpinTimeIsKept) {
  const Awake result = awake(plan_waiting(WaitPolicy::automatic, true, 5'000'000));
  EXPECT_TRUE(result.slept);
  EXPECT_GE(result.ns, 5'000'000u);
}

TEST(Registration, DoesNotStallAProcessWithThreads) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop.load(std::memory_order_relaxed)) usleep(100);
    });
    const bool late = register_expedited_barrier();
    stop.store(true, std::memory_order_relaxed);
    other.join();
    _exit(late ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace od::node
