// Threads of one rank that use its blocks at once: owners who ask whether they may write, lend and
// free, and viewers who read what they lend. What a thread writes after lent() has said nobody
// looks is written after all viewers have read, also where that answer was only remembered.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "smpi/service.h"

namespace od::smpi {
namespace {

using Place = overdrive_smpi_place;

constexpr std::uint64_t kArenaBytes = 64 << 20;
constexpr int kBlockBytes = 1000;

// Memory that is never used again: what threads share here are blocks, not a heap.
std::byte* g_arena = nullptr;
std::uint64_t g_next = 0;  // the service allocates under its own mutex

void* allocate(std::uint64_t bytes, std::uint64_t alignment) {
  g_next = (g_next + alignment - 1) / alignment * alignment + bytes;
  return g_next <= kArenaBytes ? g_arena + g_next - bytes : nullptr;
}
void release(void*) {}
std::uint64_t offset_of(const void* address, std::uint64_t) {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - g_arena);
}
int gather(const void* from, void* to, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  return 0;
}
int nobody_else() { return 0; }

class SmpiThreads : public testing::Test {
 protected:
  SmpiThreads() {
    g_next = 1 << 16;
    g_arena = static_cast<std::byte*>(mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    node::Exchange alone;
    alone.allgather = gather;
    alone.barrier = nobody_else;
    node::JoinOptions join;
    join.region.buffers_bytes = 1 << 20;
    node_ = node::Node::join(alone, join);
    Options options;
    options.arena = g_arena;
    options.arena_bytes = kArenaBytes;
    options.allocate = allocate;
    options.release = release;
    options.reach_offset = offset_of;
    service_ = std::make_unique<Service>(*node_, options, counters_);
  }
  ~SmpiThreads() override {
    service_.reset();
    node_.reset();
    munmap(g_arena, kArenaBytes);
  }

  std::unique_ptr<node::Node> node_;
  observe::Counters counters_;
  std::unique_ptr<Service> service_;
};

// From an owner to its viewer.
struct Letter {
  std::atomic<bool> full{false};
  Place place = {};
  std::uint64_t value = 0;
};

TEST_F(SmpiThreads, OwnersWriteWhenTheirViewersHaveRead) {
  constexpr int kPairs = 3;
  constexpr std::uint64_t kRounds = 500;
  std::vector<Letter> letters(kPairs);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (Letter& letter : letters) {
    threads.emplace_back([&] {
      auto* block = static_cast<std::uint64_t*>(service_->alloc(kBlockBytes, nullptr));
      for (std::uint64_t i = 0; i < kRounds; ++i) {
        while (service_->lent(block) != 0) std::this_thread::yield();
        if (service_->lent(block) != 0) ++wrong;  // remembered now
        block[0] = block[kBlockBytes / 8 - 1] = i;
        // Acquire: pairs with the viewer's release of the letter.
        while (letter.full.load(std::memory_order_acquire)) std::this_thread::yield();
        if (service_->lend(block, kBlockBytes, 1, &letter.place) != OVERDRIVE_SMPI_OK) ++wrong;
        letter.value = i;
        // Release: pairs with the viewer's acquire.
        letter.full.store(true, std::memory_order_release);
        if (i % 100 != 99) continue;
        // The viewer's until it has read; the next block is another one.
        if (service_->free(block, nullptr) != OVERDRIVE_SMPI_OK) ++wrong;
        block = static_cast<std::uint64_t*>(service_->alloc(kBlockBytes, nullptr));
      }
    });
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < kRounds; ++i) {
        // Acquire: pairs with the owner's release of the letter.
        while (!letter.full.load(std::memory_order_acquire)) std::this_thread::yield();
        const Place place = letter.place;
        const std::uint64_t value = letter.value;
        // Release: pairs with the owner's acquire.
        letter.full.store(false, std::memory_order_release);
        const void* address = nullptr;
        std::uint64_t view = 0;
        if (service_->open(place, nullptr, &address, &view) != OVERDRIVE_SMPI_OK) {
          ++wrong;
          continue;
        }
        const auto* const data = static_cast<const std::uint64_t*>(address);
        if (data[0] != value || data[kBlockBytes / 8 - 1] != value) ++wrong;
        service_->close(place, view);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(counters_.smpi_lent, kPairs * kRounds);
  EXPECT_EQ(counters_.smpi_views, kPairs * kRounds);
}

// Threads that take turns with one block: what one has been told holds for the next.
TEST_F(SmpiThreads, TurnsWithOneBlock) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 2000;
  auto* const block = static_cast<int*>(service_->alloc(kBlockBytes, nullptr));
  block[0] = 0;
  std::mutex turn;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const std::lock_guard lock(turn);
        if (service_->lent(block) != 0) ++wrong;
        ++block[0];
        if ((i + t) % 3 != 0) continue;
        Place place = {};
        const void* address = nullptr;
        std::uint64_t view = 0;
        if (service_->offer(block, 8, &place) != OVERDRIVE_SMPI_OK) ++wrong;
        if (service_->lent(block) != 1) ++wrong;
        if (service_->open(place, nullptr, &address, &view) != OVERDRIVE_SMPI_OK) ++wrong;
        service_->close(place, view);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(block[0], kThreads * kRounds);
  EXPECT_EQ(service_->free(block, nullptr), OVERDRIVE_SMPI_OK);
  EXPECT_EQ(service_->lent(block), -1);
}

}  // namespace
}  // namespace od::smpi
