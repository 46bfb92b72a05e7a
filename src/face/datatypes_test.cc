// The type cache without MPI: what is found, forgotten and reused, also by several threads at once.
#include "face/datatypes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace od::face {
namespace {

std::atomic<int> made{0};
std::atomic<int> disposed{0};

// Every layout carries its handle as size and as host type.
std::unique_ptr<p2p::Layout> make(host::Handle type) {
  if (type % 16 == 15) return nullptr;
  made.fetch_add(1, std::memory_order_relaxed);
  auto layout = std::make_unique<p2p::Layout>();
  layout->size = static_cast<std::int64_t>(type);
  layout->host_type = type;
  layout->dispose = [](host::Handle) { disposed.fetch_add(1, std::memory_order_relaxed); };
  return layout;
}

std::unique_ptr<TypeCache> new_cache() {
  made = disposed = 0;
  return std::make_unique<TypeCache>(make);
}

TEST(TypeCache, AsksOnceAndForgetsWhatIsFreed) {
  auto cache = new_cache();
  const p2p::LayoutRef* first = cache->find(1000);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ((*first)->size, 1000);
  EXPECT_EQ(cache->find(1000), first);
  EXPECT_EQ(made, 1);
  {
    const p2p::LayoutRef kept = *first;
    cache->freed(1000);
    EXPECT_EQ(disposed, 0);
    EXPECT_EQ(kept->size, 1000);
  }
  EXPECT_EQ(disposed, 1);
  ASSERT_NE(cache->find(1000), nullptr);
  EXPECT_EQ(made, 2);
  cache->freed(4711);  // never seen
}

TEST(TypeCache, UnknownTypesAreAskedForEveryTime) {
  auto cache = new_cache();
  EXPECT_EQ(cache->find(15), nullptr);
  EXPECT_EQ(cache->find(15), nullptr);
  EXPECT_EQ(made, 0);
}

TEST(TypeCache, CommittingForgetsWhatARecycledHandleLeftBehind) {
  auto cache = new_cache();
  EXPECT_FALSE(cache->known_as_committed(32));
  cache->find(32);
  cache->committed(32);
  EXPECT_TRUE(cache->known_as_committed(32));
  EXPECT_EQ(disposed, 1);
  cache->find(32);
  EXPECT_EQ(made, 2);
  cache->freed(32);
  EXPECT_TRUE(cache->known_as_committed(32)) << "another reference to the type may still be in use";
}

TEST(TypeCache, ManyHandlesShareSlotsWithoutMixingUp) {
  auto cache = new_cache();
  for (int round = 0; round < 2; ++round) {
    for (host::Handle type = 16; type < 16 * 5000; type += 16) {
      const p2p::LayoutRef* found = cache->find(type);
      ASSERT_NE(found, nullptr);
      ASSERT_EQ((*found)->size, static_cast<std::int64_t>(type));
    }
  }
  EXPECT_EQ(made, 4999);
}

TEST(TypeCache, ThreadsNeverSeeTheLayoutOfAnotherHandle) {
  auto cache = new_cache();
  std::atomic<bool> wrong{false};
  std::vector<std::thread> threads;
  // Each thread has handles of its own, as MPI demands, but they share slots and entries.
  for (host::Handle thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 300; ++round) {
        for (host::Handle i = 1; i <= 40; ++i) {
          const host::Handle type = (i * 4 + thread) * 16;
          cache->committed(type);
          for (int again = 0; again < 3; ++again) {
            const p2p::LayoutRef* found = cache->find(type);
            if (found == nullptr || (*found)->size != static_cast<std::int64_t>(type)) {
              wrong.store(true, std::memory_order_relaxed);
            }
          }
          if ((i + static_cast<host::Handle>(round)) % 2 == 0) cache->freed(type);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
  cache.reset();
  EXPECT_EQ(made, disposed);
}

}  // namespace
}  // namespace od::face
