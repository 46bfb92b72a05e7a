// The calls of libxpmem between real processes, over the stand-in of tests/memory/xpmem: exposing,
// opening with proof, attaching, what is refused, what ends with whom.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "memory/space.h"
#include "memory/test_stand_in.h"
#include "node/forked_job.h"

namespace od::memory {
namespace {

using node::Exchange;
using node::run_forked_job;

constexpr std::uint64_t kNonce[2] = {0x1234567890abcdef, 42};

#define REQUIRE(condition)                                                                         \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, exchange.rank, #condition); \
      std::_Exit(1);                                                                               \
    }                                                                                              \
  } while (false)

// What one rank tells the other.
struct Told {
  std::int64_t id;
  std::uint64_t proof;
  std::uint64_t address;
};

Told exchange_told(const Exchange& exchange, const void* memory) {
  const OwnSpace& own = own_space();
  Told mine = {own.id, reinterpret_cast<std::uintptr_t>(own.proof),
               reinterpret_cast<std::uintptr_t>(memory)};
  if (own.proof != nullptr) std::memcpy(own.proof, kNonce, sizeof kNonce);
  Told all[2];
  exchange.allgather(&mine, all, sizeof mine);
  return all[1 - exchange.rank];
}

class XpmemTest : public StandInTest {
 protected:
  static void expect_success(const std::vector<int>& codes) {
    for (const int code : codes) EXPECT_EQ(code, 0);
  }
};

TEST_F(XpmemTest, BothSidesSeeEachOthersStores) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    begin_space(true);
    REQUIRE(own_space().id > 0 && space_why().empty());
    constexpr std::size_t kBytes = 10000;
    auto* const memory = new unsigned char[kBytes];
    std::memset(memory, 'a' + me, kBytes);
    const Told peer = exchange_told(exchange, memory);
    const std::int64_t handle = open_space(peer.id, peer.proof, kNonce);
    REQUIRE(handle > 0);
    // A window far larger than what is there.
    const std::uint64_t start = peer.address >> 26 << 26;
    std::byte* const window = own_space().calls->attach(handle, start, 2u << 26);
    REQUIRE(window != nullptr);
    auto* const theirs = reinterpret_cast<unsigned char*>(window + (peer.address - start));
    for (std::size_t i = 0; i < kBytes; ++i) REQUIRE(theirs[i] == 'b' - me);
    exchange.barrier();
    memory[5000] = 7;
    theirs[6000] = 8;
    exchange.barrier();
    REQUIRE(theirs[5000] == 7 && memory[6000] == 8 && memory[6001] == 'a' + me);
    own_space().calls->detach(window);
    close_space(handle);
    exchange.barrier();
    end_space();
    REQUIRE(own_space().id == 0);
    exchange.barrier();
    return 0;
  }));
}

TEST_F(XpmemTest, AnotherNonceIsNotTheOwners) {
  expect_success(run_forked_job(2, [](int, const Exchange& exchange) {
    begin_space(true);
    const Told peer = exchange_told(exchange, nullptr);
    const std::uint64_t other[2] = {1, 2};
    REQUIRE(open_space(peer.id, peer.proof, other) == 0);
    REQUIRE(open_space(peer.id, peer.proof + 1, kNonce) == 0);
    REQUIRE(open_space(peer.id, kAddressLimit, kNonce) == 0);
    REQUIRE(open_space(peer.id + 1, peer.proof, kNonce) == 0);
    REQUIRE(open_space(0, peer.proof, kNonce) == 0);
    REQUIRE(open_space(peer.id, peer.proof, kNonce) > 0);
    exchange.barrier();
    return 0;
  }));
}

TEST_F(XpmemTest, AModuleThatDoesNotShowMemoryIsFoundOutBeforeItEndsAnybody) {
  setenv("XPMEM_STAND_IN", "lie", 1);
  expect_success(run_forked_job(2, [](int, const Exchange& exchange) {
    begin_space(true);
    const Told peer = exchange_told(exchange, nullptr);
    REQUIRE(open_space(peer.id, peer.proof, kNonce) == 0);
    exchange.barrier();
    return 0;
  }));
}

TEST_F(XpmemTest, WithoutTheDeviceNothingIsExposed) {
  setenv("XPMEM_STAND_IN", "missing", 1);
  expect_success(run_forked_job(1, [](int, const Exchange& exchange) {
    begin_space(true);
    REQUIRE(own_space().id == 0 && own_space().calls == nullptr);
    if (access("/dev/xpmem", F_OK) != 0) REQUIRE(space_why() == "no /dev/xpmem");
    REQUIRE(space_place(&kNonce, sizeof kNonce) == kUnreachable);
    end_space();
    begin_space(false);
    REQUIRE(space_why() == "switched off");
    return 0;
  }));
}

// As under an emulator of user programs: madvise says yes and does nothing.
bool ignore_advice() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof filter / sizeof *filter, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(XpmemTest, WhereAdviceIsNotJudgedNothingIsExposed) {
  const std::vector<int> codes = run_forked_job(1, [](int, const Exchange& exchange) {
    if (!ignore_advice()) return node::ForkedJob::kImpossible;
    begin_space(true);
    REQUIRE(own_space().id == 0 && own_space().calls == nullptr);
    REQUIRE(space_why().starts_with("an emulator answers for the kernel"));
    REQUIRE(space_place(&kNonce, sizeof kNonce) == kUnreachable);
    return 0;
  });
  if (codes[0] == node::ForkedJob::kImpossible) GTEST_SKIP() << "no filters of system calls here";
  expect_success(codes);
}

TEST_F(XpmemTest, OnlyMemoryThatTheKernelWouldAttachHasAPlace) {
  expect_success(run_forked_job(1, [](int, const Exchange& exchange) {
    begin_space(true);
    constexpr std::size_t kPage = 4096;
    auto* const memory = static_cast<char*>(
        mmap(nullptr, 8 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory != MAP_FAILED);
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    REQUIRE(space_place(memory, 8 * kPage) == (kAddressMark | address));
    REQUIRE(is_address(space_place(memory + 5, 100)));
    REQUIRE(address_of(space_place(memory + 5, 100)) == address + 5);
    REQUIRE(space_place(memory, 0) == kUnreachable);
    mprotect(memory + 2 * kPage, kPage, PROT_READ);
    mprotect(memory + 4 * kPage, kPage, PROT_NONE);
    munmap(memory + 6 * kPage, kPage);
    errno = 5;
    for (const std::size_t page : {2, 4, 6}) {
      REQUIRE(space_place(memory + page * kPage, 1) == kUnreachable);
      REQUIRE(space_place(memory + (page - 1) * kPage, kPage + 1) == kUnreachable);
      REQUIRE(space_place(memory + (page - 1) * kPage, kPage) != kUnreachable);
    }
    REQUIRE(errno == 5);
    REQUIRE(space_place(reinterpret_cast<const void*>(~std::uintptr_t{0} - 10), 5) == kUnreachable);
    // Beyond the end of a file every access is a signal.
    const int file = memfd_create("test", 0);
    REQUIRE(file >= 0 && ftruncate(file, kPage) == 0);
    auto* const mapped =
        static_cast<char*>(mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    REQUIRE(space_place(mapped, kPage) != kUnreachable);
    REQUIRE(space_place(mapped, kPage + 1) == kUnreachable);
    return 0;
  }));
}

TEST_F(XpmemTest, AForkedChildLeavesTheParentsSpaceAlone) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    begin_space(true);
    auto* const memory = new int(100 + me);
    const Told peer = exchange_told(exchange, memory);
    const std::int64_t handle = open_space(peer.id, peer.proof, kNonce);
    REQUIRE(handle > 0);
    exchange.barrier();
    const pid_t child = fork();
    if (child == 0) {
      close_space(handle);
      end_space();
      std::_Exit(own_space().id == 0 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    exchange.barrier();
    const std::uint64_t page = peer.address >> 12 << 12;
    std::byte* const window = own_space().calls->attach(handle, page, 4096);
    REQUIRE(window != nullptr);
    int value;
    std::memcpy(&value, window + (peer.address - page), sizeof value);
    REQUIRE(value == 101 - me);
    exchange.barrier();
    return 0;
  }));
}

TEST_F(XpmemTest, AfterItsOwnersEndAWindowIsOfNoUse) {
  const std::vector<int> codes = run_forked_job(2, [](int me, const Exchange& exchange) {
    begin_space(true);
    auto* const memory = static_cast<char*>(
        mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    const Told peer = exchange_told(exchange, memory);
    const std::int64_t handle = open_space(peer.id, peer.proof, kNonce);
    REQUIRE(handle > 0);
    std::byte* const window = own_space().calls->attach(handle, peer.address, 1 << 20);
    REQUIRE(window != nullptr);
    exchange.barrier();
    end_space();
    exchange.barrier();
    if (me == 0) return 0;
    REQUIRE(open_space(peer.id, peer.proof, kNonce) == 0);
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &usual, nullptr);
    return static_cast<int>(*reinterpret_cast<volatile char*>(window + 4096));
  });
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[1], 128 + SIGBUS);
}

}  // namespace
}  // namespace od::memory
