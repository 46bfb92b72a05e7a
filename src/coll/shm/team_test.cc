// Random collectives between forked processes: every way, several under way at once, random delays,
// sleeping ranks, buffers that others reach or do not.

#include "coll/shm/team.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/populate.h"
#include "base/test_emulator.h"
#include "coll/ops/kernels.h"
#include "coll/shm/test_team.h"

namespace od::coll::shm {
namespace {

using od::node::Exchange;
using od::node::run_forked_job;

void expect_success(const std::vector<int>& codes) {
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    EXPECT_EQ(codes[rank], 0) << "rank " << rank;
  }
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c15u) * 0xbf58476d1ce4e5b9u ^ c;
  x ^= x >> 29;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 32);
}

// x -> a x + b; joining such maps is associative and does not commute.
struct Map {
  std::uint64_t a, b;
  bool operator==(const Map&) const = default;
};
Map join(const Map& left, const Map& right) {
  return {left.a * right.a, left.a * right.b + left.b};
}
void join_maps(void* context, const void* left, void* inout, std::size_t count) {
  ++*static_cast<std::uint64_t*>(context);
  const auto* l = static_cast<const Map*>(left);
  auto* r = static_cast<Map*>(inout);
  REQUIRE(reinterpret_cast<std::uintptr_t>(left) % 8 == 0);
  for (std::size_t i = 0; i < count; ++i) r[i] = join(l[i], r[i]);
}

enum class Kind {
  barrier,
  bcast,
  reduce,
  allreduce,
  gather,
  gatherv,
  scatter,
  scatterv,
  allgather,
  allgatherv,
  alltoall,
  alltoallv,
  reduce_scatter,
  reduce_scatter_block,
  scan,
  exscan,
  count_of_kinds,
};

// Memory of a test's buffers: reachable, private, or now this and now that.
enum class Memory { reachable, unreachable, mixed };
class TestMemory {
 public:
  explicit TestMemory(Memory memory, unsigned seed) : memory_(memory), random_(seed) {
    // Reused from the start when it is full: nothing is freed singly.
    arena_ = memory::BumpArena::allocate(kArenaBytes);
    // Not written to: most of it is never used.
    private_ = std::make_unique_for_overwrite<std::byte[]>(kArenaBytes);
  }
  std::byte* allocate(std::uint64_t bytes) {
    const bool reachable =
        memory_ == Memory::reachable || (memory_ == Memory::mixed && random_() % 2 == 0);
    std::uint64_t& used = reachable ? arena_used_ : private_used_;
    const std::uint64_t aligned = (bytes + 64 + 15) / 16 * 16;
    REQUIRE(aligned <= kArenaBytes);
    if (used + aligned > kArenaBytes) {
      std::fprintf(stderr, "test memory is too small\n");
      std::_Exit(3);
    }
    auto* start = reachable ? reinterpret_cast<std::byte*>(arena_.data()) : private_.get();
    std::byte* result = start + used + 16;
    used += aligned;
    return result;
  }
  void forget() { arena_used_ = private_used_ = 0; }

 private:
  static constexpr std::uint64_t kArenaBytes = 96 << 20;
  Memory memory_;
  std::mt19937 random_;
  std::span<unsigned char> arena_;
  std::unique_ptr<std::byte[]> private_;
  std::uint64_t arena_used_ = 0;
  std::uint64_t private_used_ = 0;
};

// A collective of the plan with its buffers on this rank.
class Case {
 public:
  Case(std::mt19937& random, int ranks, int me, std::uint64_t number, std::uint64_t most_bytes,
       bool long_reductions)
      : ranks_(ranks), me_(me), number_(number) {
    kind_ = static_cast<Kind>(random() % static_cast<unsigned>(Kind::count_of_kinds));
    if (long_reductions && random() % 2 == 0) {
      kind_ = random() % 2 == 0 ? Kind::reduce : Kind::allreduce;
    }
    root_ = static_cast<int>(random() % static_cast<unsigned>(ranks));
    in_place_ = random() % 3 == 0;
    maps_ = random() % 2 == 0;
    const auto scale = random() % 6;
    const std::uint64_t limit = scale == 0   ? 1
                                : scale == 1 ? 48
                                : scale == 2 ? 500
                                : scale == 3 ? 5000
                                : scale == 4 ? 50000
                                             : most_bytes;
    count_ = random() % (limit / unit() + 1) + (random() % 8 == 0 ? 0 : 1);
    for (int i = 0; i < ranks * ranks; ++i) {
      irregular_.push_back(random() % 4 == 0 ? 0 : random() % (limit / unit() + 1));
    }
  }

  // As sizes say, mostly; else each form in turn.
  ReductionForm form() const {
    const std::uint64_t turn = number_ % 9;
    return turn < 5 ? static_cast<ReductionForm>(turn) : ReductionForm::automatic;
  }
  std::uint64_t unit() const {
    return reduces() ? (maps_ ? sizeof(Map) : sizeof(std::int32_t)) : 1;
  }
  bool reduces() const {
    return kind_ == Kind::reduce || kind_ == Kind::allreduce || kind_ == Kind::reduce_scatter ||
           kind_ == Kind::reduce_scatter_block || kind_ == Kind::scan || kind_ == Kind::exscan;
  }

  void start(Team& team, TestMemory& memory) {
    Combiner combiner;
    if (maps_) {
      combiner.function = join_maps;
      combiner.context = &joins_;
      combiner.extent_bytes = sizeof(Map);
    } else {
      combiner.kernel = ops::find_kernel(ops::Op::sum, ops::Kind::int32);
      combiner.extent_bytes = sizeof(std::int32_t);
      combiner.commutative = true;
    }
    const std::uint64_t bytes = count_ * unit();
    const auto p = static_cast<std::uint64_t>(ranks_);
    switch (kind_) {
      case Kind::barrier:
        team.barrier(op_);
        break;
      case Kind::bcast:
        recv_ = make(memory, bytes);
        if (me_ == root_) fill(recv_, root_, 0, bytes);
        team.bcast(op_, root_, recv_, bytes);
        break;
      case Kind::reduce:
      case Kind::allreduce:
      case Kind::scan:
      case Kind::exscan: {
        recv_ = make(memory, bytes);
        send_ = make(memory, bytes);
        const bool in_place = in_place_ && (kind_ != Kind::reduce || me_ == root_);
        fill_elements(in_place ? recv_ : send_, me_, 0, count_);
        const void* send = in_place ? nullptr : send_;
        if (kind_ == Kind::reduce) {
          team.reduce(op_, root_, send, me_ == root_ ? recv_ : nullptr, count_, combiner, form());
        }
        if (kind_ == Kind::allreduce) {
          team.allreduce(op_, send, recv_, count_, combiner, form());
        }
        if (kind_ == Kind::scan) team.scan(op_, send, recv_, count_, combiner);
        if (kind_ == Kind::exscan) team.exscan(op_, send, recv_, count_, combiner);
        break;
      }
      case Kind::gather:
      case Kind::allgather: {
        send_ = make(memory, bytes);
        fill(send_, me_, 0, bytes);
        const bool has_recv = kind_ == Kind::allgather || me_ == root_;
        if (has_recv) recv_ = make(memory, bytes * p);
        blocks_ = Blocks{recv_, bytes, bytes * p, nullptr, nullptr};
        const bool in_place = in_place_ && has_recv;
        if (in_place) fill(recv_ + bytes * static_cast<std::uint64_t>(me_), me_, 0, bytes);
        const void* send = in_place ? nullptr : send_;
        if (kind_ == Kind::gather) {
          team.gather(op_, root_, send, bytes, blocks_);
        } else {
          team.allgather(op_, send, bytes, blocks_);
        }
        break;
      }
      case Kind::gatherv:
      case Kind::allgatherv: {
        arrays(sizes_, offsets_, [&](int i) { return irregular(i, 0); });
        const std::uint64_t mine = irregular(me_, 0);
        send_ = make(memory, mine);
        fill(send_, me_, 0, mine);
        const bool has_recv = kind_ == Kind::allgatherv || me_ == root_;
        if (has_recv) recv_ = make(memory, total_);
        blocks_ = Blocks{recv_, 0, 0, offsets_.data(), sizes_.data()};
        const bool in_place = in_place_ && has_recv;
        if (in_place) fill(blocks_.at(me_), me_, 0, mine);
        const void* send = in_place ? nullptr : send_;
        if (kind_ == Kind::gatherv) {
          team.gather(op_, root_, send, mine, has_recv ? blocks_ : Blocks{});
        } else {
          team.allgather(op_, send, mine, blocks_);
        }
        break;
      }
      case Kind::scatter:
        recv_ = make(memory, bytes);
        if (me_ == root_) {
          send_ = make(memory, bytes * p);
          for (int i = 0; i < ranks_; ++i) {
            fill(send_ + bytes * static_cast<std::uint64_t>(i), root_, i, bytes);
          }
          blocks_ = Blocks{send_, bytes, bytes * p, nullptr, nullptr};
        }
        team.scatter(op_, root_, blocks_, in_place_ && me_ == root_ ? nullptr : recv_, bytes);
        break;
      case Kind::scatterv: {
        const std::uint64_t mine = irregular(me_, 0);
        recv_ = make(memory, mine);
        if (me_ == root_) {
          arrays(sizes_, offsets_, [&](int i) { return irregular(i, 0); });
          send_ = make(memory, total_);
          blocks_ = Blocks{send_, 0, 0, offsets_.data(), sizes_.data()};
          for (int i = 0; i < ranks_; ++i) fill(blocks_.at(i), root_, i, blocks_.size(i));
        }
        team.scatter(op_, root_, blocks_, in_place_ && me_ == root_ ? nullptr : recv_, mine);
        break;
      }
      case Kind::alltoall: {
        recv_ = make(memory, bytes * p);
        send_ = in_place_ ? recv_ : make(memory, bytes * p);
        blocks_ = Blocks{recv_, bytes, bytes * p, nullptr, nullptr};
        Blocks send = blocks_;
        send.base = send_;
        for (int i = 0; i < ranks_; ++i) fill(send.at(i), me_, i, bytes);
        team.alltoall(op_, in_place_ ? Blocks{} : send, blocks_);
        break;
      }
      case Kind::alltoallv: {
        // In place: what goes to a rank is as long as what comes from it.
        const auto size = [&](int from, int to) {
          return in_place_ && from > to ? irregular(to, from) : irregular(from, to);
        };
        arrays(sizes_, offsets_, [&](int i) { return size(i, me_); });
        recv_ = make(memory, total_);
        blocks_ = Blocks{recv_, 0, 0, offsets_.data(), sizes_.data()};
        if (in_place_) {
          for (int i = 0; i < ranks_; ++i) fill(blocks_.at(i), me_, i, blocks_.size(i));
          team.alltoall(op_, {}, blocks_);
          break;
        }
        arrays(send_sizes_, send_offsets_, [&](int i) { return size(me_, i); });
        send_ = make(memory, total_);
        const Blocks send{send_, 0, 0, send_offsets_.data(), send_sizes_.data()};
        for (int i = 0; i < ranks_; ++i) fill(send.at(i), me_, i, send.size(i));
        team.alltoall(op_, send, blocks_);
        break;
      }
      case Kind::reduce_scatter:
      case Kind::reduce_scatter_block: {
        Blocks send;
        if (kind_ == Kind::reduce_scatter) {
          arrays(sizes_, offsets_, [&](int i) { return irregular(i, 0) * unit(); });
          send = Blocks{nullptr, 0, 0, offsets_.data(), sizes_.data()};
        } else {
          total_ = bytes * p;
          send = Blocks{nullptr, bytes, total_, nullptr, nullptr};
        }
        recv_ = make(memory, total_);
        send_ = make(memory, total_);
        fill_elements(in_place_ ? recv_ : send_, me_, 0, total_ / unit());
        blocks_ = send;
        if (!in_place_) send.base = send_;
        team.reduce_scatter(op_, send, recv_, combiner);
        break;
      }
      case Kind::count_of_kinds:
        break;
    }
  }

  // The program may change its input as soon as the operation is done.
  void spoil_input() {
    for (const auto& [start, size] : guards_) {
      if (start == send_ && send_ != recv_) std::memset(send_, 0xee, size);
    }
  }

  void check() {
    const std::uint64_t bytes = count_ * unit();
    const auto p = static_cast<std::uint64_t>(ranks_);
    switch (kind_) {
      case Kind::barrier:
      case Kind::count_of_kinds:
        break;
      case Kind::bcast:
        check_bytes(recv_, root_, 0, bytes);
        break;
      case Kind::reduce:
        if (me_ == root_) check_elements(recv_, 0, ranks_, 0, count_);
        break;
      case Kind::allreduce:
        check_elements(recv_, 0, ranks_, 0, count_);
        break;
      case Kind::scan:
        check_elements(recv_, 0, me_ + 1, 0, count_);
        break;
      case Kind::exscan:
        if (me_ > 0) check_elements(recv_, 0, me_, 0, count_);
        break;
      case Kind::gather:
      case Kind::gatherv:
        if (me_ != root_) break;
        [[fallthrough]];
      case Kind::allgather:
      case Kind::allgatherv:
        for (int i = 0; i < ranks_; ++i) check_bytes(blocks_.at(i), i, 0, blocks_.size(i));
        break;
      case Kind::scatter:
        if (!(in_place_ && me_ == root_)) check_bytes(recv_, root_, me_, bytes);
        break;
      case Kind::scatterv:
        if (!(in_place_ && me_ == root_)) check_bytes(recv_, root_, me_, irregular(me_, 0));
        break;
      case Kind::alltoall:
      case Kind::alltoallv:
        for (int i = 0; i < ranks_; ++i) check_bytes(blocks_.at(i), i, me_, blocks_.size(i));
        break;
      case Kind::reduce_scatter:
      case Kind::reduce_scatter_block:
        check_elements(recv_, 0, ranks_, blocks_.offset(me_) / unit(), blocks_.size(me_) / unit());
        break;
    }
    (void)p;
    // Nothing beyond the ends of the buffers.
    for (const auto& [start, size] : guards_) {
      for (std::uint64_t i = 0; i < 8; ++i) REQUIRE(start[size + i] == std::byte{0xa5});
    }
  }
  const Operation& op() const { return op_; }
  int kind() const { return static_cast<int>(kind_); }

 private:
  std::byte* make(TestMemory& memory, std::uint64_t bytes) {
    std::byte* start = memory.allocate(bytes + 8);
    std::memset(start, 0xcd, bytes);
    std::memset(start + bytes, 0xa5, 8);
    guards_.emplace_back(start, bytes);
    return start;
  }
  template <typename Size>
  void arrays(std::vector<std::int64_t>& sizes, std::vector<std::int64_t>& offsets, Size&& size) {
    total_ = 0;
    for (int i = 0; i < ranks_; ++i) {
      sizes.push_back(static_cast<std::int64_t>(size(i)));
      offsets.push_back(static_cast<std::int64_t>(total_));
      total_ += static_cast<std::uint64_t>(sizes.back());
    }
  }
  std::uint64_t irregular(int i, int j) const {
    return irregular_[static_cast<std::size_t>(i * ranks_ + j)];
  }
  std::byte value(int from, int to, std::uint64_t i) const {
    return static_cast<std::byte>(
        mix(number_, static_cast<std::uint64_t>(from * 1000 + to), i / 8) >> (i % 8 * 8));
  }
  void fill(std::byte* data, int from, int to, std::uint64_t bytes) const {
    for (std::uint64_t i = 0; i < bytes; ++i) data[i] = value(from, to, i);
  }
  void check_bytes(const std::byte* data, int from, int to, std::uint64_t bytes) const {
    for (std::uint64_t i = 0; i < bytes; ++i) {
      if (data[i] != value(from, to, i)) fail(i);
    }
  }
  Map map_of(int rank, std::uint64_t i) const {
    return {mix(number_, static_cast<std::uint64_t>(rank), i) | 1,
            mix(number_ + 7, static_cast<std::uint64_t>(rank), i)};
  }
  std::int32_t int_of(int rank, std::uint64_t i) const {
    return static_cast<std::int32_t>(mix(number_, static_cast<std::uint64_t>(rank), i) >> 36);
  }
  void fill_elements(std::byte* data, int rank, std::uint64_t first, std::uint64_t count) const {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (maps_) {
        reinterpret_cast<Map*>(data)[i] = map_of(rank, first + i);
      } else {
        reinterpret_cast<std::int32_t*>(data)[i] = int_of(rank, first + i);
      }
    }
  }
  void check_elements(const std::byte* data, int first_rank, int last_rank, std::uint64_t first,
                      std::uint64_t count) const {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (maps_) {
        Map sum = map_of(first_rank, first + i);
        for (int r = first_rank + 1; r < last_rank; ++r) sum = join(sum, map_of(r, first + i));
        if (!(reinterpret_cast<const Map*>(data)[i] == sum)) fail(i);
      } else {
        std::int32_t sum = 0;
        for (int r = first_rank; r < last_rank; ++r) sum += int_of(r, first + i);
        if (reinterpret_cast<const std::int32_t*>(data)[i] != sum) fail(i);
      }
    }
  }
  [[noreturn]] void fail(std::uint64_t i) const {
    std::fprintf(stderr, "rank %d: collective %llu of kind %d, count %llu%s: wrong at %llu\n", me_,
                 static_cast<unsigned long long>(number_), static_cast<int>(kind_),
                 static_cast<unsigned long long>(count_), in_place_ ? ", in place" : "",
                 static_cast<unsigned long long>(i));
    std::_Exit(1);
  }

  int ranks_, me_;
  std::uint64_t number_;
  Kind kind_;
  int root_ = 0;
  bool in_place_ = false, maps_ = false;
  std::uint64_t count_ = 0, total_ = 0, joins_ = 0;
  std::vector<std::uint64_t> irregular_;
  std::vector<std::int64_t> sizes_, offsets_, send_sizes_, send_offsets_;
  std::vector<std::pair<const std::byte*, std::uint64_t>> guards_;
  Blocks blocks_;
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  Operation op_;
};

struct RandomOptions {
  int ranks = 2;
  unsigned seed = 1;
  int rounds = 60;
  std::uint64_t most_bytes = 400000;
  Memory memory = Memory::mixed;
  bool long_reductions = false;  // more than half of all
  TestTeamOptions team;
};

RandomOptions of(int ranks, unsigned seed) {
  RandomOptions options;
  options.ranks = ranks;
  options.seed = seed;
  return options;
}

unsigned test_seed() {
  const char* text = std::getenv("OVERDRIVE_TEST_SEED");
  return text == nullptr ? 0 : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

void random_collectives(RandomOptions options) {
  if (test_seed() != 0) options.seed = test_seed();
  SCOPED_TRACE(testing::Message() << "OVERDRIVE_TEST_SEED=" << options.seed);
  expect_success(run_forked_job(
      options.ranks,
      [&](int me, const Exchange& exchange) {
        REQUIRE(memory::BumpArena::begin(256u << 20));
        TestMemory memory(options.memory, options.seed * 100 + static_cast<unsigned>(me));
        TestNode node(exchange, options.team);
        auto team = node.make_team();
        REQUIRE(team);
        node.sleep_until_woken(od::node::plan_waiting(
            options.seed % 2 == 0 ? od::node::WaitPolicy::sleep : od::node::WaitPolicy::automatic,
            options.ranks > 2, 0));
        std::mt19937 plan(options.seed);  // alike on all ranks
        std::mt19937 own(options.seed * 31 + static_cast<unsigned>(me));
        std::uint64_t number = 0;
        for (int round = 0; round < options.rounds; ++round) {
          memory.forget();
          std::deque<Case> cases;
          const auto together = 1 + plan() % 6;
          for (std::uint64_t i = 0; i < together; ++i) {
            cases.emplace_back(plan, options.ranks, me, ++number, options.most_bytes,
                               options.long_reductions);
            if (own() % 4 == 0) usleep(static_cast<unsigned>(own() % 300));
            cases.back().start(*team, memory);
            if (own() % 2 == 0) team->advance();
          }
          // Completed in any order; input is free at once.
          std::vector<std::size_t> order;
          for (std::size_t i = 0; i < cases.size(); ++i) order.push_back(i);
          std::shuffle(order.begin(), order.end(), own);
          for (const std::size_t i : order) {
            node.wait_for(*team, cases[i].op());
            cases[i].spoil_input();
            if (own() % 4 == 0) usleep(static_cast<unsigned>(own() % 300));
          }
          for (Case& each : cases) each.check();
        }
        node.wait(*team, [&] { return team->idle(); });
        REQUIRE(node.lost_wakes() == 0);
        REQUIRE(team->counters().operations == number);
        if (options.long_reductions) {
          REQUIRE((team->counters().in_groups != 0) == team->groups().worth_it());
        }
        exchange.barrier();
        return 0;
      },
      100));
}

TEST(Team, RandomCollectivesOfTwo) {
  RandomOptions options = of(2, 1);
  options.rounds = 150;
  random_collectives(options);
}
TEST(Team, RandomCollectivesOfThree) { random_collectives(of(3, 2)); }
TEST(Team, RandomCollectivesOfFive) { random_collectives(of(5, 3)); }
TEST(Team, RandomCollectivesOfEight) {
  RandomOptions options = of(8, 4);
  options.most_bytes = 150000;
  random_collectives(options);
}

TEST(Team, EverythingThroughCells) {
  RandomOptions options = of(4, 6);
  options.team.tuning.way = WayChoice::cells;
  random_collectives(options);
}
TEST(Team, EverythingDirect) {
  RandomOptions options = of(4, 7);
  options.memory = Memory::reachable;
  options.team.tuning.way = WayChoice::direct;
  random_collectives(options);
}
// Cells are used again and again within an exchange.
TEST(Team, SmallSlots) {
  for (const int ranks : {2, 3, 7}) {
    RandomOptions options = of(ranks, 8);
    options.rounds = 40;
    options.team.slot_bytes = 64 << 10;
    options.team.tuning.way = WayChoice::cells;
    options.team.tuning.piece_bytes = 4096;
    random_collectives(options);
  }
}
TEST(Team, FarAndGeneric) {
  RandomOptions options = of(3, 9);
  options.team.tuning.far = true;
  options.team.tuning.driver = Driver::generic;
  random_collectives(options);
}
TEST(Team, ManySegments) {
  RandomOptions options = of(3, 10);
  options.team.tuning.segment_slice_bytes = 1 << 10;
  set_whole(options.team.tuning, 0);
  random_collectives(options);
  options.ranks = 2;
  random_collectives(options);
}

// Caches shared by equal and unequal numbers of members, by neighbours and by every other one.
TEST(Team, ReductionsInGroups) {
  const std::vector<std::vector<int>> shapes = {
      {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 7},          {5, 3, 3, 3, 3},    {0, 1, 1, 0},
      {1, 1, 1},    {0, 1, 2},    {0, 0, 1, 2, 2, 2, 2}, {0, 0, 1, 1, 2, 2},
  };
  unsigned seed = 20;
  for (const std::vector<int>& groups : shapes) {
    for (const WayChoice way : {WayChoice::automatic, WayChoice::direct}) {
      RandomOptions options = of(static_cast<int>(groups.size()), seed++);
      options.rounds = 15;
      options.most_bytes = 150000;
      options.long_reductions = true;
      options.team.groups = groups;
      options.team.tuning.segment_slice_bytes = way == WayChoice::direct ? 2 << 10 : 256 << 10;
      options.team.tuning.groups_min_slice_bytes = 64;
      options.team.tuning.way = way;
      set_whole(options.team.tuning, 0);
      random_collectives(options);
    }
  }
}
TEST(Team, ReductionsInGroupsWithSmallSlots) {
  RandomOptions options = of(5, 50);
  options.rounds = 20;
  options.long_reductions = true;
  options.team.groups = {0, 0, 1, 1, 1};
  options.team.slot_bytes = 64 << 10;
  options.team.tuning.piece_bytes = 1024;
  options.team.tuning.groups_min_slice_bytes = 64;
  options.team.force_fences = true;
  set_whole(options.team.tuning, 0);
  random_collectives(options);
}

// Floating-point sums have the same bits everywhere, whoever arrives first.
TEST(Team, SumsHaveTheSameBitsEverywhere) {
  struct Shape {
    std::uint64_t count;
    std::vector<int> groups;
  };
  const std::vector<Shape> shapes = {
      {3, {}}, {700, {}}, {90000, {}}, {90000, {0, 1, 0, 1}}, {90000, {0, 1, 1, 1}}};
  for (const auto& [count, groups] : shapes) {
    expect_success(run_forked_job(4, [&, count = count](int me, const Exchange& exchange) {
      REQUIRE(memory::BumpArena::begin(64u << 20));
      TestTeamOptions options;
      options.groups = groups;
      TestNode node(exchange, options);
      auto team = node.make_team();
      Combiner combiner;
      combiner.kernel = ops::find_kernel(ops::Op::sum, ops::Kind::float64);
      combiner.extent_bytes = sizeof(double);
      combiner.commutative = true;
      std::vector<double> in(count), out(count), first(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        in[i] = 1.0 / static_cast<double>(mix(static_cast<std::uint64_t>(me), i) % 1000 + 1);
      }
      for (int round = 0; round < 20; ++round) {
        if (round % 4 == me) usleep(200);
        Operation op;
        team->allreduce(op, in.data(), out.data(), count, combiner);
        node.wait_for(*team, op);
        if (round == 0) first = out;
        REQUIRE(std::memcmp(out.data(), first.data(), count * sizeof(double)) == 0);
      }
      std::uint64_t hash = 0;
      for (const double value : out) {
        std::uint64_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        hash = mix(hash, bits);
      }
      std::vector<std::uint64_t> all(4);
      exchange.allgather(&hash, all.data(), sizeof hash);
      for (const std::uint64_t other : all) REQUIRE(other == hash);
      return 0;
    }));
  }
}

// What hierarchical steps without content need: nobody is held up who only gives a signal.
TEST(Team, SignalsGoOneWay) {
  // The round the late member has come to; it writes it before it signals.
  void* memory = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* late_round = new (memory) std::atomic<int>{0};
  expect_success(run_forked_job(3, [&](int me, const Exchange& exchange) {
    TestNode node(exchange, {});
    auto team = node.make_team();
    for (int i = 0; i < 50; ++i) {
      Operation to, from;
      if (me == 2) {
        usleep(500);
        late_round->store(i + 1, std::memory_order_release);
      }
      team->signal_to(to, 1);
      if (me == 0) {
        team->advance();
        REQUIRE(to.done() || i > 0);  // later ones may wait for a lane
      }
      node.wait_for(*team, to);
      // Pairs with the release above; the signal must not have overtaken it.
      if (me == 1) REQUIRE(late_round->load(std::memory_order_acquire) == i + 1);
      team->signal_from(from, 1);
      node.wait_for(*team, from);
      exchange.barrier();
    }
    return 0;
  }));
  munmap(memory, sizeof(std::atomic<int>));
}

// A root that stays lets the others run ahead, so it shows cells; one that changes does not.
TEST(Team, AnotherRootThanLastTimeShowsItsBuffer) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    REQUIRE(memory::BumpArena::begin(16u << 20));
    TestTeamOptions options;
    for (Tuning::Row* row : {&options.tuning.near_row, &options.tuning.oversubscribed_row}) {
      row->direct_rooted_pair = row->rewritten_turning = 1;
      row->rewritten_rooted = std::uint64_t{1} << 40;
    }
    TestNode node(exchange, options);
    auto team = node.make_team();
    constexpr std::uint64_t kBytes = 20000;
    const std::span<unsigned char> data = memory::BumpArena::allocate(kBytes);
    const auto bcast = [&](int root, int value) {
      if (me == root) std::memset(data.data(), value, kBytes);
      Operation op;
      team->bcast(op, root, data.data(), kBytes);
      node.wait_for(*team, op);
      REQUIRE(data[0] == value && data[kBytes - 1] == value);
      return 0;
    };
    for (int i = 0; i < 20; ++i) REQUIRE(bcast(i % 2, i) == 0);
    REQUIRE(team->counters().shown_direct == 10);
    REQUIRE(bcast(0, 20) == 0);  // another one than in the last call
    for (int i = 0; i < 20; ++i) REQUIRE(bcast(0, 21 + i) == 0);
    REQUIRE(team->counters().shown_direct == (me == 0 ? 11u : 10u));
    REQUIRE(team->counters().shown_cells == (me == 0 ? 20u : 0u));
    exchange.barrier();
    return 0;
  }));
}

// Empty blocks have no address, which does not mean MPI_IN_PLACE.
TEST(Team, OneWhoOnlyReceivesInAnAlltoallv) {
  expect_success(run_forked_job(3, [](int me, const Exchange& exchange) {
    TestTeamOptions options;
    options.tuning.way = WayChoice::cells;
    TestNode node(exchange, options);
    auto team = node.make_team();
    constexpr std::int64_t kBytes = 900'000;
    std::vector<std::byte> in(me == 0 ? 0 : kBytes), out(3 * kBytes);
    std::fill(in.begin(), in.end(), static_cast<std::byte>(me));
    // Everybody sends to member 0 only, which sends nothing.
    const std::int64_t sent[3] = {me == 0 ? 0 : kBytes, 0, 0}, none[3] = {0, 0, 0};
    const std::int64_t received[3] = {0, me == 0 ? kBytes : 0, me == 0 ? kBytes : 0};
    const std::int64_t places[3] = {0, kBytes, 2 * kBytes};
    const Blocks send{me == 0 ? nullptr : in.data(), 0, 0, none, sent};
    const Blocks recv{out.data(), 0, 0, places, received};
    for (int i = 0; i < 3; ++i) {
      Operation op;
      team->alltoall(op, send, recv);
      node.wait_for(*team, op);
    }
    for (std::int64_t i = 0; me == 0 && i < kBytes; ++i) {
      REQUIRE(out[static_cast<std::size_t>(kBytes + i)] == std::byte{1});
      REQUIRE(out[static_cast<std::size_t>(2 * kBytes + i)] == std::byte{2});
    }
    return 0;
  }));
}

// Who is waited for: one that has not shown anything, and of several one that has given its core
// away.
TEST(Team, AwaitedMembers) {
  expect_success(run_forked_job(3, [](int me, const Exchange& exchange) {
    TestNode node(exchange, {});
    auto team = node.make_team();
    const auto away = [&](int i) { return &node.node().member(i).header->away; };
    REQUIRE(team->awaited_member() == nullptr);
    Operation op;
    if (me == 0) {
      team->barrier(op);
      team->advance();
      REQUIRE(team->awaited_member() == away(2));
      away(1)->store(1, std::memory_order_relaxed);
      REQUIRE(team->awaited_member() == away(1));
    }
    exchange.barrier();
    if (me == 1) {
      team->barrier(op);
      team->advance();
    }
    exchange.barrier();
    if (me == 0) {
      team->advance();
      REQUIRE(team->awaited_member() == away(2));
    }
    exchange.barrier();
    if (me == 2) team->barrier(op);
    node.wait_for(*team, op);
    REQUIRE(team->awaited_member() == nullptr);

    // Nobody else: only the root shows anything.
    std::uint64_t value = 5;
    Operation bcast;
    if (me != 1) {
      team->bcast(bcast, 1, &value, sizeof value);
      team->advance();
      REQUIRE(team->awaited_member() == away(1));
    }
    exchange.barrier();
    if (me == 1) team->bcast(bcast, 1, &value, sizeof value);
    node.wait_for(*team, bcast);
    exchange.barrier();
    return 0;
  }));
}

// An operation object serves again once it is done, as persistent requests need it.
TEST(Team, OperationsAreStartedAgain) {
  expect_success(run_forked_job(2, [](int me, const Exchange& exchange) {
    TestNode node(exchange, {});
    auto team = node.make_team();
    Operation op;
    for (int i = 0; i < 100; ++i) {
      std::uint64_t value = me == 0 ? static_cast<std::uint64_t>(i) : 0;
      team->bcast(op, 0, &value, sizeof value);
      node.wait_for(*team, op);
      REQUIRE(value == static_cast<std::uint64_t>(i));
    }
    REQUIRE(team->counters().shown_payload == (me == 0 ? 100u : 0u));
    return 0;
  }));
}

// Nonsense in a peer's slot is noticed before it is used.
TEST(Team, CorruptPlacesAreRefused) {
  const std::vector<int> codes = run_forked_job(2, [](int me, const Exchange& exchange) {
    TestTeamOptions options;
    options.tuning.way = WayChoice::cells;
    TestNode node(exchange, options);
    auto team = node.make_team();
    std::vector<std::byte> data(1000);
    Operation op;
    if (me == 0) {
      team->bcast(op, 0, data.data(), data.size());
      node.wait_for(*team, op);
      SlotControl* mine =
          slot_control(node.node().member(0).base, node.node().layout(), node.lease().slot);
      mine->lanes[0].post.place.offset = node.node().layout().slot_bytes - 8;
    }
    exchange.barrier();
    if (me == 0) return 0;
    team->bcast(op, 0, data.data(), data.size());
    node.wait_for(*team, op);
    return 0;
  });
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[1], 97);  // the test's handler
}

// Communicators come and go; slots serve again, members are late to read the last of an old one.
TEST(Team, SlotsServeOneTeamAfterTheOther) {
  expect_success(run_forked_job(3, [](int me, const Exchange& exchange) {
    REQUIRE(memory::BumpArena::begin(16u << 20));
    TestTeamOptions options;
    options.slot_count = 2;
    TestNode node(exchange, options);
    std::mt19937 own(static_cast<unsigned>(me) + 1);
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      auto team = node.make_team();
      if (team == nullptr) {
        // Somebody has no slot: all of them give theirs back.
        ++refused;
        node.return_lease();
        exchange.barrier();
        continue;
      }
      std::uint64_t value = static_cast<std::uint64_t>(i * 10 + me);
      std::uint64_t got[3] = {};
      for (int k = 0; k < 11; ++k) {
        Operation op;
        team->allgather(op, &value, sizeof value,
                        Blocks{reinterpret_cast<std::byte*>(got), 8, 24, nullptr, nullptr});
        node.wait_for(*team, op);
        for (int r = 0; r < 3; ++r) REQUIRE(got[r] == value - me + r);
        value += 1000;
        if (own() % 8 == 0) usleep(static_cast<unsigned>(own() % 200));
      }
      REQUIRE(node.slots().in_use() == 1);
      node.end_team(std::move(team));
    }
    REQUIRE(refused < 150);
    return 0;
  }));
}

// What readers look for in cells is there a window at a time, not page by page.
TEST(Team, CellsComeByTheWindow) {
  if (under_emulator()) GTEST_SKIP() << "an emulator says yes to every advice";
  constexpr std::size_t kWindowBytes = 64 << 10;
  expect_success(run_forked_job(4, [](int me, const Exchange& exchange) {
    TestNode node(exchange, {});
    auto team = node.make_team();
    std::vector<std::byte> send(4 * 200), recv(4 * 200);
    Operation op;
    team->alltoall(op, Blocks{send.data(), 200, send.size(), nullptr, nullptr},
                   Blocks{recv.data(), 200, recv.size(), nullptr, nullptr});
    node.wait_for(*team, op);
    std::byte* const ring =
        slot_start(node.node().member(me).base, node.node().layout(), node.lease().slot) +
        kControlBytes;
    unsigned char there[kWindowBytes / od::node::kPageBytes];
    REQUIRE(mincore(ring, kWindowBytes, there) == 0);
    const auto pages = std::count_if(std::begin(there), std::end(there),
                                     [](unsigned char page) { return (page & 1) != 0; });
    void* const other = mmap(nullptr, od::node::kPageBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool at_once = populate_pages(static_cast<std::byte*>(other), od::node::kPageBytes, true);
    REQUIRE(pages == (at_once ? std::ssize(there) : 1));
    exchange.barrier();
    return 0;
  }));
}

// With more ranks than cores a barrier costs each rank hardly more than one sleep.
TEST(Team, SleepersAreWokenOnce) {
  constexpr int kRanks = 6, kBarriers = 200;
  expect_success(run_forked_job(kRanks, [](int, const Exchange& exchange) {
    TestTeamOptions options;
    options.force_fences = true;
    TestNode node(exchange, options);
    node.sleep_until_woken(od::node::plan_waiting(od::node::WaitPolicy::sleep, true, 0));
    auto team = node.make_team();
    for (int i = 0; i < kBarriers; ++i) {
      Operation op;
      team->barrier(op);
      node.wait_for(*team, op);
    }
    node.wait(*team, [&] { return team->idle(); });
    REQUIRE(node.lost_wakes() == 0);
    REQUIRE(node.sleeps() < 2 * kBarriers);
    exchange.barrier();
    return 0;
  }));
}

}  // namespace
}  // namespace od::coll::shm
