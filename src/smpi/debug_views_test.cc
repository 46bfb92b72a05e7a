// Tests of watched views where the kernel does not help: whoever debugs is told that nothing is
// watched, and the message can be read all the same. Misuse that is caught: service_test.cc.
#include "smpi/debug_views.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "node/forked_job.h"

namespace od::smpi {
namespace {

#define OD_REQUIRE(condition)                                               \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      return 1;                                                             \
    }                                                                       \
  } while (false)

// From now on this process cannot map pages a second time; false where that cannot be had.
bool refuse_second_mappings() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(filter), filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  void* const page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return mremap(page, 0, 4096, MREMAP_MAYMOVE) == MAP_FAILED;
}

int cannot_watch(int, const node::Exchange&) {
  if (!refuse_second_mappings()) return node::ForkedJob::kImpossible;
  const int said = static_cast<int>(syscall(SYS_memfd_create, "said", 0));
  OD_REQUIRE(said >= 0 && dup2(said, STDERR_FILENO) == STDERR_FILENO);
  auto* const page = static_cast<std::byte*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  DebugViews views(0);
  std::uint64_t view = 0;
  for (int i = 0; i < 3; ++i) {
    OD_REQUIRE(views.open(page, 100, 1, "program.c:20", &view) == nullptr);
    OD_REQUIRE(view == 0);
    views.close(view);
  }
  OD_REQUIRE(views.report_open() == 0);
  std::string text(4096, '\0');
  const ssize_t bytes = pread(said, text.data(), text.size(), 0);
  OD_REQUIRE(bytes > 0);
  text.resize(static_cast<std::size_t>(bytes));
  OD_REQUIRE(text.find("a view cannot be watched") != std::string::npos);
  OD_REQUIRE(text.find('\n') == text.size() - 1);  // once
  return 0;
}

TEST(DebugViews, SaysOnceThatViewsAreNotWatched) {
  const std::vector<int> codes = node::run_forked_job(1, cannot_watch);
  if (codes[0] == node::ForkedJob::kImpossible) GTEST_SKIP() << "no system call can be refused";
  EXPECT_EQ(codes[0], 0);
}

}  // namespace
}  // namespace od::smpi
