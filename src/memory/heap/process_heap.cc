// The one heap of the process: see process_heap.h.
#include "memory/heap/process_heap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/heap/arena.h"
#include "memory/heap/budget.h"
#include "memory/heap/environment.h"
#include "memory/heap/fork_snapshot.h"
#include "memory/heap/mutex.h"
#include "memory/heap/own_pages.h"
#include "memory/heap/span_allocator.h"
#include "memory/heap/touch_history.h"

// The C library's own functions under the names that are never interposed.
extern "C" {
void* __libc_malloc(size_t bytes);
void __libc_free(void* block);
}

namespace od::memory::heap {

constinit Hot hot = {.min_bytes = 0,
                     .start = UINTPTR_MAX,
                     .bytes = 0,
                     .next_malloc = __libc_malloc,
                     .next_free = __libc_free,
                     .keeps_small = false};

namespace {

enum Begun : int { kNotYet = 0, kUsable = 1, kFailed = 2 };

// Process-wide by nature. No constructor may run: it would come after the first use.
constinit HeapSettings g_settings;
unsigned g_local_ranks;
constinit Arena g_arena;
constinit Budget g_budget;
constinit SpanAllocator g_spans;
constinit ReachMap g_map = {};
constinit Mutex g_begin_mutex;
int g_begun;  // Begun
// Whether this thread makes the arena: what the C library allocates for itself meanwhile is its
// own.
__thread bool t_begins __attribute__((tls_model("initial-exec")));
HugePages g_huge;
// Where ordinary memory gets huge pages unasked, ours must not do with small ones.
bool g_only_huge;
// Where it does not: huge pages only for what the program is expected to touch.
bool g_as_foreseen;
constinit TouchHistory g_history;
bool g_ever_huge;  // collapsing has worked
// Whether it makes no difference which thread touches memory first.
bool g_one_node;
const char* g_why = "";
uint64_t g_private_count;

// Memory that blocks got before the program touched it; statistics and a limit, hence relaxed.
uint64_t g_committed_bytes;
void note_commitment(uint64_t bytes) {
  __atomic_add_fetch(&g_committed_bytes, bytes, __ATOMIC_RELAXED);
}
void drop_commitment(uint64_t bytes) {
  uint64_t now = __atomic_load_n(&g_committed_bytes, __ATOMIC_RELAXED);
  while (now != 0 &&
         !__atomic_compare_exchange_n(&g_committed_bytes, &now, now > bytes ? now - bytes : 0, true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// Which 2 MiB of the arena are huge pages, as far as they were made so here and not given back.
// Only speed depends on it, hence relaxed.
constexpr uint64_t kMostUnits = uint64_t{kMostPages} * kPageBytes / kHugeBytes;
uint64_t g_huge_units[kMostUnits / 64];

uint64_t unit_of(const char* at) {
  return static_cast<uint64_t>(at - g_arena.start()) / kHugeBytes;
}
bool is_huge(uint64_t unit) {
  return (__atomic_load_n(&g_huge_units[unit / 64], __ATOMIC_RELAXED) >> (unit % 64) & 1) != 0;
}
void set_huge(uint64_t unit, bool huge) {
  const uint64_t bit = uint64_t{1} << (unit % 64);
  if (huge) {
    __atomic_fetch_or(&g_huge_units[unit / 64], bit, __ATOMIC_RELAXED);
  } else if (is_huge(unit)) {
    __atomic_fetch_and(&g_huge_units[unit / 64], ~bit, __ATOMIC_RELAXED);
  }
}

bool open_pages(void*, char* start, uint64_t bytes) { return g_arena.open(start, bytes); }
void note_discarded(uint64_t offset, uint64_t bytes) {
  drop_commitment(bytes);
  for (uint64_t unit = offset / kHugeBytes; unit <= (offset + bytes - 1) / kHugeBytes; ++unit) {
    set_huge(unit, false);
  }
}
bool give_back_pages(void*, char* start, uint64_t bytes) {
  if (!g_arena.give_back(start, bytes)) return false;
  note_discarded(static_cast<uint64_t>(start - g_arena.start()), bytes);
  return true;
}

// Of whole units. `reusable`: nobody needs what is there. Small pages that are there already would
// be unmapped one by one to be copied: it is faster to begin anew.
void make_huge(char* start, uint64_t bytes, bool reusable) {
  const int saved_errno = errno;
  const uint64_t end = unit_of(start) + bytes / kHugeBytes;
  for (uint64_t first = unit_of(start); first < end;) {
    uint64_t next = first;
    while (next < end && !is_huge(next)) ++next;
    if (next == first) {
      ++first;
      continue;
    }
    char* const from = g_arena.start() + first * kHugeBytes;
    const uint64_t run = (next - first) * kHugeBytes;
    if (reusable) give_back_pages(nullptr, from, run);
    if (!collapse(from, run)) {
      // A kernel that cannot do it need not be asked again.
      if (errno == EINVAL && !g_ever_huge) g_huge = HugePages::kNone;
      break;
    }
    g_ever_huge = true;
    for (; first < next; ++first) set_huge(first, true);
    note_commitment(run);
  }
  errno = saved_errno;
}

// Whether a fresh block may get all its memory at once, though the program may never touch it.
bool may_commit(uint64_t bytes) {
  if (g_settings.huge == HugeChoice::kEager) return g_budget.may_commit(bytes, 0);
  return g_one_node &&
         g_budget.may_commit(bytes, __atomic_load_n(&g_committed_bytes, __ATOMIC_RELAXED));
}

// Spans below the size of a huge page share some.
void fill_pages(void*, char* start, uint64_t bytes) {
  if (g_huge != HugePages::kCollapse) return;
  if (g_as_foreseen && (!g_one_node || !g_history.foresees_touch(start, bytes))) return;
  if (may_commit(bytes)) make_huge(start, bytes, false);
}

bool chosen(const char* line, const char* word) {
  const char* at = strchr(line, '[');
  return at != nullptr && strncmp(at + 1, word, strlen(word)) == 0 && at[1 + strlen(word)] == ']';
}

// What the kernel does for plain anonymous memory decides what ours must be to be no slower; see
// docs/design/reachable-memory.md for the measurements.
HugePages find_huge_policy(HugeChoice choice) {
  if (choice == HugeChoice::kOff) return HugePages::kNone;
  char line[80];
  read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", line, sizeof line);
  const bool by_kernel = chosen(line, "advise") || chosen(line, "always") ||
                         chosen(line, "within_size") || chosen(line, "force");
  read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
  g_only_huge = chosen(line, "always");
  if (choice == HugeChoice::kEager) return HugePages::kCollapse;
  // With "madvise" ordinary memory stays small unless its owner asks, and what the program never
  // touches takes no memory. To collapse everything ahead there made first touches quicker, but
  // large tables that are hardly used took all their memory (measured: Intel MPI 38 MiB per rank,
  // 7 ms in MPI_Init): `eager` is for those who want it.
  g_as_foreseen = chosen(line, "madvise");
  if (g_as_foreseen) return HugePages::kCollapse;
  if (!g_only_huge) return HugePages::kNone;
  return by_kernel ? HugePages::kByKernel : HugePages::kCollapse;
}

void in_child() { hot.min_bytes = SIZE_MAX; }

bool begin() {
  g_budget.init();
  g_huge = find_huge_policy(g_settings.huge);
  if (!g_arena.create(g_settings.limit_bytes, g_huge, &g_why, g_local_ranks)) return false;
  const uint64_t keep = g_settings.keep_bytes != 0 ? g_settings.keep_bytes : g_budget.keep_bytes();
  const SpanAllocator::System system = {
      .open = open_pages, .give_back = give_back_pages, .fill = fill_pages, .context = nullptr};
  if (!g_spans.init(g_arena.start(), g_arena.bytes(), keep, system)) {
    g_why = "no address space for the heap's records";
    g_arena.destroy();
    return false;
  }
  g_map.arena_start = reinterpret_cast<uintptr_t>(g_arena.start());
  g_map.arena_bytes = g_arena.bytes();
  g_map.file_bytes = g_arena.bytes();
  if (!snapshot_on_fork({.arena = &g_arena,
                         .spans = &g_spans,
                         .map = &g_map,
                         .budget = &g_budget,
                         .in_child = in_child})) {
    // A child would write into its parent.
    g_why = "no handler for forks can be registered";
    g_map = {};
    g_spans.destroy();
    g_arena.destroy();
    return false;
  }
  own_pages.begin(&g_arena, &g_map, note_discarded);
  hot.bytes = g_map.arena_bytes;
  // Release pairs with the acquire in is_ours().
  __atomic_store_n(&hot.start, g_map.arena_start, __ATOMIC_RELEASE);
  return true;
}

// Makes the arena once.
bool usable() {
  // Acquire pairs with the release below.
  int begun = __atomic_load_n(&g_begun, __ATOMIC_ACQUIRE);
  if (__builtin_expect(begun == kNotYet, 0)) {
    if (t_begins) return false;
    const int saved_errno = errno;
    Locked locked(g_begin_mutex);
    begun = g_begun;
    if (begun == kNotYet) {
      t_begins = true;
      begun = begin() ? kUsable : kFailed;
      t_begins = false;
      if (begun == kFailed) __atomic_store_n(&hot.min_bytes, SIZE_MAX, __ATOMIC_RELAXED);
      __atomic_store_n(&g_begun, begun, __ATOMIC_RELEASE);
    }
    errno = saved_errno;
  }
  return begun == kUsable;
}

}  // namespace

bool decide(const char* const* environment, Allocator allocator, unsigned local_ranks) {
  if (environment == nullptr) return false;
  g_local_ranks = local_ranks;
  g_settings = read_heap_settings(environment);
  size_t min_bytes = SIZE_MAX;
  if (g_settings.off) {
    g_why = "switched off";
  } else if (under_valgrind(environment)) {
    g_why = "the process runs under valgrind";
    g_settings.off = true;
  } else if (allocator == Allocator::kSanitizer) {
    // It knows of each byte whom it belongs to; copying static data whole would be an error to it.
    g_why = "a sanitizer watches the program's memory";
    g_settings.off = true;
  } else if (allocator == Allocator::kForeign) {
    g_why = "the program brings its own malloc";
  } else if (g_settings.disabled) {
    g_why = "only static data is to be shared";
  } else if (!looks_like_rank(environment)) {
    g_why = "no launcher has started this process as a rank";
    g_settings.off = true;
  } else {
    min_bytes = g_settings.min_bytes;
    g_one_node = within_one_node();
  }
  __atomic_store_n(&hot.min_bytes, min_bytes, __ATOMIC_RELAXED);
  return true;
}

namespace {

enum class Contents : uint8_t { kNone, kUnneeded, kNeeded };

// Makes the first `bytes` of a block as fast as the C library's memory would be; false when that
// cannot be. `contents`: what it holds.
bool give_huge_pages(char* block, uint64_t bytes, Contents contents) {
  if (g_huge != HugePages::kCollapse || bytes < kHugeBytes) return true;
  // Part of a huge page takes longer in small pages than the whole, whose rest has other uses; but
  // if that has contents it may take very long.
  constexpr uint64_t kLeastPart = 384 << 10;
  const uint64_t part = contents == Contents::kNone ? kLeastPart : kHugeBytes;
  const auto start = reinterpret_cast<uintptr_t>(block);
  const uintptr_t first = (start + part - 1) / kHugeBytes * kHugeBytes;
  const uintptr_t end = (start + bytes + kHugeBytes - part) / kHugeBytes * kHugeBytes;
  if (first >= end) return true;
  if (!may_commit(end - first)) return !g_only_huge;
  make_huge(reinterpret_cast<char*>(first), end - first, contents == Contents::kUnneeded);
  return true;
}

// Makes the whole huge pages in [start, end) that have no memory yet: where nothing is lost if they
// stay as they are.
void make_empty_huge(char* start, char* end) {
  const auto up = (reinterpret_cast<uintptr_t>(start) + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
  char* at = reinterpret_cast<char*>(up);
  while (at + kHugeBytes <= end) {
    char* const from = at;
    while (at + kHugeBytes <= end && !is_huge(unit_of(at)) && has_no_memory(at, kHugeBytes)) {
      at += kHugeBytes;
    }
    const auto run = static_cast<uint64_t>(at - from);
    if (run == 0) {
      at += kHugeBytes;
    } else {
      if (!may_commit(run)) return;
      make_huge(from, run, false);
    }
  }
}

void* allocate_with_room(size_t bytes, size_t room, size_t alignment, bool* zero) {
  if (!usable() || g_arena.is_private()) return nullptr;
  void* block = g_spans.allocate(room, alignment, zero);
  if (block != nullptr) {
    if (g_as_foreseen) {
      char* const start = static_cast<char*>(block);
      if (*zero && bytes >= kHugeBytes && room == bytes && g_one_node &&
          g_huge == HugePages::kCollapse && g_history.foresees_touch(start, bytes)) {
        make_empty_huge(start, start + bytes);
      }
      return block;
    }
    if (bytes < kHugeBytes || g_huge != HugePages::kCollapse ||
        g_spans.prepared(block) >= bytes / kPageBytes * kPageBytes) {
      return block;
    }
    if (give_huge_pages(static_cast<char*>(block), bytes,
                        *zero ? Contents::kNone : Contents::kUnneeded)) {
      g_spans.set_prepared(block, bytes);
      return block;
    }
  }
  // The C library's memory gets huge pages as it is touched; ours would not.
  if (block != nullptr) g_spans.free(block);
  __atomic_add_fetch(&g_private_count, 1, __ATOMIC_RELAXED);  // statistics
  return nullptr;
}

}  // namespace

bool may_share() { return !g_settings.off; }

void* allocate_again(size_t bytes) {
  // Beyond, huge pages have to be looked after; before there is an arena, no shard has anything.
  // What a forked child finds there is not shared, but memory.
  return bytes < kHugeBytes && bytes != 0 ? g_spans.take_cached(bytes) : nullptr;
}

void* allocate(size_t bytes, size_t alignment, bool* zero) {
  return allocate_with_room(bytes, bytes, alignment, zero);
}

void* allocate_growing(size_t bytes, const void* old, size_t old_bytes) {
  // Address space only: the pages are not there before they are touched. What grows once will grow
  // again, and the C library would move a large block without copying it.
  const size_t room = bytes > g_arena.bytes() / 16 ? bytes : 2 * bytes;
  bool zero = false;
  void* block = allocate_with_room(bytes, room, 0, &zero);
  if (block != nullptr && g_as_foreseen && bytes >= kHugeBytes && g_huge == HugePages::kCollapse &&
      has_memory(static_cast<const char*>(old), old_bytes)) {
    make_empty_huge(static_cast<char*>(block), static_cast<char*>(block) + bytes);
  }
  return block;
}

void release(void* block) {
  if (__builtin_expect(own_pages.count() != 0, 0)) {
    const size_t bytes = g_spans.usable_bytes(block);
    // Pages that cannot be had back are lost with the block.
    if (own_pages.excepted(block, bytes) && !own_pages.restore(block, bytes)) return;
  }
  g_spans.free(block);
}
size_t usable_bytes(const void* block) { return g_spans.usable_bytes(block); }

bool resize(void* block, size_t bytes) {
  // What the program has mapped or protected must not come into other blocks.
  if (own_pages.count() != 0 && own_pages.excepted(block, g_spans.usable_bytes(block)))
    return false;
  const uint64_t old_bytes = g_as_foreseen ? g_spans.usable_bytes(block) : 0;
  if (!g_spans.resize(block, bytes)) return false;
  if (g_huge != HugePages::kCollapse || bytes < kHugeBytes || g_arena.is_private()) return true;
  if (g_as_foreseen) {
    // Who has filled the block will fill what it grows by.
    char* const start = static_cast<char*>(block);
    uint64_t wanted = bytes + bytes / 8;
    if (wanted > g_spans.usable_bytes(block)) wanted = g_spans.usable_bytes(block);
    if (old_bytes < wanted && has_memory(start, old_bytes)) {
      make_empty_huge(start + old_bytes, start + wanted);
    }
  } else {
    const uint64_t prepared = g_spans.prepared(block);
    if (prepared < bytes) {
      // A little more than is asked for, and whole huge pages: blocks that grow often grow by small
      // steps.
      char* const start = static_cast<char*>(block);
      const auto address = reinterpret_cast<uintptr_t>(block);
      uint64_t wanted = bytes + bytes / 8;
      wanted += (kHugeBytes - (address + wanted) % kHugeBytes) % kHugeBytes;
      if (wanted > g_spans.usable_bytes(block)) wanted = g_spans.usable_bytes(block);
      const uint64_t from = prepared < kHugeBytes ? 0 : prepared - kHugeBytes;
      give_huge_pages(start + from, wanted - from, Contents::kNeeded);
      g_spans.set_prepared(block, wanted);
    }
  }
  return true;
}

namespace {

const ReachMap* service_prepare() {
  if (g_settings.off || !usable()) return nullptr;
  return g_arena.is_private() ? nullptr : &g_map;
}

int service_descriptor() {
  // Acquire pairs with the release in usable().
  return __atomic_load_n(&g_begun, __ATOMIC_ACQUIRE) == kUsable && !g_arena.is_private()
             ? g_arena.descriptor()
             : -1;
}

void* service_reserve(uint64_t bytes) {
  bool zero = false;
  if (service_descriptor() < 0) return nullptr;
  void* block = g_spans.allocate(bytes, kHugeBytes, &zero);
  if (block == nullptr || zero) return block;
  if (g_arena.give_back(static_cast<char*>(block), bytes)) return block;
  g_spans.free(block);
  return nullptr;
}

void service_give_back(void* reserved) { g_spans.free(reserved); }

uint64_t service_offset(const void* in_arena) {
  return reinterpret_cast<uintptr_t>(in_arena) - g_map.arena_start;
}

bool service_add_segment(void* start, uint64_t bytes, void* alias, uint64_t kept_bytes) {
  if (g_map.segment_count == ReachMap::kMostSegments) return false;
  const auto address = reinterpret_cast<uintptr_t>(start);
  uint32_t at = g_map.segment_count;
  for (; at > 0 && g_map.segments[at - 1].start > address; --at) {
    g_map.segments[at] = g_map.segments[at - 1];
  }
  g_map.segments[at] = {address, bytes, service_offset(alias), kept_bytes};
  ++g_map.segment_count;
  // The same pages twice would be twice in a core file.
  madvise(alias, bytes, MADV_DONTDUMP);
  return true;
}

void service_drop_segment(void* start) {
  uint32_t at = 0;
  while (at < g_map.segment_count &&
         g_map.segments[at].start != reinterpret_cast<uintptr_t>(start)) {
    ++at;
  }
  if (at == g_map.segment_count) return;
  --g_map.segment_count;
  for (; at < g_map.segment_count; ++at) g_map.segments[at] = g_map.segments[at + 1];
}

int service_huge_plan(uint64_t bytes) {
  if (g_huge != HugePages::kCollapse || g_as_foreseen) return 0;
  if (may_commit(bytes)) return 1;
  return g_only_huge ? -1 : 0;
}

void service_collapse(void* start, uint64_t bytes) {
  if (collapse(static_cast<char*>(start), bytes)) note_commitment(bytes);
}

void service_usage(ReachUsage* usage) {
  *usage = {};
  // Acquire pairs with the release in usable().
  if (__atomic_load_n(&g_begun, __ATOMIC_ACQUIRE) != kUsable) return;
  const SpanAllocator::Usage spans = g_spans.usage();
  usage->used_bytes = spans.used_bytes;
  usage->kept_bytes = spans.cached_bytes + spans.dirty_free_bytes;
  usage->top_bytes = spans.top_bytes;
  usage->private_count = __atomic_load_n(&g_private_count, __ATOMIC_RELAXED);
  usage->fork_count = fork_count();
}

const char* service_why() { return g_why; }

constexpr ReachService kService = {.version = kReachServiceVersion,
                                   .size_bytes = sizeof(ReachService),
                                   .prepare = service_prepare,
                                   .descriptor = service_descriptor,
                                   .reserve = service_reserve,
                                   .give_back = service_give_back,
                                   .offset = service_offset,
                                   .add_segment = service_add_segment,
                                   .drop_segment = service_drop_segment,
                                   .huge_plan = service_huge_plan,
                                   .collapse = service_collapse,
                                   .usage = service_usage,
                                   .why = service_why};

}  // namespace

const ReachService* reach_service() { return &kService; }

}  // namespace od::memory::heap
