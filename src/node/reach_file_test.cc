// Tests of handing over reach files: forked jobs whose ranks read and write each other's buffers.
#include "node/reach_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/test_emulator.h"
#include "node/forked_job.h"

namespace od::node {
namespace {

constexpr std::uint64_t kFileBytes = 16 << 20;

ReachFile make_file(std::uint64_t bytes = kFileBytes, bool seal = true) {
  ReachFile file;
  file.fd = static_cast<int>(syscall(SYS_memfd_create, "test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  file.bytes = bytes;
  if (ftruncate(file.fd, static_cast<off_t>(bytes)) != 0) return {};
  if (seal) fcntl(file.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  file.start =
      static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0));
  return file;
}

JoinOptions sharing(const ReachFile& file) {
  JoinOptions options;
  options.region.buffers_bytes = 1 << 20;
  options.reach = file;
  return options;
}

#define OD_REQUIRE(condition) \
  if (!(condition)) return __LINE__ % 200 + 10

// Every rank writes into everybody's file and reads what the others wrote into its own.
int write_to_all(int rank, const Exchange& exchange) {
  const ReachFile own = make_file();
  const auto node = Node::join(exchange, sharing(own));
  OD_REQUIRE(node->size() == exchange.size);
  for (int i = 0; i < node->size(); ++i) {
    const Member& member = node->member(i);
    OD_REQUIRE(member.reach != nullptr && member.reach_bytes == kFileBytes);
    OD_REQUIRE(member.reaches_us || i == node->my_index());
    member.reach[kFileBytes - 100 + static_cast<std::uint64_t>(rank)] =
        static_cast<std::byte>(rank + 1);
  }
  exchange.barrier();
  for (int i = 0; i < exchange.size; ++i) {
    OD_REQUIRE(own.start[kFileBytes - 100 + static_cast<std::uint64_t>(i)] ==
               static_cast<std::byte>(i + 1));
  }
  return 0;
}

TEST(ReachFiles, AreMappedByAll) {
  EXPECT_EQ(run_forked_job(4, write_to_all), std::vector<int>(4, 0));
}

TEST(ReachFiles, RanksWithoutOneAreReachedOtherwise) {
  const auto codes = run_forked_job(3, [](int rank, const Exchange& exchange) {
    const auto node = Node::join(exchange, sharing(rank == 1 ? ReachFile{} : make_file()));
    OD_REQUIRE(node->size() == 3);
    for (int i = 0; i < 3; ++i) {
      OD_REQUIRE((node->member(i).reach == nullptr) == (i == 1));
      OD_REQUIRE(node->member(i).reaches_us == (i != rank && rank != 1));
    }
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(3, 0));
}

TEST(ReachFiles, OnesThatCouldShrinkAreRefused) {
  const auto codes = run_forked_job(2, [](int rank, const Exchange& exchange) {
    const auto node = Node::join(exchange, sharing(make_file(kFileBytes, rank != 0)));
    OD_REQUIRE(node->size() == 2);
    OD_REQUIRE((node->member(0).reach == nullptr) == (rank == 1));
    OD_REQUIRE(node->member(1).reach != nullptr);
    OD_REQUIRE(node->member(1 - rank).reaches_us == (rank == 1));
    if (rank == 1) OD_REQUIRE(node->reach_why().find("sealed") != std::string::npos);
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

TEST(ReachFiles, WhatDoesNotFitTheAddressSpaceIsNotMapped) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than the limit leaves";
#endif
  if (under_emulator()) GTEST_SKIP() << "an emulator says yes to a limit that does not hold";
  const auto codes = run_forked_job(2, [](int rank, const Exchange& exchange) {
    const ReachFile own = make_file(std::uint64_t{8} << 30);
    OD_REQUIRE(own.start != MAP_FAILED);
    if (rank == 0) {
      const rlimit limit = {std::uint64_t{12} << 30, RLIM_INFINITY};
      OD_REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    }
    const auto node = Node::join(exchange, sharing(own));
    OD_REQUIRE(node->size() == 2);
    OD_REQUIRE((node->member(1 - rank).reach == nullptr) == (rank == 0));
    OD_REQUIRE(node->member(1 - rank).reaches_us == (rank == 0));
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

TEST(ReachFiles, AForeignFileIsNotTaken) {
  ReachFile file = make_file();
  const std::uint64_t nonce[2] = {1, 2};
  const std::uint64_t other[2] = {1, 3};
  std::string why;
  EXPECT_EQ(map_reach_file(file.fd, kFileBytes, nonce, &why), nullptr) << "without a header";
  write_reach_header(file, nonce);
  std::byte* mapped = map_reach_file(file.fd, kFileBytes, nonce, &why);
  EXPECT_NE(mapped, nullptr) << why;
  unmap_reach_file(mapped, kFileBytes);
  EXPECT_EQ(map_reach_file(file.fd, kFileBytes, other, &why), nullptr);
  EXPECT_NE(why.find("not that of the peer"), std::string::npos);
  EXPECT_EQ(map_reach_file(file.fd, kFileBytes + 4096, nonce, &why), nullptr);
  EXPECT_EQ(map_reach_file(STDIN_FILENO, kFileBytes, nonce, &why), nullptr);
}

// Address spaces are numbers here: rank r offers 100 + r, and opening gives 1000 more, if the nonce
// that came along is that of the region's owner.
struct FakeSpaces {
  static inline std::uint64_t proof[2];
  static inline int refused_rank = -1;
  static inline int closed = 0;
  static inline std::uint64_t seen_nonce[2][2];

  static std::int64_t open(std::int64_t id, std::uint64_t place, const std::uint64_t* nonce) {
    if (place != reinterpret_cast<std::uintptr_t>(proof)) return 0;  // forked: equal in all
    if (id == 100 + refused_rank) return 0;
    std::memcpy(seen_nonce[id - 100], nonce, sizeof seen_nonce[0]);
    return id + 1000;
  }
  static void close(std::int64_t) { ++closed; }
  static SpaceOffer offer(int rank) {
    return {.id = 100 + rank, .proof = proof, .open = open, .close = close};
  }
};

TEST(AddressSpaces, AreOpenedAndOwnersKnow) {
  const auto codes = run_forked_job(2, [](int rank, const Exchange& exchange) {
    JoinOptions options = sharing({});
    options.space = FakeSpaces::offer(rank);
    const auto node = Node::join(exchange, options);
    OD_REQUIRE(node->size() == 2);
    const Member& peer = node->member(1 - rank);
    OD_REQUIRE(peer.space == 1101 - rank && peer.opens_us);
    OD_REQUIRE(node->member(rank).space == 0 && !node->member(rank).opens_us);
    OD_REQUIRE(std::memcmp(FakeSpaces::seen_nonce[1 - rank], peer.header->nonce, 16) == 0);
    OD_REQUIRE(std::memcmp(FakeSpaces::proof, node->member(rank).header->nonce, 16) == 0);
    OD_REQUIRE(FakeSpaces::closed == 0);
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

TEST(AddressSpaces, OneSideAlone) {
  const auto codes = run_forked_job(2, [](int rank, const Exchange& exchange) {
    JoinOptions options = sharing({});
    options.space = FakeSpaces::offer(rank);
    if (rank == 0) FakeSpaces::refused_rank = 1;
    const auto node = Node::join(exchange, options);
    OD_REQUIRE(node->size() == 2);
    OD_REQUIRE(node->member(1 - rank).space == (rank == 0 ? 0 : 1100));
    OD_REQUIRE(node->member(1 - rank).opens_us == (rank == 0));
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

TEST(AddressSpaces, WhoOffersNoneIsNotOpenedAndOpensNobodys) {
  const auto codes = run_forked_job(2, [](int rank, const Exchange& exchange) {
    JoinOptions options = sharing({});
    if (rank == 1) options.space = FakeSpaces::offer(rank);
    const auto node = Node::join(exchange, options);
    OD_REQUIRE(node->size() == 2);
    OD_REQUIRE(node->member(1 - rank).space == 0 && !node->member(1 - rank).opens_us);
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

TEST(AddressSpaces, OfRanksThatStayAloneAreClosed) {
  const auto codes = run_forked_job(2, [](int rank, const Exchange& exchange) {
    JoinOptions options = sharing({});
    options.space = FakeSpaces::offer(rank);
    options.version = kRegionVersion + static_cast<std::uint32_t>(rank);
    const auto node = Node::join(exchange, options);
    OD_REQUIRE(node->size() == 1);
    OD_REQUIRE(node->member(0).space == 0 && FakeSpaces::closed == 0);
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(2, 0));
}

}  // namespace
}  // namespace od::node
