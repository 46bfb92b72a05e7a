// Tests of address passing between processes: who may use a block, when its memory is used again,
// what a peer's nonsense does, and random traffic of ownership.
#include "smpi/service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "node/forked_job.h"

namespace od::smpi {
namespace {

using Place = overdrive_smpi_place;

constexpr std::uint64_t kArenaBytes = std::uint64_t{1} << 30;

// A heap in a reach file: first fit over freed blocks of the same size, else the end.
struct Arena {
  int fd = -1;
  std::byte* start = nullptr;
  std::uint64_t next = 1 << 20;  // the first page is the file's header
  std::uint64_t released = 0;
  std::multimap<std::uint64_t, void*> spare;
  std::map<void*, std::uint64_t> sizes;
};
Arena g_arena;  // one per process

void open_arena() {
  g_arena.fd = static_cast<int>(syscall(SYS_memfd_create, "arena", MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(g_arena.fd, static_cast<off_t>(kArenaBytes)), 0);
  fcntl(g_arena.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  g_arena.start = static_cast<std::byte*>(mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                                               MAP_SHARED | MAP_NORESERVE, g_arena.fd, 0));
}

void* arena_allocate(std::uint64_t bytes, std::uint64_t alignment) {
  const auto found = g_arena.spare.find(bytes);
  if (found != g_arena.spare.end()) {
    void* const memory = found->second;
    g_arena.spare.erase(found);
    g_arena.sizes[memory] = bytes;
    return memory;
  }
  const std::uint64_t at = (g_arena.next + alignment - 1) / alignment * alignment;
  if (at + bytes > kArenaBytes) return nullptr;
  g_arena.next = at + bytes;
  g_arena.sizes[g_arena.start + at] = bytes;
  return g_arena.start + at;
}

void arena_release(void* memory) {
  ++g_arena.released;
  g_arena.spare.emplace(g_arena.sizes.at(memory), memory);
  g_arena.sizes.erase(memory);
}

std::uint64_t arena_offset(const void* address, std::uint64_t) {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= g_arena.start && at < g_arena.start + kArenaBytes
             ? static_cast<std::uint64_t>(at - g_arena.start)
             : ~std::uint64_t{0};
}

Options options() {
  Options options;
  options.arena = g_arena.start;
  options.arena_bytes = kArenaBytes;
  options.allocate = arena_allocate;
  options.release = arena_release;
  options.reach_offset = arena_offset;
  return options;
}

// One rank of a job in a process of its own.
struct TestRank {
  explicit TestRank(const node::Exchange& exchange, Options with = {}, const char* separated = "") {
    open_arena();
    node::JoinOptions join;
    join.region.buffers_bytes = 1 << 20;
    join.reach = {g_arena.fd, g_arena.start, kArenaBytes};
    join.test_remote = separated;
    node = node::Node::join(exchange, join);
    Options all = options();
    all.debug = with.debug;
    all.limit_bytes = with.limit_bytes;
    all.abort = with.abort;
    service = std::make_unique<Service>(*node, all, counters);
  }
  std::unique_ptr<node::Node> node;
  observe::Counters counters;
  std::unique_ptr<Service> service;
};

#define OD_REQUIRE(condition)                                            \
  if (!(condition)) {                                                    \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    return 1;                                                            \
  }

void expect_job(int ranks, int (*body)(int, const node::Exchange&)) {
  const std::vector<int> codes = node::run_forked_job(ranks, body);
  for (const int code : codes) EXPECT_EQ(code, 0);
}

// Hands a value from rank 0 to everybody.
template <typename T>
T from_first(const node::Exchange& exchange, const T& value) {
  std::vector<T> all(static_cast<std::size_t>(exchange.size));
  exchange.allgather(&value, all.data(), sizeof value);
  return all[0];
}

bool job_ended = false;

// Where others want the core a pause takes milliseconds: they must not be counted in tens of
// thousands until somebody looks.
int notice_a_death_by_few_pauses(int rank, const node::Exchange& exchange) {
  Options with;
  with.abort = [](int) { job_ended = true; };
  TestRank own(exchange, with);
  exchange.barrier();
  if (rank == 1) _exit(0);
  for (int i = 0; i < 30'000 && !job_ended; ++i) {
    own.service->pause();
    usleep(1000);
  }
  OD_REQUIRE(job_ended);
  return 0;
}

int lend_and_release(int rank, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  OD_REQUIRE(service.engine() != nullptr);
  Place place = {};
  char* block = nullptr;
  if (rank == 0) {
    block = static_cast<char*>(service.alloc(5000, "here"));
    OD_REQUIRE(block != nullptr);
    std::memset(block, 7, 5000);
    OD_REQUIRE(service.lend(block + 100, 50, 2, &place) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(block) == 2);
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    // Still lent: no new block may lie there.
    for (int i = 0; i < 100; ++i) OD_REQUIRE(service.alloc(5000, nullptr) != block);
  }
  place = from_first(exchange, place);
  if (rank != 0) {
    const void* address = nullptr;
    std::uint64_t view = 0;
    OD_REQUIRE(service.open(place, "there", &address, &view) == OVERDRIVE_SMPI_OK);
    for (int i = 0; i < 50; ++i) OD_REQUIRE(static_cast<const char*>(address)[i] == 7);
    service.close(place, view);
  }
  exchange.barrier();
  if (rank == 0) {
    // Now it comes back, with the next look.
    bool found = false;
    for (int i = 0; i < 100 && !found; ++i) found = service.alloc(5000, nullptr) == block;
    OD_REQUIRE(found);
    OD_REQUIRE(own.counters.smpi_returned == 1);
  }
  exchange.barrier();
  return 0;
}

TEST(SmpiService, DeathIsNoticedThoughPausesAreLong) {
  expect_job(2, notice_a_death_by_few_pauses);
}

TEST(SmpiService, MemoryIsUsedAgainOnlyWhenEverybodyHasLetGo) { expect_job(3, lend_and_release); }

// Views that are given and ended in turns, before and after the block has another owner.
int views_outlive_owners(int rank, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  Place places[2] = {};  // lent; passed
  char* block = nullptr;
  const void* address = nullptr;
  std::uint64_t view = 0;
  if (rank == 0) {
    block = static_cast<char*>(service.alloc(70000, nullptr));
    std::memset(block, 3, 70000);
    for (int round = 0; round < 5; ++round) {
      OD_REQUIRE(service.lend(block, 10, 2, &places[0]) == OVERDRIVE_SMPI_OK);
      OD_REQUIRE(service.lent(block) == 2);
      service.close(places[0], 0);
      OD_REQUIRE(service.lent(block) == 1);
      service.close(places[0], 0);
      OD_REQUIRE(service.lent(block) == 0);
    }
    // One for rank 1, one for rank 2; then rank 1 becomes the owner.
    OD_REQUIRE(service.lend(block, 70000, 2, &places[0]) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.pass(block, 70000, &places[1]) == OVERDRIVE_SMPI_OK);
  }
  places[0] = from_first(exchange, places[0]);
  places[1] = from_first(exchange, places[1]);
  if (rank == 1) {
    void* mine = nullptr;
    OD_REQUIRE(service.open(places[1], nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.own(places[1], view, nullptr, &mine) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(mine) == 2);
    service.close(places[0], 0);
    OD_REQUIRE(service.lent(mine) == 1);
    Place again = {};
    OD_REQUIRE(service.lend(mine, 1, 1, &again) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(mine) == 2);
    service.take_back(again, 1);
    OD_REQUIRE(service.lent(mine) == 1);
    OD_REQUIRE(service.free(mine, nullptr) == OVERDRIVE_SMPI_OK);
  }
  exchange.barrier();
  if (rank == 0) {
    service.finish();
    OD_REQUIRE(own.counters.smpi_returned == 0 && g_arena.released == 0);
  }
  exchange.barrier();
  if (rank == 2) {
    OD_REQUIRE(service.open(places[0], nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(static_cast<const char*>(address)[69999] == 3);
    service.close(places[0], view);
    OD_REQUIRE(service.open(places[0], nullptr, &address, &view) == OVERDRIVE_SMPI_BAD_PLACE);
  }
  exchange.barrier();
  if (rank == 0) {
    service.finish();
    OD_REQUIRE(own.counters.smpi_returned == 1 && g_arena.released == 1);
    // A passed block that its receiver only looks at, and one that nobody has ever lent.
    block = static_cast<char*>(service.alloc(70000, nullptr));
    OD_REQUIRE(service.lend(block, 10, 1, &places[0]) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.pass(block, 10, &places[1]) == OVERDRIVE_SMPI_OK);
    service.close(places[1], 0);
    OD_REQUIRE(g_arena.released == 1);
    service.close(places[0], 0);
    OD_REQUIRE(g_arena.released == 2);
    OD_REQUIRE(service.free(service.alloc(70000, nullptr), nullptr) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(g_arena.released == 3);
  }
  return 0;
}

// Who follows requests: keeps what hangs on those that it knows, which are even numbers.
std::vector<std::shared_ptr<void>> g_followed;
bool follow_even(const void* request, std::shared_ptr<void> kept) {
  if (*static_cast<const int*>(request) % 2 != 0) return false;
  g_followed.push_back(std::move(kept));
  return true;
}

int blocks_go_with_requests(int rank, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  const overdrive_smpi_engine& engine = *service.engine();
  const int unknown = 1, known = 2;
  Place place = {};
  void* block = nullptr;
  if (rank == 0) {
    block = service.alloc(70000, nullptr);
    OD_REQUIRE(engine.free_after(engine.self, block, &known) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    service.set_follow(follow_even);
    OD_REQUIRE(engine.free_after(engine.self, block, &unknown) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    // Nothing has been done: it is still the caller's.
    OD_REQUIRE(service.lent(block) == 0 && g_followed.empty());
    OD_REQUIRE(engine.free_after(engine.self, block, &known) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(g_followed.size() == 1);
    OD_REQUIRE(service.lent(block) == -1 && service.free(block, nullptr) != OVERDRIVE_SMPI_OK);
    OD_REQUIRE(engine.free_after(engine.self, block, &known) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    OD_REQUIRE(g_arena.released == 0);
    g_followed.clear();
    OD_REQUIRE(g_arena.released == 1);
    // A view outlives the request.
    block = service.alloc(70000, nullptr);
    OD_REQUIRE(service.lend(block, 10, 1, &place) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(engine.free_after(engine.self, block, &known) == OVERDRIVE_SMPI_OK);
    g_followed.clear();
    OD_REQUIRE(g_arena.released == 1);
    service.close(place, 0);
    OD_REQUIRE(g_arena.released == 2);
    // And rank 1's.
    block = service.alloc(70000, nullptr);
    OD_REQUIRE(service.pass(block, 70000, &place) == OVERDRIVE_SMPI_OK);
  }
  place = from_first(exchange, place);
  if (rank == 1) {
    const void* address = nullptr;
    std::uint64_t view = 0;
    service.set_follow(follow_even);
    OD_REQUIRE(service.open(place, nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.own(place, view, nullptr, &block) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(engine.free_after(engine.self, block, &known) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(block) == -1);
  }
  exchange.barrier();
  if (rank == 0) {
    service.finish();
    OD_REQUIRE(own.counters.smpi_returned == 0 && own.counters.smpi_freed_after == 2);
  }
  exchange.barrier();
  if (rank == 1) g_followed.clear();
  exchange.barrier();
  if (rank == 0) {
    service.finish();
    OD_REQUIRE(own.counters.smpi_returned == 1 && g_arena.released == 3);
  }
  return 0;
}

TEST(SmpiService, BlocksGoWithTheRequestsOfTheirMessages) {
  expect_job(2, blocks_go_with_requests);
}

TEST(SmpiService, ViewsOutliveTheirOwners) { expect_job(3, views_outlive_owners); }

// What lent() remembers ends with everything that makes it untrue; more blocks than it remembers.
int asked_again(int, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(service.alloc(1000, nullptr));
  const auto all_unlent = [&] {
    for (void* const block : blocks) {
      if (service.lent(block) != 0 || service.lent(block) != 0) return false;
    }
    return true;
  };
  OD_REQUIRE(service.lent(nullptr) == -1);
  OD_REQUIRE(all_unlent() && all_unlent());
  for (void* const block : blocks) {
    Place place = {};
    std::uint64_t view = 0;
    const void* address = nullptr;
    void* mine = nullptr;
    OD_REQUIRE(service.lent(block) == 0);
    OD_REQUIRE(service.lend(static_cast<char*>(block) + 10, 20, 2, &place) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(block) == 2);
    service.close(place, 0);
    service.take_back(place, 1);
    OD_REQUIRE(service.lent(block) == 0);
    OD_REQUIRE(service.offer(block, 20, &place) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(block) == 1);
    service.close(place, 0);
    OD_REQUIRE(service.lent(block) == 0);
    OD_REQUIRE(service.pass(block, 20, &place) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(block) == -1);
    OD_REQUIRE(service.open(place, nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.own(place, view, nullptr, &mine) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(mine == block);
  }
  OD_REQUIRE(all_unlent());
  for (void* const block : blocks) {
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(block) == -1);
  }
  return 0;
}

TEST(SmpiService, WhatIsAskedAgainIsAnsweredRight) { expect_job(1, asked_again); }

// What is new goes with its message to a rank that is far; what is not is lent.
int offers(int rank, const node::Exchange& exchange) {
  Options with;
  with.limit_bytes = 1 << 20;  // so nothing is lent in copies that stay away
  TestRank own(exchange, with);
  Service& service = *own.service;
  Place place = {};
  if (rank == 0) {
    auto* const block = static_cast<char*>(service.alloc(5000, nullptr));
    OD_REQUIRE(service.offer(block, 100, &place) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(block) == 1);
    service.take_back(place, 1);
    OD_REQUIRE(service.lent(block) == 0 && own.counters.smpi_by_content == 0);
    service.set_far(300);
    OD_REQUIRE(service.offer(block, 100, &place) == OVERDRIVE_SMPI_BY_CONTENT);
    OD_REQUIRE(own.counters.smpi_by_content == 1 && own.counters.smpi_lent == 1);
    OD_REQUIRE(place.offset == place.block && service.lent(block) == 0);
    OD_REQUIRE(service.offer(block, 100, &place) == OVERDRIVE_SMPI_BY_CONTENT);
    // It has not been written since: nobody has asked whether it may be.
    OD_REQUIRE(service.offer(block + 50, 50, &place) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(place.offset == place.block + 50 && place.bytes == 50 && place.passed == 0);
    OD_REQUIRE(service.lent(block) == 1);
    OD_REQUIRE(service.offer(block, 100, &place) == OVERDRIVE_SMPI_OK);
    service.take_back(place, 2);
    OD_REQUIRE(service.lent(block) == 0);
    OD_REQUIRE(service.offer(block, 100, &place) == OVERDRIVE_SMPI_BY_CONTENT);
    OD_REQUIRE(service.offer(block, 5001, &place) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.offer(block, 100, &place) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    auto* const again = static_cast<char*>(service.alloc(5000, nullptr));
    OD_REQUIRE(again == block);
    OD_REQUIRE(service.offer(again, 100, &place) == OVERDRIVE_SMPI_BY_CONTENT);
    OD_REQUIRE(service.pass(again, 100, &place) == OVERDRIVE_SMPI_OK);
  }
  place = from_first(exchange, place);
  if (rank == 1) {
    service.set_far(300);
    const void* address = nullptr;
    std::uint64_t view = 0;
    void* mine = nullptr;
    OD_REQUIRE(service.open(place, nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.own(place, view, nullptr, &mine) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.offer(mine, 100, &place) == OVERDRIVE_SMPI_BY_CONTENT);
    OD_REQUIRE(service.offer(mine, 100, &place) == OVERDRIVE_SMPI_OK);
  }
  exchange.barrier();
  return 0;
}

TEST(SmpiService, OffersWhatIsNewByContentToWhoIsFar) { expect_job(2, offers); }

constexpr std::uint64_t kWhole = 100000;
// Distances of cores at which every line looks as if a viewer had fetched it, and none does.
constexpr double kAllFetchedNs = 1e-3;
constexpr double kNoneFetchedNs = 1e12;

// Lends a block whose data is new, ends the view, and asks whether it may be written: 1 if the
// viewer would have got a copy, 0 if not, -1 if something is wrong.
int lends_copy(Service& service, char* block, std::uint64_t bytes) {
  const auto at = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(block) - g_arena.start);
  Place place = {};
  if (service.lend(block, bytes, 1, &place) != OVERDRIVE_SMPI_OK) return -1;
  const bool copied = place.offset != at;
  if (service.lent(block) != (copied ? 0 : 1)) return -1;
  if (std::memcmp(g_arena.start + place.offset, block, bytes) != 0) return -1;
  service.take_back(place, 1);
  return service.lent(block) == 0 ? static_cast<int>(copied) : -1;
}

// New data goes as a copy to far viewers who were found to read all of it.
int copies(int rank, const node::Exchange& exchange) {
  Options with;
  with.limit_bytes = 3 * kWhole;
  TestRank own(exchange, with);
  Service& service = *own.service;
  Place place = {};
  char* block = nullptr;
  if (rank == 0) {
    block = static_cast<char*>(service.alloc(kWhole, nullptr));
    std::memset(block, 1, kWhole);
    for (int i = 0; i < 20; ++i) OD_REQUIRE(lends_copy(service, block, kWhole) == 0);  // near
    service.set_far(kNoneFetchedNs);
    for (int i = 0; i < 20; ++i) OD_REQUIRE(lends_copy(service, block, kWhole) == 0);
    service.set_far(kAllFetchedNs);
    int before = 0;
    while (lends_copy(service, block, kWhole) != 1) OD_REQUIRE(++before < 20);
    // Most are copies from here on, but not all: viewers are looked at again.
    int copied = 1;
    for (int i = 0; i < 300; ++i) copied += lends_copy(service, block, kWhole);
    OD_REQUIRE(copied > 290 && copied < 301);
    OD_REQUIRE(own.counters.smpi_by_copy == static_cast<std::uint64_t>(copied));
    while (lends_copy(service, block, kWhole) != 1) OD_REQUIRE(++before < 40);
    OD_REQUIRE(lends_copy(service, block, 1000) == 0);  // too short
    // What is sent again has not been written since.
    OD_REQUIRE(service.lend(block, kWhole, 1, &place) == OVERDRIVE_SMPI_OK);
    Place again = {};
    OD_REQUIRE(service.lend(block, kWhole, 1, &again) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(place.block != again.block && service.lent(block) == 1);
    service.take_back(again, 1);
    // There is no room for another copy.
    void* const more = service.alloc(kWhole / 2, nullptr);
    OD_REQUIRE(more != nullptr && service.lent(block) == 0);
    OD_REQUIRE(lends_copy(service, block, kWhole) == 0);
    OD_REQUIRE(service.free(more, nullptr) == OVERDRIVE_SMPI_OK);
    // The owner writes, and lets go, while the copy is looked at.
    std::memset(block, 2, kWhole);
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
  }
  place = from_first(exchange, place);
  exchange.barrier();
  if (rank == 1) {
    const void* address = nullptr;
    std::uint64_t view = 0;
    OD_REQUIRE(service.open(place, nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
    const auto* const seen = static_cast<const char*>(address);
    OD_REQUIRE(seen[0] == 1 && seen[kWhole - 1] == 1);
    service.close(place, view);
    OD_REQUIRE(service.open(place, nullptr, &address, &view) == OVERDRIVE_SMPI_BAD_PLACE);
  }
  exchange.barrier();
  if (rank == 0) {
    service.finish();
    OD_REQUIRE(own.counters.smpi_returned == 1);
    OD_REQUIRE(service.alloc(2 * kWhole, nullptr) != nullptr);  // all is free again
    // Another block in its place knows nothing of those viewers.
    service.set_far(kAllFetchedNs);
    block = static_cast<char*>(service.alloc(kWhole / 2, nullptr));
    OD_REQUIRE(block != nullptr && lends_copy(service, block, kWhole / 2) == 0);
  }
  return 0;
}

TEST(SmpiService, CopiesOfNewDataForFarViewersWhoReadItAll) { expect_job(2, copies); }

// Ends the service, the second time with what others had kept until the first; whether nothing but
// chunks of small blocks is left of the arena.
bool ends_with_chunks_only(Service& service, const node::Exchange& exchange) {
  service.finish();
  exchange.barrier();
  service.finish();
  return std::all_of(g_arena.sizes.begin(), g_arena.sizes.end(),
                     [](const auto& part) { return part.second == 1 << 20; });
}

struct Sent {
  Place place;
  int code;
};

// What the data came with, instead of a place of its own.
constexpr std::uint64_t kWithMessage = ~std::uint64_t{0};

// Sends new data as a short message would and lets the other rank look; where the data was, or 0
// where something is wrong.
std::uint64_t answer(Service& service, const node::Exchange& exchange, int from, int rank,
                     char* block, std::uint64_t bytes, char value) {
  Sent mine = {};
  if (rank == from) {
    if (service.lent(block) != 0) return 0;
    std::memset(block, value, bytes);
    mine.code = bytes <= 4096 ? service.offer(block, bytes, &mine.place)
                              : service.lend(block, bytes, 1, &mine.place);
  }
  std::vector<Sent> all(static_cast<std::size_t>(exchange.size));
  exchange.allgather(&mine, all.data(), sizeof mine);
  const auto [place, code] = all[static_cast<std::size_t>(from)];
  if (code == OVERDRIVE_SMPI_BY_CONTENT && bytes <= 4096) return kWithMessage;
  if (code != OVERDRIVE_SMPI_OK) return 0;
  if (rank != from) {
    const void* address = nullptr;
    std::uint64_t view = 0;
    if (service.open(place, nullptr, &address, &view) != OVERDRIVE_SMPI_OK) return 0;
    const auto* const seen = static_cast<const char*>(address);
    for (std::uint64_t i = 0; i < bytes; ++i) {
      if (seen[i] != value) return 0;
    }
    void* owned = nullptr;
    if (service.own(place, view, nullptr, &owned) == OVERDRIVE_SMPI_OK) return 0;
    service.close(place, view);
  }
  exchange.barrier();
  return place.block;
}

// Ranks that answer each other send all their new data in the block that the last data came in.
int to_and_fro(int rank, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  service.set_far(kAllFetchedNs);
  auto* const block = static_cast<char*>(service.alloc(kWhole, nullptr));
  auto* const other = static_cast<char*>(service.alloc(kWhole, nullptr));
  const std::uint64_t first = answer(service, exchange, 0, rank, block, 600, 1);
  OD_REQUIRE(first != 0);
  for (int turn = 1; turn < 40; ++turn) {
    const std::uint64_t bytes = turn % 3 == 0 ? 1024 : 1000;
    OD_REQUIRE(answer(service, exchange, turn % 2, rank, turn % 5 == 0 ? other : block, bytes,
                      static_cast<char>(turn)) == first);
  }
  OD_REQUIRE(own.counters.smpi_by_content == 0);
  OD_REQUIRE(own.counters.smpi_blocks == (rank == 0 ? 3 : 2));
  // What does not fit needs a larger one, which both use as soon as they know of their viewers.
  std::set<std::uint64_t> places;
  for (int turn = 0; turn < 60; ++turn) {
    const std::uint64_t place =
        answer(service, exchange, turn % 2, rank, block, 50000, static_cast<char>(turn));
    OD_REQUIRE(place != 0);
    places.insert(place);
  }
  OD_REQUIRE(own.counters.smpi_blocks <= 4 && places.size() <= 4);
  // Who only receives gives the oldest back when there are many.
  for (int turn = 0; turn < 40; ++turn) {
    OD_REQUIRE(answer(service, exchange, 0, rank, block, 4097, static_cast<char>(turn)) != 0);
  }
  OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
  OD_REQUIRE(service.free(other, nullptr) == OVERDRIVE_SMPI_OK);
  OD_REQUIRE(ends_with_chunks_only(service, exchange));
  OD_REQUIRE(rank == 1 || own.counters.smpi_returned > 10);
  return 0;
}

TEST(SmpiService, CopiesGoToAndFroBetweenRanksThatAnswerEachOther) { expect_job(2, to_and_fro); }

// Also on near cores, and what is longer is sent right whatever is found out about its viewers:
// that they are far, too, which a core that was lost for a moment looks like.
int to_and_fro_near(int rank, const node::Exchange& exchange, bool get_far) {
  TestRank own(exchange);
  Service& service = *own.service;
  service.set_far(0, 50, 200);
  auto* const block = static_cast<char*>(service.alloc(kWhole, nullptr));
  const std::uint64_t first = answer(service, exchange, 0, rank, block, 600, 1);
  OD_REQUIRE(first != 0);
  for (int turn = 1; turn < 40; ++turn) {
    OD_REQUIRE(answer(service, exchange, turn % 2, rank, block, 1000, static_cast<char>(turn)) ==
               first);
  }
  OD_REQUIRE(own.counters.smpi_by_copy == 20 && own.counters.smpi_by_content == 0);
  if (get_far) service.set_far(kAllFetchedNs);
  for (int turn = 0; turn < 200; ++turn) {
    const std::uint64_t bytes = turn % 3 == 0 ? 4096 : 50000;
    OD_REQUIRE(answer(service, exchange, turn % 2, rank, block, bytes, static_cast<char>(turn)) !=
               0);
  }
  // Far, what is short never lies in place.
  const std::uint64_t mine = own.counters.smpi_by_copy + own.counters.smpi_by_content;
  std::uint64_t away[2] = {};
  exchange.allgather(&mine, away, sizeof mine);
  OD_REQUIRE(!get_far || away[0] + away[1] >= 40 + 67);
  OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
  OD_REQUIRE(ends_with_chunks_only(service, exchange));
  return 0;
}

TEST(SmpiService, CopiesGoToAndFroAlsoOnNearCores) {
  expect_job(2, [](int rank, const node::Exchange& exchange) {
    return to_and_fro_near(rank, exchange, false);
  });
}

TEST(SmpiService, CopiesGoToAndFroAlsoOnCoresThatGetFar) {
  expect_job(2, [](int rank, const node::Exchange& exchange) {
    return to_and_fro_near(rank, exchange, true);
  });
}

int pass_around(int rank, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  Place place = {};
  if (rank == 0) {
    auto* block = static_cast<int*>(service.alloc(40000, nullptr));
    *block = 1;
    OD_REQUIRE(service.pass(block, 4, &place) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.pass(block, 4, &place) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_NOT_A_BLOCK);
  }
  place = from_first(exchange, place);
  std::vector<Place> all(static_cast<std::size_t>(exchange.size));
  for (int turn = 1; turn < exchange.size; ++turn) {
    if (rank == turn) {
      const void* address = nullptr;
      std::uint64_t view = 0;
      void* block = nullptr;
      OD_REQUIRE(service.open(place, nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
      OD_REQUIRE(service.own(place, view, nullptr, &block) == OVERDRIVE_SMPI_OK);
      OD_REQUIRE(*static_cast<int*>(block) == turn);
      ++*static_cast<int*>(block);
      std::uint64_t bytes = 0;
      OD_REQUIRE(service.capacity(block, &bytes) == OVERDRIVE_SMPI_OK && bytes == 40000);
      // The middle of a foreign block can be lent as well.
      Place part = {};
      OD_REQUIRE(service.lend(static_cast<char*>(block) + 64, 10, 1, &part) == OVERDRIVE_SMPI_OK);
      service.take_back(part, 1);
      if (turn == exchange.size - 1) {
        OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
      } else {
        OD_REQUIRE(service.pass(block, 4, &place) == OVERDRIVE_SMPI_OK);
      }
    }
    exchange.allgather(&place, all.data(), sizeof place);
    place = all[static_cast<std::size_t>(turn)];
  }
  exchange.barrier();
  if (rank == 0) {
    service.finish();
    OD_REQUIRE(own.counters.smpi_returned == 1);
  }
  return 0;
}

TEST(SmpiService, OwnershipPassesAndTheLastOwnerFrees) { expect_job(4, pass_around); }

// What a child does with a block that its parent got from another rank reaches neither of them.
int forked_child(int rank, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  Place place = {};
  if (rank == 0) {
    void* const block = service.alloc(40000, nullptr);
    OD_REQUIRE(service.pass(block, 8, &place) == OVERDRIVE_SMPI_OK);
  }
  place = from_first(exchange, place);
  if (rank == 1) {
    const void* address = nullptr;
    std::uint64_t view = 0;
    void* block = nullptr;
    OD_REQUIRE(service.open(place, nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.own(place, view, nullptr, &block) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.lent(block) == 0);
    const pid_t child = fork();
    if (child == 0) {
      service.forget();
      Place lent = {};
      const bool refused = service.lend(block, 8, 1, &lent) == OVERDRIVE_SMPI_NOT_A_BLOCK &&
                           service.pass(block, 8, &lent) == OVERDRIVE_SMPI_NOT_A_BLOCK &&
                           service.own(place, view, nullptr, &block) == OVERDRIVE_SMPI_BAD_PLACE &&
                           service.lent(block) == -1 &&
                           service.free(block, nullptr) == OVERDRIVE_SMPI_NOT_A_BLOCK;
      _exit(refused ? 0 : 1);
    }
    int status = -1;
    OD_REQUIRE(waitpid(child, &status, 0) == child && status == 0);
    OD_REQUIRE(service.lent(block) == 0);
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
  }
  exchange.barrier();
  if (rank == 0) {
    service.finish();
    OD_REQUIRE(own.counters.smpi_returned == 1);
  }
  return 0;
}

TEST(SmpiService, AForkedChildLeavesBlocksOfOthersAlone) { expect_job(2, forked_child); }

int nonsense(int rank, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  Place place = {};
  if (rank == 0) {
    void* block = service.alloc(100, nullptr);
    OD_REQUIRE(service.lend(block, 100, 1, &place) == OVERDRIVE_SMPI_OK);
    char outside[10];
    OD_REQUIRE(service.lend(outside, 1, 1, &place) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    OD_REQUIRE(service.lend(block, 101, 1, &place) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    OD_REQUIRE(service.free(static_cast<char*>(block) + 64, nullptr) == OVERDRIVE_SMPI_NOT_A_BLOCK);
    OD_REQUIRE(service.lent(outside) == -1);
  }
  place = from_first(exchange, place);
  if (rank == 1) {
    const void* address = nullptr;
    std::uint64_t view = 0;
    Place wrong[8];
    for (Place& one : wrong) one = place;
    wrong[0].home = 77;
    wrong[1].block = kArenaBytes + 64;
    wrong[2].offset = 0;
    wrong[3].bytes = kArenaBytes;
    wrong[4].block += 64;
    wrong[5].block = 3;
    wrong[6].offset = ~std::uint64_t{0};
    wrong[7].block = 0;
    for (const Place& one : wrong) {
      OD_REQUIRE(service.open(one, nullptr, &address, &view) == OVERDRIVE_SMPI_BAD_PLACE);
      service.close(one, 0);
      void* block = nullptr;
      OD_REQUIRE(service.own(one, 0, nullptr, &block) == OVERDRIVE_SMPI_BAD_PLACE);
    }
  }
  exchange.barrier();
  return 0;
}

TEST(SmpiService, NonsenseOfPeersAndProgramsIsRefused) { expect_job(2, nonsense); }

int groups(int rank, const node::Exchange& exchange) {
  TestRank own(exchange, {}, "0-2,0-3,1-2,1-3");
  const auto* engine = own.service->engine();
  OD_REQUIRE(engine != nullptr);
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(exchange.size));
  exchange.allgather(engine->group, all.data(), sizeof engine->group);
  for (int i = 0; i < exchange.size; ++i) {
    const bool same = std::memcmp(&all[2 * static_cast<std::size_t>(i)], engine->group, 16) == 0;
    OD_REQUIRE(same == (i / 2 == rank / 2));
  }
  return 0;
}

TEST(SmpiService, RanksThatAllReachEachOtherAreAGroup) { expect_job(4, groups); }

int limit(int, const node::Exchange& exchange) {
  Options with;
  with.limit_bytes = 1 << 20;
  TestRank own(exchange, with);
  Service& service = *own.service;
  void* const first = service.alloc(600 << 10, nullptr);
  OD_REQUIRE(first != nullptr);
  OD_REQUIRE(service.alloc(600 << 10, nullptr) == nullptr);
  service.free(first, nullptr);
  OD_REQUIRE(service.alloc(600 << 10, nullptr) != nullptr);
  return 0;
}

TEST(SmpiService, MemoryIsLimited) { expect_job(1, limit); }

// Every block that comes and goes, of all sizes, gives its memory back.
int memory_is_bounded(int, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  std::uint64_t after_first = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<void*> blocks;
    for (std::uint64_t bytes = 0; bytes < 3 << 20; bytes = bytes * 3 / 2 + 1) {
      for (int i = 0; i < 5; ++i) blocks.push_back(service.alloc(bytes, nullptr));
    }
    for (void* block : blocks) OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
    if (round == 0) after_first = g_arena.next;
  }
  OD_REQUIRE(g_arena.next == after_first);
  return 0;
}

TEST(SmpiService, FreedMemoryIsReused) { expect_job(1, memory_is_bounded); }

int many_blocks(int, const node::Exchange& exchange) {
  TestRank own(exchange);
  Service& service = *own.service;
  constexpr int kBlocks = 1'000'000;
  std::vector<std::uint32_t*> blocks(kBlocks);
  std::vector<Place> places(kBlocks);
  for (int i = 0; i < kBlocks; ++i) {
    auto& block = blocks[static_cast<std::size_t>(i)];
    block = static_cast<std::uint32_t*>(service.alloc(64, nullptr));
    OD_REQUIRE(block != nullptr);
    *block = static_cast<std::uint32_t>(i);
    OD_REQUIRE(service.lend(block, 64, 1, &places[static_cast<std::size_t>(i)]) ==
               OVERDRIVE_SMPI_OK);
    service.free(block, nullptr);
  }
  for (int i = kBlocks - 1; i >= 0; --i) {
    const Place& place = places[static_cast<std::size_t>(i)];
    const void* address = nullptr;
    std::uint64_t view = 0;
    OD_REQUIRE(service.open(place, nullptr, &address, &view) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(*static_cast<const std::uint32_t*>(address) == static_cast<std::uint32_t>(i));
    service.close(place, view);
  }
  const std::uint64_t top = g_arena.next;
  for (int i = 0; i < kBlocks; ++i) OD_REQUIRE(service.alloc(64, nullptr) != nullptr);
  OD_REQUIRE(g_arena.next == top);
  return 0;
}

TEST(SmpiService, AMillionBlocksInFlight) { expect_job(1, many_blocks); }

// --- random traffic: blocks are allocated, lent, passed, kept, released and freed at random. The
// contents say which block it is; nobody may find anything else in a view.

struct Mail {
  Place place;
  std::uint64_t key;
};

int g_pipes[8][2];

std::uint64_t word_of(std::uint64_t key, std::uint64_t i) {
  return (key + i) * 0x9e3779b97f4a7c15u;
}

bool holds(const void* address, std::uint64_t bytes, std::uint64_t key) {
  const auto* const words = static_cast<const std::uint64_t*>(address);
  for (std::uint64_t i = 0; i < bytes / 8; ++i) {
    if (words[i] != word_of(key, i)) return false;
  }
  return true;
}

void fill(void* address, std::uint64_t bytes, std::uint64_t key) {
  auto* const words = static_cast<std::uint64_t*>(address);
  for (std::uint64_t i = 0; i < bytes / 8; ++i) words[i] = word_of(key, i);
}

int random_traffic(int rank, const node::Exchange& exchange) {
  const char* const text = std::getenv("OVERDRIVE_TEST_OPERATIONS");
  const long operations = (text != nullptr ? std::atol(text) : 100'000) / exchange.size;
  TestRank own(exchange);
  Service& service = *own.service;
  // One of four knows no distance, one is near the others, two are far from all others, who then
  // seem to read everything: they lend copies.
  if (rank % 4 == 1) service.set_far(0, 50, 200);
  if (rank % 4 > 1) service.set_far(kAllFetchedNs);
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  const auto below = [&random](std::uint64_t limit) { return random() % limit; };
  struct Owned {
    void* block;
    std::uint64_t bytes;
    std::uint64_t key;
  };
  struct Seen {
    Place place;
    const void* address;
    std::uint64_t view;
    std::uint64_t key;
  };
  std::vector<Owned> owned;
  std::vector<Seen> seen;
  std::uint64_t next_key = static_cast<std::uint64_t>(rank) << 40;
  bool ending = false;
  std::set<int> ended;  // peers that send nothing more
  const auto receive = [&]() -> int {
    Mail mail;
    const ssize_t got = read(g_pipes[rank][0], &mail, sizeof mail);
    if (got < 0) return errno == EAGAIN ? 0 : -1;
    if (got != sizeof mail) return -1;
    if (mail.place.bytes == ~std::uint64_t{0}) {
      ended.insert(static_cast<int>(mail.key));
      return 1;
    }
    Seen view = {mail.place, nullptr, 0, mail.key};
    if (service.open(mail.place, nullptr, &view.address, &view.view) != OVERDRIVE_SMPI_OK)
      return -1;
    if (!holds(view.address, mail.place.bytes, mail.key)) return -1;
    seen.push_back(view);
    return 1;
  };
  const auto send = [&](int to, const Mail& mail) -> bool {
    while (write(g_pipes[to][1], &mail, sizeof mail) != sizeof mail) {
      if (errno != EAGAIN || receive() < 0) return false;
      sched_yield();
    }
    return true;
  };
  for (long step = 0; step < operations; ++step) {
    const std::uint64_t what = below(10);
    OD_REQUIRE(receive() >= 0);
    if (what < 3 && owned.size() < 60) {
      const std::uint64_t bytes = below(20) == 0 ? 8 * below(40000) : 8 * below(300);
      void* const block = service.alloc(bytes, nullptr);
      OD_REQUIRE(block != nullptr);
      fill(block, bytes, ++next_key);
      owned.push_back({block, bytes, next_key});
    } else if (what < 7 && !owned.empty()) {
      const std::size_t at = below(owned.size());
      const Owned chosen = owned[at];
      const int to = static_cast<int>(below(static_cast<std::uint64_t>(exchange.size)));
      Mail mail = {};
      mail.key = chosen.key;
      if (what < 5) {
        OD_REQUIRE(service.lend(chosen.block, chosen.bytes, 1, &mail.place) == OVERDRIVE_SMPI_OK);
      } else {
        OD_REQUIRE(service.pass(chosen.block, chosen.bytes, &mail.place) == OVERDRIVE_SMPI_OK);
        owned[at] = owned.back();
        owned.pop_back();
      }
      OD_REQUIRE(send(to, mail));
    } else if (what == 7 && !owned.empty()) {
      const std::size_t at = below(owned.size());
      // Writing is the owner's right when nobody looks.
      if (service.lent(owned[at].block) == 0) {
        fill(owned[at].block, owned[at].bytes, ++next_key);
        owned[at].key = next_key;
      }
      if (below(2) == 0 || owned.size() > 50) {
        OD_REQUIRE(service.free(owned[at].block, nullptr) == OVERDRIVE_SMPI_OK);
        owned[at] = owned.back();
        owned.pop_back();
      }
    } else if (!seen.empty()) {
      const std::size_t at = below(seen.size());
      const Seen view = seen[at];
      OD_REQUIRE(holds(view.address, view.place.bytes, view.key));
      seen[at] = seen.back();
      seen.pop_back();
      if (view.place.passed != 0 && below(2) == 0 && owned.size() < 80) {
        void* block = nullptr;
        OD_REQUIRE(service.own(view.place, view.view, nullptr, &block) == OVERDRIVE_SMPI_OK);
        owned.push_back({block, view.place.bytes, view.key});
      } else {
        service.close(view.place, view.view);
      }
    }
  }
  Mail last = {};
  last.place.bytes = ~std::uint64_t{0};
  last.key = static_cast<std::uint64_t>(rank);
  for (int i = 0; i < exchange.size; ++i) OD_REQUIRE(send(i, last));
  while (ended.size() < static_cast<std::size_t>(exchange.size)) {
    const int got = receive();
    OD_REQUIRE(got >= 0);
    if (got == 0) sched_yield();
  }
  (void)ending;
  for (const Seen& view : seen) {
    OD_REQUIRE(holds(view.address, view.place.bytes, view.key));
    service.close(view.place, view.view);
  }
  for (const Owned& block : owned) {
    OD_REQUIRE(service.free(block.block, nullptr) == OVERDRIVE_SMPI_OK);
  }
  exchange.barrier();
  // Everything has come back: as many large blocks released as were ever allocated, and all the
  // small ones can be allocated again without new memory.
  OD_REQUIRE(ends_with_chunks_only(service, exchange));
  OD_REQUIRE(g_arena.sizes.size() <= kClassCount * 40);
  return 0;
}

TEST(SmpiService, RandomOwnershipTraffic) {
  for (auto& ends : g_pipes) ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  expect_job(8, random_traffic);
  for (auto& ends : g_pipes) {
    close(ends[0]);
    close(ends[1]);
  }
}

// --- the debug mode: each misuse in a process that may die of it

int debug_job(int rank, const node::Exchange& exchange, int misuse) {
  Options with;
  with.debug = true;
  TestRank own(exchange, with);
  Service& service = *own.service;
  Place place = {};
  char* block = nullptr;
  if (rank == 0) {
    block = static_cast<char*>(service.alloc(10000, "program.c:10"));
    std::memset(block, 1, 10000);
    if (service.lend(block + 5000, 100, 1, &place) != OVERDRIVE_SMPI_OK) return 9;
  }
  place = from_first(exchange, place);
  if (rank == 1) {
    const void* address = nullptr;
    std::uint64_t view = 0;
    if (service.open(place, "program.c:20", &address, &view) != OVERDRIVE_SMPI_OK) return 9;
    auto* const bytes = static_cast<volatile char*>(const_cast<void*>(address));
    if (bytes[99] != 1) return 2;
    if (misuse == 1) bytes[3] = 1;
    if (misuse == 4) {
      service.finish();
      return own.counters.smpi_leaked == 1 ? 0 : 3;
    }
    if (misuse != 5) service.close(place, view);
    if (misuse == 2 && bytes[0] == 1) return 4;
    if (misuse == 3) service.released_twice(view);
  }
  if (misuse == 1 || misuse == 2) return 0;  // the other one has died
  exchange.barrier();
  if (rank == 0) {
    // With misuse 5 the view is still there.
    block[0] = 2;
    if (service.lent(block) != 0) return 5;
    block[1] = 2;
  }
  return 0;
}

template <int misuse>
int debug_rank(int rank, const node::Exchange& exchange) {
  return debug_job(rank, exchange, misuse);
}

// Rank 1 gets a block of rank 0, lends it and passes it on; rank 0 makes a larger block of that
// memory, which begins earlier, and rank 1 gets that: it may write to all of it.
int comes_again_within_another(int rank, const node::Exchange& exchange) {
  Options with;
  with.debug = true;
  TestRank own(exchange, with);
  Service& service = *own.service;
  constexpr std::uint64_t kBytes = 200000;
  std::vector<Place> all(2);
  void* block = nullptr;
  std::byte* pad = nullptr;
  Place place = {}, lent = {};
  const auto get = [&](const Place& from) {
    const void* address = nullptr;
    std::uint64_t view = 0;
    return service.open(from, "program.c:20", &address, &view) == OVERDRIVE_SMPI_OK &&
           service.own(from, view, "program.c:21", &block) == OVERDRIVE_SMPI_OK;
  };
  if (rank == 0) {
    pad = static_cast<std::byte*>(service.alloc(kBytes, nullptr));
    block = service.alloc(kBytes, nullptr);
    OD_REQUIRE(static_cast<std::byte*>(block) > pad);
    OD_REQUIRE(service.pass(block, kBytes, &place) == OVERDRIVE_SMPI_OK);
  }
  place = from_first(exchange, place);
  if (rank == 1) {
    OD_REQUIRE(get(place));
    OD_REQUIRE(service.lend(block, kBytes, 1, &lent) == OVERDRIVE_SMPI_OK);
    service.take_back(lent, 1);
    OD_REQUIRE(service.pass(block, kBytes, &place) == OVERDRIVE_SMPI_OK);
  }
  exchange.allgather(&place, all.data(), sizeof place);
  if (rank == 0) {
    OD_REQUIRE(get(all[1]));
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
    OD_REQUIRE(service.free(pad, nullptr) == OVERDRIVE_SMPI_OK);
    // As a heap does that joins what is free.
    OD_REQUIRE(g_arena.sizes.empty());
    g_arena.spare.clear();
    g_arena.next = 1 << 20;
    block = service.alloc(3 * kBytes, nullptr);
    OD_REQUIRE(service.pass(block, 3 * kBytes, &place) == OVERDRIVE_SMPI_OK);
  }
  place = from_first(exchange, place);
  if (rank == 1) {
    OD_REQUIRE(get(place));
    // Upwards and with different values: also over what was the record of the smaller block.
    auto* const bytes = static_cast<volatile unsigned char*>(block);
    for (std::uint64_t i = 0; i < 3 * kBytes; ++i) bytes[i] = static_cast<unsigned char>(i % 251);
    OD_REQUIRE(service.free(block, nullptr) == OVERDRIVE_SMPI_OK);
  }
  exchange.barrier();
  return 0;
}

// The address sanitizer was there before our handler and ends the process in its own way.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kKilledByFault = 1;
#else
constexpr int kKilledByFault = 128 + SIGSEGV;
#endif

TEST(SmpiDebug, RightUseIsNotDisturbed) {
  EXPECT_EQ(node::run_forked_job(2, debug_rank<0>), (std::vector<int>{0, 0}));
}
TEST(SmpiDebug, WhatWasLentComesAgainWithinAnother) { expect_job(2, comes_again_within_another); }
// What views of their own are made of; an emulator of user programs (qemu 7.2) refuses it.
bool pages_can_be_mapped_twice() {
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  void* const again = mremap(page, 0, 4096, MREMAP_MAYMOVE);
  if (again != MAP_FAILED) munmap(again, 4096);
  munmap(page, 4096);
  return again != MAP_FAILED;
}

TEST(SmpiDebug, WritingThroughAViewFaults) {
  if (!pages_can_be_mapped_twice()) GTEST_SKIP() << "views are not watched here";
  EXPECT_EQ(node::run_forked_job(2, debug_rank<1>)[1], kKilledByFault);
}
TEST(SmpiDebug, UseAfterReleaseFaults) {
  if (!pages_can_be_mapped_twice()) GTEST_SKIP() << "views are not watched here";
  EXPECT_EQ(node::run_forked_job(2, debug_rank<2>)[1], kKilledByFault);
}
TEST(SmpiDebug, WritingWhileLentFaults) {
  EXPECT_EQ(node::run_forked_job(2, debug_rank<5>)[0], kKilledByFault);
}

}  // namespace
}  // namespace od::smpi
