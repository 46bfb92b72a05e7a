// Joins nodes of forked processes under friendly and hostile conditions.
#include "node/node.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>

#include "base/test_emulator.h"
#include "node/forked_job.h"

namespace od::node {
namespace {

using Prepare = std::function<bool(int rank)>;
constexpr int kSkipped = ForkedJob::kImpossible;

// Exit codes of a rank; each names what was wrong.
enum Outcome { kFine = 0, kWrongSize = 10, kWrongMember, kNotShared, kTooSlow, kLeak, kAsymmetric };

std::size_t mark_of(const Node& node, int writer) {
  return node.layout().pool_offset + static_cast<std::size_t>(writer) * sizeof(std::uint64_t);
}

// Every member writes a word into every region; afterwards all words must be there.
int check_sharing(const Node& node, const Exchange& exchange) {
  for (int i = 0; i < node.size(); ++i) {
    const Member& member = node.member(i);
    if (member.base == nullptr || node.index_of(member.world_rank) != i) return kWrongMember;
    const std::uint64_t word = static_cast<std::uint64_t>(node.my_index()) * 1000 + i + 1;
    std::memcpy(member.base + mark_of(node, node.my_index()), &word, sizeof word);
  }
  exchange.barrier();
  for (int i = 0; i < node.size(); ++i) {
    for (int writer = 0; writer < node.size(); ++writer) {
      std::uint64_t word = 0;
      std::memcpy(&word, node.member(i).base + mark_of(node, writer), sizeof word);
      if (word != static_cast<std::uint64_t>(writer) * 1000 + i + 1) return kNotShared;
    }
  }
  return kFine;
}

// All ranks must see the same members.
int check_symmetry(const Node& node, const Exchange& exchange) {
  std::vector<std::int32_t> mine(static_cast<std::size_t>(exchange.size));
  for (int rank = 0; rank < exchange.size; ++rank) {
    mine[static_cast<std::size_t>(rank)] = node.index_of(rank) >= 0 ? 1 : 0;
  }
  std::vector<std::int32_t> all(mine.size() * mine.size());
  exchange.allgather(mine.data(), all.data(), mine.size() * sizeof(std::int32_t));
  for (std::size_t a = 0; a < mine.size(); ++a) {
    for (std::size_t b = 0; b < mine.size(); ++b) {
      if (all[a * mine.size() + b] != all[b * mine.size() + a]) return kAsymmetric;
    }
  }
  return kFine;
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// Where /proc does not tell when a process has begun (in emulators), its end is seen by a
// descriptor.
int descriptors_of_members(const Node& node) {
  int count = 0;
  for (int i = 0; i < node.size(); ++i) count += node.member(i).pidfd >= 0 ? 1 : 0;
  return count;
}

// Joins after `prepare` and expects `expected(rank)` members.
std::vector<int> join_job(int ranks, const Prepare& prepare,
                          const std::function<int(int)>& expected,
                          const JoinOptions& options = {}) {
  return run_forked_job(ranks, [&](int rank, const Exchange& exchange) {
    if (!prepare(rank)) return kSkipped;
    const int before = open_descriptors();
    auto node = Node::join(exchange, options);
    if (open_descriptors() != before + descriptors_of_members(*node)) {
      return static_cast<int>(kLeak);
    }
    if (node->size() != expected(rank)) {
      std::fprintf(stderr, "rank %d: %d members: %s\n", rank, node->size(), node->why().c_str());
      return static_cast<int>(kWrongSize);
    }
    if (node->size() == 1 && node->why().empty()) return static_cast<int>(kWrongMember);
    const int shared = check_sharing(*node, exchange);
    const int symmetric = check_symmetry(*node, exchange);
    return shared != kFine ? shared : symmetric;
  });
}

// Where the survivors of a job wait for each other: nobody ends while another still looks whether
// he lives. Made before the job.
class LastLook {
 public:
  explicit LastLook(int survivors) : survivors_(survivors) {
    void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    looked_ = new (memory) std::atomic<int>{0};
  }
  ~LastLook() { munmap(looked_, sizeof(std::atomic<int>)); }
  LastLook(const LastLook&) = delete;
  LastLook& operator=(const LastLook&) = delete;

  void taken() const {
    // Relaxed: nothing but the number is handed on.
    looked_->fetch_add(1, std::memory_order_relaxed);
    while (looked_->load(std::memory_order_relaxed) < survivors_) usleep(1000);
  }

 private:
  int survivors_;
  std::atomic<int>* looked_;
};

// Waits until the parent of the job has seen the end of a rank; the job's limit bounds it.
void wait_for_the_end_of(const Member& member) {
  while (kill(static_cast<pid_t>(member.pid), 0) == 0) usleep(1000);
}

bool anything(int) { return true; }

void expect_all_fine(const std::vector<int>& codes) {
  if (std::count(codes.begin(), codes.end(), kSkipped) > 0) GTEST_SKIP() << "not permitted here";
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    EXPECT_EQ(codes[rank], kFine) << "rank " << rank;
  }
}

// Makes system calls fail with an error for this process.
bool deny(std::initializer_list<unsigned> calls, unsigned error) {
  std::vector<sock_filter> filter;
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (const unsigned call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// False also where it has no effect: emulators say yes to a limit of the address space, which is
// theirs as well.
bool limit(decltype(RLIMIT_AS) resource, rlim_t value) {
  const rlimit both = {value, value};
  rlimit now = {};
  return setrlimit(resource, &both) == 0 && getrlimit(resource, &now) == 0 && now.rlim_cur == value;
}

bool become_nobody() {
  constexpr unsigned kNobody = 65534;
  if (geteuid() != 0) return true;
  return setresgid(kNobody, kNobody, kNobody) == 0 && setresuid(kNobody, kNobody, kNobody) == 0 &&
         prctl(PR_SET_DUMPABLE, 1) == 0;
}

// An emulator of user programs (qemu 7.2) keeps a record of every page that is mapped, 6 MiB for
// each GiB: for 64 ranks, each of which maps the regions of all, 25 GiB of memory.
int many_ranks() { return under_emulator() ? 16 : 64; }

TEST(Join, TwoEightAndSixtyFourRanks) {
  for (const int ranks : {1, 2, 8, many_ranks()}) {
    expect_all_fine(join_job(ranks, anything, [&](int) { return ranks; }));
  }
}

TEST(Join, SixtyFourRanksOfAnUnprivilegedUser) {
  // The kernel limits the descriptors that an unprivileged user has on their way.
  const auto ranks = static_cast<rlim_t>(many_ranks());
  expect_all_fine(join_job(
      many_ranks(), [&](int) { return become_nobody() && limit(RLIMIT_NOFILE, 4 * ranks); },
      [&](int) { return many_ranks(); }));
}

// The time is reported, not judged: other programs may use the processors.
TEST(Join, TwoRanksJoinAgainAndAgain) {
  double best = 1e9;
  for (int attempt = 0; attempt < 10; ++attempt) {
    double* time = static_cast<double*>(mmap(nullptr, 2 * sizeof(double), PROT_READ | PROT_WRITE,
                                             MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const std::vector<int> codes = run_forked_job(2, [&](int rank, const Exchange& exchange) {
      exchange.barrier();
      const double start = forked_job_seconds();
      auto node = Node::join(exchange, {});
      time[rank] = forked_job_seconds() - start;
      return node->size() == 2 ? 0 : 1;
    });
    expect_all_fine(codes);
    best = std::min(best, std::max(time[0], time[1]));
    munmap(time, 2 * sizeof(double));
  }
  RecordProperty("join_us", static_cast<int>(best * 1e6));
  std::printf("two ranks joined in %.0f us\n", best * 1e6);
}

TEST(Join, SwitchedOffRanksShareNothing) {
  JoinOptions options;
  options.disabled = true;
  expect_all_fine(join_job(
      3, anything, [](int) { return 1; }, options));
}

TEST(Join, RanksWithoutMemfdStayOutside) {
  expect_all_fine(join_job(
      4, [](int rank) { return rank != 2 || deny({SYS_memfd_create}, ENOSYS); },
      [](int rank) { return rank == 2 ? 1 : 3; }));
}

TEST(Join, WithoutSocketsThroughProc) {
  expect_all_fine(join_job(
      4, [](int) { return deny({SYS_socket}, EPERM); }, [](int) { return 4; }));
}

TEST(Join, OneRankWithoutSockets) {
  expect_all_fine(join_job(
      5, [](int rank) { return rank != 0 || deny({SYS_socket}, EPERM); }, [](int) { return 5; }));
}

TEST(Join, NeitherSocketsNorProc) {
  expect_all_fine(join_job(
      3,
      [](int rank) {
        return become_nobody() &&
               (rank != 1 || (prctl(PR_SET_DUMPABLE, 0) == 0 && deny({SYS_socket}, EPERM)));
      },
      [](int rank) { return geteuid() == 0 ? 3
                            : rank == 1    ? 1
                                           : 2; }));
}

// A root process that has given up its privileges: it can no longer look into every process.
bool drop_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  return geteuid() == 0 && syscall(SYS_capset, &header, none) == 0 &&
         prctl(PR_SET_DUMPABLE, 1) == 0;
}

TEST(Join, WhoOnlySomeCanMapLeavesForAll) {
  expect_all_fine(join_job(
      4,
      [](int rank) {
        if (rank == 1) return drop_capabilities();
        return rank != 2 || (prctl(PR_SET_DUMPABLE, 0) == 0 && deny({SYS_socket}, EPERM));
      },
      [](int rank) { return rank == 2 ? 1 : 3; }));
}

TEST(Join, FewDescriptors) {
  expect_all_fine(join_job(
      16, [](int) { return limit(RLIMIT_NOFILE, 24); }, [](int) { return 16; }));
}

TEST(Join, LimitedAddressSpaceShrinksTheBuffers) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes of addresses";
#endif
  const auto codes = run_forked_job(4, [](int rank, const Exchange& exchange) {
    if (rank == 1 && !limit(RLIMIT_AS, 1u << 30)) return kSkipped;
    auto node = Node::join(exchange, {});
    if (node->size() != 4) return static_cast<int>(kWrongSize);
    // All regions together take a sixteenth of what is left.
    if (node->layout().total_bytes > (16u << 20) || node->layout().total_bytes < (8u << 20) ||
        node->layout().buffers_bytes < (1u << 20)) {
      return static_cast<int>(kWrongMember);
    }
    return check_sharing(*node, exchange);
  });
  expect_all_fine(codes);
}

TEST(Join, VeryLimitedAddressSpaceGivesAsMuchAsIsNeeded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve terabytes of addresses";
#endif
  const auto codes = run_forked_job(8, [](int rank, const Exchange& exchange) {
    // A sixteenth would be 16 MiB for eight regions, which is too little.
    if (rank == 1 && !limit(RLIMIT_AS, 256u << 20)) return kSkipped;
    auto node = Node::join(exchange, {});
    if (node->size() != 8) return static_cast<int>(kWrongSize);
    if (node->layout().total_bytes > (16u << 20)) return static_cast<int>(kWrongMember);
    return check_sharing(*node, exchange);
  });
  expect_all_fine(codes);
}

TEST(Join, LimitedFileSizeShrinksTheBuffersWithoutASignal) {
  for (const rlim_t bytes : {rlim_t{16} << 20, rlim_t{3} << 20}) {
    const auto codes = run_forked_job(2, [&](int, const Exchange& exchange) {
      if (!limit(RLIMIT_FSIZE, bytes)) return kSkipped;
      auto node = Node::join(exchange, {});
      if (node->size() != 2) return static_cast<int>(kWrongSize);
      if (node->layout().total_bytes > bytes) return static_cast<int>(kWrongMember);
      return check_sharing(*node, exchange);
    });
    expect_all_fine(codes);
  }
}

TEST(Join, TooSmallALimitMeansNoSharing) {
  expect_all_fine(join_job(
      2, [](int) { return limit(RLIMIT_FSIZE, 100000); }, [](int) { return 1; }));
}

TEST(Join, AnotherUserIsAnotherNode) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  expect_all_fine(join_job(
      4, [](int rank) { return rank != 3 || become_nobody(); },
      [](int rank) { return rank == 3 ? 1 : 3; }));
}

TEST(Join, AnotherNetworkNamespaceIsAnotherNode) {
  expect_all_fine(join_job(
      4, [](int rank) { return rank < 2 || unshare(CLONE_NEWNET) == 0; },
      [](int rank) { return rank < 2 ? 2 : 1; }));
}

TEST(Join, AnotherUserNamespaceStaysOutsideOrJoinsButNeverHangs) {
  const auto codes = run_forked_job(3, [](int rank, const Exchange& exchange) {
    if (rank == 1 && unshare(CLONE_NEWUSER) != 0) return kSkipped;
    auto node = Node::join(exchange, {});
    const int shared = check_sharing(*node, exchange);
    return shared != kFine ? shared : check_symmetry(*node, exchange);
  });
  expect_all_fine(codes);
}

// Runs the rest of a rank in a child that is the first process of a new pid namespace.
bool enter_pid_namespace() {
  if (unshare(CLONE_NEWPID) != 0) return false;
  const pid_t child = fork();
  if (child == 0) return true;
  int status = 0;
  waitpid(child, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

TEST(Join, OtherPidNamespacesJoinThroughSockets) {
  const LastLook last_look(3);
  const auto codes = run_forked_job(4, [&](int rank, const Exchange& exchange) {
    if (rank >= 2 && !enter_pid_namespace()) return kSkipped;
    auto node = Node::join(exchange, {});
    if (node->size() != 4) return static_cast<int>(kWrongSize);
    for (int i = 0; i < 4; ++i) {
      const bool same = i == rank || (i < 2 && rank < 2);
      if (!same && node->member(i).pidfd < 0) return static_cast<int>(kWrongMember);
    }
    const int shared = check_sharing(*node, exchange);
    if (shared != kFine) return shared;
    if (rank == 3) _exit(kFine);  // the first process of a namespace cannot kill itself
    while (!node->dead(3)) usleep(1000);
    const bool other_dead = node->dead(rank == 2 ? 0 : 2);
    last_look.taken();
    return static_cast<int>(other_dead ? kWrongMember : kFine);
  });
  if (std::count(codes.begin(), codes.end(), kSkipped) > 0) GTEST_SKIP() << "not permitted here";
  EXPECT_EQ(codes[0], kFine);
  EXPECT_EQ(codes[1], kFine);
  EXPECT_EQ(codes[2], kFine);
}

TEST(Join, OtherVersionsDoNotShare) {
  const auto codes = run_forked_job(4, [](int rank, const Exchange& exchange) {
    JoinOptions options;
    if (rank % 2 == 1) ++options.version;
    auto node = Node::join(exchange, options);
    if (node->size() != 2 || node->index_of(rank) < 0 || node->index_of((rank + 2) % 4) < 0) {
      return static_cast<int>(kWrongSize);
    }
    return check_symmetry(*node, exchange);
  });
  expect_all_fine(codes);
}

TEST(Liveness, AKilledPeerIsSeenAtOnce) {
  const LastLook last_look(2);
  const auto codes = run_forked_job(3, [&](int rank, const Exchange& exchange) {
    auto node = Node::join(exchange, {});
    if (node->size() != 3) return static_cast<int>(kWrongSize);
    for (int i = 0; i < 3; ++i) {
      if (node->dead(i)) return static_cast<int>(kWrongMember);
    }
    exchange.barrier();
    if (rank == 1) raise(SIGKILL);
    wait_for_the_end_of(node->member(1));
    const bool seen = node->dead(1);
    const bool other_dead = node->dead(2 - rank);
    last_look.taken();
    if (!seen) return static_cast<int>(kTooSlow);
    return static_cast<int>(other_dead ? kWrongMember : kFine);
  });
  EXPECT_EQ(codes[0], kFine);
  EXPECT_EQ(codes[1], 128 + SIGKILL);
  EXPECT_EQ(codes[2], kFine);
}

TEST(Liveness, WhoLeavesInOrderIsNotDead) {
  const auto codes = run_forked_job(2, [](int rank, const Exchange& exchange) {
    auto node = Node::join(exchange, {});
    if (node->size() != 2) return static_cast<int>(kWrongSize);
    if (rank == 1) {
      node->member(1).header->phase.store(static_cast<std::uint32_t>(RankPhase::left),
                                          std::memory_order_release);
      return static_cast<int>(kFine);
    }
    wait_for_the_end_of(node->member(1));
    return static_cast<int>(node->dead(1) ? kWrongMember : kFine);
  });
  expect_all_fine(codes);
}

TEST(Separation, NamesPairsOrAll) {
  const auto codes = run_forked_job(4, [](int rank, const Exchange& exchange) {
    JoinOptions options;
    options.test_remote = "1-0,2-3";
    auto node = Node::join(exchange, options);
    if (node->size() != 4) return static_cast<int>(kWrongSize);
    if (!node->separated(0, 1) || !node->separated(1, 0) || !node->separated(3, 2) ||
        node->separated(0, 2) || node->separated(1, 1)) {
      return static_cast<int>(kWrongMember);
    }
    if (node->local(rank ^ 1) || !node->local(rank) || !node->local(rank ^ 2)) {
      return static_cast<int>(kWrongMember);
    }
    options.test_remote = "all";
    auto apart = Node::join(exchange, options);
    if (!apart->separated(0, 3) || apart->separated(2, 2)) return static_cast<int>(kWrongMember);
    options.test_remote = "1-";
    auto nonsense = Node::join(exchange, options);
    const bool said = nonsense->why().find("1-") != std::string::npos;
    return static_cast<int>(said && !nonsense->separated(0, 1) ? kFine : kWrongMember);
  });
  expect_all_fine(codes);
}

TEST(Memory, PunchedPagesReadAsZeroAndAreReturned) {
  if (under_emulator()) GTEST_SKIP() << "an emulator says yes to every advice";
  const auto codes = run_forked_job(2, [](int rank, const Exchange& exchange) {
    auto node = Node::join(exchange, {});
    if (node->size() != 2) return static_cast<int>(kWrongSize);
    const std::uint64_t offset = node->layout().buffers_offset;
    std::byte* const zero = node->member(0).base + offset;
    if (rank == 0) std::memset(zero, 1, 16 * kPageBytes);
    exchange.barrier();
    if (rank == 0) node->punch(offset + 1, 15 * kPageBytes);
    exchange.barrier();
    // Whole pages only: the first is not whole, the last is not in the range.
    const bool right = zero[0] == std::byte{1} && zero[kPageBytes - 1] == std::byte{1} &&
                       zero[kPageBytes] == std::byte{0} &&
                       zero[15 * kPageBytes - 1] == std::byte{0} &&
                       zero[15 * kPageBytes] == std::byte{1};
    node->punch(node->layout().total_bytes, kPageBytes);
    node->punch(~std::uint64_t{0} - 5, 10);
    return static_cast<int>(right ? kFine : kNotShared);
  });
  expect_all_fine(codes);
}

}  // namespace
}  // namespace od::node
