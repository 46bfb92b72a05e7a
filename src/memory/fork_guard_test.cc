// Checks that children of every kind know what they are, and that the parent is left alone.
#include "memory/fork_guard.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace od::memory {
namespace {

int calls = 0;
int order = 0;
void count() { ++calls; }
void remember_order() { order = calls; }

int exit_code_of(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST(ForkGuard, ChildrenAreToldOnceAndInOrder) {
  ASSERT_TRUE(ForkGuard::add(count));
  ASSERT_TRUE(ForkGuard::add(remember_order));
  ASSERT_TRUE(ForkGuard::add(count));  // again: no second call
  EXPECT_FALSE(ForkGuard::in_forked_child());
  const pid_t child = fork();
  if (child == 0) {
    if (calls != 1 || order != 1 || !ForkGuard::in_forked_child()) _exit(1);
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(calls == 2 && ForkGuard::in_forked_child() ? 0 : 1);
    _exit(exit_code_of(grandchild));
  }
  EXPECT_EQ(exit_code_of(child), 0);
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(ForkGuard::in_forked_child());
}

TEST(ForkGuard, ABareSystemCallIsRecognised) {
  ASSERT_TRUE(ForkGuard::add(count));
  const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) {
    syscall(SYS_exit_group, ForkGuard::in_forked_child() ? 0 : 1);
  }
  EXPECT_EQ(exit_code_of(static_cast<pid_t>(child)), 0);
  EXPECT_FALSE(ForkGuard::in_forked_child());
}

TEST(ForkGuard, RoomIsLimitedButNeverSilentlySo) {
  const pid_t child = fork();
  if (child == 0) {
    // Distinct functions, more than there is room for.
    const ForkGuard::InChild some[] = {
        [] { calls += 2; },  [] { calls += 3; },  [] { calls += 4; },  [] { calls += 5; },
        [] { calls += 6; },  [] { calls += 7; },  [] { calls += 8; },  [] { calls += 9; },
        [] { calls += 10; }, [] { calls += 11; }, [] { calls += 12; }, [] { calls += 13; },
        [] { calls += 14; }, [] { calls += 15; }, [] { calls += 16; }, [] { calls += 17; },
        [] { calls += 18; }};
    bool all = true;
    for (const ForkGuard::InChild handler : some) all = ForkGuard::add(handler) && all;
    _exit(all ? 1 : 0);
  }
  EXPECT_EQ(exit_code_of(child), 0);
}

}  // namespace
}  // namespace od::memory
