// Checks that ranks that are here find each other and know who is not, whoever that is.
#include "node/roll_call.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "node/forked_job.h"

namespace od::node {
namespace {

constexpr std::uint64_t kBuild = 7;
// Here everybody who comes has come.
constexpr std::uint64_t kAbsentNs = 50'000'000;

// Between jobs, and between runs of the tests at the same time.
std::uint64_t new_key() {
  static std::uint64_t count = 0;
  return (static_cast<std::uint64_t>(getpid()) << 20) + ++count;
}

struct SharedBoard {
  std::atomic<std::uint64_t> builds[16];
  static SharedBoard* make() {
    void* memory = mmap(nullptr, sizeof(SharedBoard), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (memory) SharedBoard{};
  }
};

class TestBoard : public Board {
 public:
  TestBoard(SharedBoard* shared, int rank, std::uint64_t build) : shared_(shared) {
    shared_->builds[rank].store(build, std::memory_order_relaxed);
  }
  bool usable() const override { return true; }
  std::optional<std::uint64_t> look_up(int rank) override {
    const std::uint64_t build = shared_->builds[rank].load(std::memory_order_relaxed);
    if (build == 0) return std::nullopt;
    return build;
  }

 private:
  SharedBoard* shared_;
};

LaunchView view_of(std::uint64_t key, int rank, int size, int ranks_per_node) {
  LaunchView view;
  view.known = true;
  view.rank = rank;
  view.size = size;
  view.local_rank = rank % ranks_per_node;
  view.local_size = ranks_per_node;
  view.job_key = key + static_cast<std::uint64_t>(rank / ranks_per_node) * 1'000'003;
  return view;
}

// One job of `size` ranks of which `absent` do not take part; `check` judges what the others found.
template <typename Check>
void expect_all(int size, int ranks_per_node, const std::vector<int>& absent, bool board,
                Check check) {
  const std::uint64_t key = new_key();
  SharedBoard* const shared = SharedBoard::make();
  const auto codes = run_forked_job(
      size,
      [&](int rank, const Exchange& exchange) {
        const bool here = std::find(absent.begin(), absent.end(), rank) == absent.end();
        RollCall call(view_of(key, rank, size, ranks_per_node), kBuild, "1.0", kAbsentNs);
        std::unique_ptr<TestBoard> own;
        if (here) {
          call.announce();
          if (board) own = std::make_unique<TestBoard>(shared, rank, kBuild);
        }
        exchange.barrier();  // the host's MPI_Init
        usleep(static_cast<useconds_t>(rank * 1000));
        Muster muster;
        if (here) muster = call.meet(rank, size, own.get());
        const bool right = !here || check(rank, muster);
        exchange.barrier();  // nobody ends while others look who is here
        return right ? 0 : 1;
      },
      20);
  EXPECT_EQ(codes, std::vector<int>(static_cast<std::size_t>(size), 0));
  munmap(shared, sizeof *shared);
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(RollCall, EverybodyIsHereAndExchanges) {
  expect_all(5, 5, {}, false, [](int rank, Muster& muster) {
    if (muster.attendance != Attendance::everybody || muster.star == nullptr) return false;
    std::vector<std::vector<int>> all(5, std::vector<int>(20'000));
    std::vector<int> received(5 * 20'000);
    const std::vector<int> mine(20'000, rank + 1);
    for (int round = 0; round < 3; ++round) {
      if (muster.star->allgather(mine.data(), received.data(), 80'000) != 0) return false;
      for (int i = 0; i < 5 * 20'000; ++i) {
        if (received[static_cast<std::size_t>(i)] != i / 20'000 + 1) return false;
      }
      if (muster.star->barrier() != 0) return false;
    }
    return true;
  });
}

TEST(RollCall, AFollowerThatIsMissingIsNamed) {
  expect_all(4, 4, {2}, false, [](int rank, Muster& muster) {
    return muster.attendance == Attendance::incomplete && muster.star == nullptr &&
           contains(muster.missing, "rank 2 on ") && muster.speaks == (rank == 0);
  });
}

TEST(RollCall, AMissingLeaderIsNamedByTheLowestOfTheOthers) {
  expect_all(4, 4, {0, 2}, false, [](int rank, Muster& muster) {
    return muster.attendance == Attendance::incomplete &&
           contains(muster.missing, "rank 0, rank 2 on ") && muster.speaks == (rank == 1);
  });
}

// A host that does not synchronise: rank 2 comes when the others have given it up.
TEST(RollCall, WhoComesTooLateWaitsForNobody) {
  const std::uint64_t key = new_key();
  const auto codes = run_forked_job(
      4,
      [&](int rank, const Exchange& exchange) {
        RollCall call(view_of(key, rank, 4, 4), kBuild, "1.0", kAbsentNs);
        Muster muster;
        if (rank != 2) {
          call.announce();
          muster = call.meet(rank, 4, nullptr);
        }
        exchange.barrier();
        if (rank == 2) {
          call.announce();
          muster = call.meet(rank, 4, nullptr);
        }
        exchange.barrier();
        return muster.attendance == Attendance::incomplete && muster.star == nullptr ? 0 : 1;
      },
      20);
  EXPECT_EQ(codes, std::vector<int>(4, 0));
}

TEST(RollCall, NodesLearnOfEachOtherFromTheBoard) {
  expect_all(6, 3, {}, true, [](int, Muster& muster) {
    return muster.attendance == Attendance::everybody && muster.star == nullptr;
  });
  for (const int absent : {0, 1, 3, 5}) {
    expect_all(6, 3, {absent}, true, [](int, Muster& muster) {
      return muster.attendance == Attendance::incomplete && !muster.missing.empty();
    });
  }
}

TEST(RollCall, WithoutABoardOtherNodesAreUnknown) {
  expect_all(4, 2, {}, false,
             [](int, Muster& muster) { return muster.attendance == Attendance::unknown; });
  expect_all(4, 2, {3}, false, [](int rank, Muster& muster) {
    return muster.attendance == (rank < 2 ? Attendance::unknown : Attendance::unspeakable);
  });
}

TEST(RollCall, AnotherBuildCountsAsMissing) {
  const std::uint64_t key = new_key();
  const auto codes = run_forked_job(
      3,
      [&](int rank, const Exchange& exchange) {
        RollCall call(view_of(key, rank, 3, 3), rank == 1 ? kBuild + 1 : kBuild,
                      rank == 1 ? "0.9" : "1.0");
        call.announce();
        exchange.barrier();
        const Muster muster = call.meet(rank, 3, nullptr);
        return muster.attendance == Attendance::incomplete && contains(muster.missing, "rank 1 ") &&
                       contains(muster.missing, "0.9")
                   ? 0
                   : 1;
      },
      20);
  EXPECT_EQ(codes, std::vector<int>(3, 0));
}

TEST(RollCall, FewDescriptorsAreEnough) {
  const std::uint64_t key = new_key();
  constexpr int kRanks = 12;
  const auto codes = run_forked_job(
      kRanks,
      [&](int rank, const Exchange& exchange) {
        rlimit limit = {10, 10};
        if (rank == 0) setrlimit(RLIMIT_NOFILE, &limit);
        RollCall call(view_of(key, rank, kRanks, kRanks), kBuild, "1.0");
        call.announce();
        exchange.barrier();
        const Muster muster = call.meet(rank, kRanks, nullptr);
        return muster.attendance == Attendance::everybody && muster.star == nullptr ? 0 : 1;
      },
      20);
  EXPECT_EQ(codes, std::vector<int>(kRanks, 0));
}

TEST(RollCall, AnEnvironmentThatDoesNotFitIsNoEvidence) {
  RollCall call(view_of(new_key(), 1, 4, 4), kBuild, "1.0");
  call.announce();
  EXPECT_EQ(call.meet(2, 4, nullptr).attendance, Attendance::unknown);
  EXPECT_EQ(call.meet(0, 1, nullptr).attendance, Attendance::everybody);
  RollCall blind(LaunchView{}, kBuild, "1.0");
  blind.announce();
  EXPECT_EQ(blind.meet(0, 2, nullptr).attendance, Attendance::unknown);
}

}  // namespace
}  // namespace od::node
