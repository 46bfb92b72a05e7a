// Allocates spans of whole pages from one large range of addresses: the heap of reachable memory.
//
// Everything the allocator knows is kept outside the range, one record per page, so that nobody who
// writes into a block, local or a peer, can harm it. Two layers:
//   shards   stacks of freed spans by size class, chosen by thread; they hold spans as they are
//   center   free spans, joined with free neighbours, in lists by size class; the rest of the range
//            above `top` has never been used
// A span is in use, in a shard (kCached), in the center (kFree, with kFreeEnd on its last page), or
// being given back to the system (kBusy). What is kept for reuse is limited by keep_bytes; beyond
// that the memory of free spans is given back. A span whose pages are known to be holes is `zero`.
// Locks: a shard's and the center's are never held together, except by lock_all().
// Depends on the C library alone: it is part of the preloaded library and serves malloc.
#ifndef OVERDRIVE_MEMORY_HEAP_SPAN_ALLOCATOR_H_
#define OVERDRIVE_MEMORY_HEAP_SPAN_ALLOCATOR_H_

#include <stddef.h>
#include <stdint.h>

#include "memory/heap/mutex.h"
#include "memory/heap/size_classes.h"

namespace od::memory::heap {

class SpanAllocator {
 public:
  // How the range's memory is managed; called without locks of a shard.
  struct System {
    // Makes [start, start + bytes) usable for the first time; false: the range ends here.
    bool (*open)(void* context, char* start, uint64_t bytes) = nullptr;
    // Gives memory back; afterwards it reads as zero. False: it is kept.
    bool (*give_back)(void* context, char* start, uint64_t bytes) = nullptr;
    // May give memory to a part that spans below kFillPages are about to share; it stays zero.
    void (*fill)(void* context, char* start, uint64_t bytes) = nullptr;
    void* context = nullptr;
  };
  struct Usage {
    uint64_t used_bytes;
    uint64_t cached_bytes;      // in shards
    uint64_t dirty_free_bytes;  // in the center and not given back
    uint64_t top_bytes;         // of the range that have ever been used
  };

  // `base` on a page; false when there is no memory for the records. The object is usable as
  // zero-initialised static memory: it has no constructor to run.
  bool init(char* base, uint64_t bytes, uint64_t keep_bytes, const System& system);
  void destroy();  // for tests

  // Whole pages, aligned to `alignment` (a power of two; at least a page is given anyway). Null
  // when the range is exhausted. `*zero`: the memory is known to be all zero.
  void* allocate(size_t bytes, size_t alignment, bool* zero);
  // The usual case of allocate(), for 1 byte to 64 MiB: what this thread's shard has, as it is.
  // Null when it has none.
  void* take_cached(size_t bytes);
  // Ends the process with a message when `block` is not one of ours in use.
  void free(void* block);
  size_t usable_bytes(const void* block) const;
  // Changes the size of a block where it lies; false when that is not possible.
  bool resize(void* block, size_t bytes);

  // How far a block in use has got huge pages: a note for the caller. 0 for a block that was not
  // used as it is before.
  uint64_t prepared(const void* block) const;
  void set_prepared(void* block, uint64_t bytes);

  void lock_all();
  void unlock_all();
  // In a forked child: the locks are free, and nothing above top_bytes() is open.
  void begin_in_child();
  Usage usage();
  // Calls `visit(context, start, bytes)` for every block in use, in ascending order. With all locks
  // held.
  void for_each_used(void (*visit)(void* context, char* start, uint64_t bytes),
                     void* context) const;
  uint64_t top_bytes() const { return uint64_t{top_} * kPageBytes; }

 private:
  enum State : uint8_t { kNone, kUsed, kCached, kFree, kFreeEnd, kBusy };
  // Of the first page of a span; of a free span's last page only `pages` and `state`.
  struct Page {
    uint32_t pages;
    uint32_t next;
    uint32_t previous;
    // Of a free span: how many have memory, as far as that is known; of a used one: prepared().
    uint32_t dirty_pages;
    // Neighbours look whether it is kFree or kFreeEnd, which only the center's holder sets and
    // clears; everything else changes without that lock, hence relaxed atomic.
    uint8_t state;
    // Of a used span: the class whose size it has exactly, or kNoClass.
    uint8_t size_class;
    bool zero;
    State get() const { return static_cast<State>(__atomic_load_n(&state, __ATOMIC_RELAXED)); }
    void set(State value) { __atomic_store_n(&state, value, __ATOMIC_RELAXED); }
  };
  static constexpr uint8_t kNoClass = 255;
  static_assert(kClassCount <= kNoClass);
  static constexpr unsigned kShards = 16;
  // Spans above this class (64 MiB) are rare and go to the center at once.
  static constexpr unsigned kCachedClasses = class_below(16384) + 1;
  // The least that is opened at once: what is open and never used would still fill a core file.
  static constexpr uint32_t kOpenPages = 1024;
  // Huge pages: the unit of what is opened and filled.
  static constexpr uint32_t kFillPages = 512;

  struct alignas(128) Shard {
    Mutex mutex;
    uint32_t first[kCachedClasses] = {};
  };

  Shard& shard() {
    // Threads' control blocks lie at least a page apart.
    const auto thread = reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
    return shards_[((thread >> 12) ^ (thread >> 20)) % kShards];
  }
  void* pop(Shard& own, unsigned size_class);
  void* take_locked(Shard& own, unsigned size_class);
  void put(Shard& own, uint32_t page);
  void put_locked(uint32_t page);
  uint32_t index_of(const void* block) const;
  void* address_of(uint32_t page) const { return base_ + uint64_t{page} * kPageBytes; }
  [[noreturn]] static void fail(const char* what);

  uint32_t take_from_center(uint32_t pages, uint32_t align_pages);
  uint32_t take_from_lists(uint32_t pages, uint32_t align_pages);
  uint32_t take_from_top(uint32_t pages, uint32_t align_pages, uint32_t apart);
  void fill_to(uint32_t page, uint32_t end);
  // The first page from there on whose address is a multiple of so many pages.
  uint32_t aligned_page(uint32_t from, uint32_t align_pages) const;
  void mark_used(uint32_t page, uint32_t pages, bool zero);
  void set_pages(Page& used, uint32_t pages);
  void insert(uint32_t page, uint32_t pages, uint32_t dirty_pages, bool zero);
  void insert_joined(uint32_t page, uint32_t pages, uint32_t dirty_pages, bool zero);
  void remove(uint32_t page);
  uint32_t free_span_ending_before(uint32_t page) const;
  void give_to_center(uint32_t page);
  void give_back_center();
  void flush_shards();

  char* base_ = nullptr;
  uint32_t page_count_ = 0;
  uint32_t top_ = 0;     // first page never used
  uint32_t open_ = 0;    // first page not opened
  uint32_t filled_ = 0;  // first page that small spans have not filled
  uint64_t keep_bytes_ = 0;
  System system_;
  Page* pages_ = nullptr;
  uint64_t record_bytes_ = 0;
  uint64_t cached_bytes_ = 0;  // in all shards; atomic

  Mutex center_;
  uint64_t dirty_free_bytes_ = 0;
  uint64_t free_bytes_ = 0;
  uint64_t nonempty_[(kClassCount + 63) / 64] = {};
  uint32_t lists_[kClassCount] = {};
  Shard shards_[kShards] = {};
};

// With the shard's lock, or without it while there is one thread.
inline void SpanAllocator::put(Shard& own, uint32_t page) {
  Page& record = pages_[page];
  record.set(kCached);
  record.zero = false;
  record.next = own.first[record.size_class];
  own.first[record.size_class] = page;
}

inline void* SpanAllocator::pop(Shard& own, unsigned size_class) {
  const uint32_t page = own.first[size_class];
  if (page == 0) return nullptr;
  Page& record = pages_[page];
  own.first[size_class] = record.next;
  record.set(kUsed);
  return address_of(page);
}

__attribute__((always_inline)) inline void* SpanAllocator::take_cached(size_t bytes) {
  const unsigned size_class =
      class_above(static_cast<uint32_t>((bytes + kPageBytes - 1) / kPageBytes));
  Shard& own = shard();
  if (!OD_SINGLE_THREADED) return take_locked(own, size_class);
  void* const block = pop(own, size_class);
  if (block != nullptr) cached_bytes_ -= uint64_t{class_pages(size_class)} * kPageBytes;
  return block;
}

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_SPAN_ALLOCATOR_H_
