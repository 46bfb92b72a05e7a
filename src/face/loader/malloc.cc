// The malloc family: large blocks come from the reachable heap, all others from the C library.
//
// Preloaded, so the whole process is bound to these functions, unless the program itself or an
// earlier library defines malloc; then nobody calls us. If a library behind us brings another
// allocator (linked jemalloc, tcmalloc, a sanitizer's) everything is passed on to it, because its
// other functions and ours must agree. Calls come from before any constructor, from the dynamic
// linker and from any thread. Each thread keeps some of the small blocks that it has freed
// (SmallCache), which makes up for the way to the C library being longer by a comparison and a
// jump.
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf_view.h"
#include "memory/guard/guards.h"
#include "memory/heap/environment.h"
#include "memory/heap/process_heap.h"
#include "memory/heap/small_cache.h"
#include "node/launch_variables.h"
#include "process.h"

// Of the dynamic linker; weak, so that no library has to be linked for it.
extern r_debug linker_debug __asm__("_r_debug") __attribute__((weak));
extern ElfW(Dyn) own_dynamic[] __asm__("_DYNAMIC") __attribute__((visibility("hidden")));

// The C library's own functions under the names that are never interposed.
extern "C" {
void* __libc_malloc(size_t bytes);
void __libc_free(void* block);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}

namespace od::loader {
namespace {

using memory::heap::hot;
using memory::heap::is_ours;

using memory::heap::SmallCache;

#define OD_LIKELY(condition) __builtin_expect((condition), 1)
#define OD_UNLIKELY(condition) __builtin_expect((condition), 0)
#define OD_OUT_OF_LINE __attribute__((noinline))

// Before anything is known: finds out who allocates behind us.
void* FirstCalloc(size_t count, size_t bytes);
void* FirstRealloc(void* block, size_t bytes);
void* FirstMemalign(size_t alignment, size_t bytes);
void* FirstAlignedAlloc(size_t alignment, size_t bytes);
size_t FirstUsableSize(void* block);

// The less frequent functions of who allocates behind us; the others are in `hot`.
struct Next {
  void* (*calloc)(size_t, size_t) = FirstCalloc;
  void* (*realloc)(void*, size_t) = FirstRealloc;
  void* (*memalign)(size_t, size_t) = FirstMemalign;
  void* (*aligned_alloc)(size_t, size_t) = FirstAlignedAlloc;
  size_t (*usable_size)(void*) = FirstUsableSize;
};
constinit Next g_next;
bool g_found;      // who that is
bool g_foreign;    // another allocator than the C library's serves the program
bool g_sanitized;  // a sanitizer watches the program's memory
bool g_decided;
// Whether this thread is finding out what is reachable: functions of the C library that are called
// for that allocate themselves (before glibc 2.34 dlvsym does when it finds nothing).
__thread bool t_deciding __attribute__((tls_model("initial-exec")));

// Walks the objects of the process in the order in which names are looked up.
struct Search {
  bool passed_us = false;
  bool first_is_ours = false;  // who defines malloc before everybody else
  bool anybody = false;
  ElfView behind;  // the first after us that defines malloc
  bool found = false;
  bool sanitized = false;

  void Visit(const ElfView& elf, bool us) {
    if (!elf.Defines("malloc")) return;
    // Those that keep a record of every byte; all of them bring a malloc.
    static constexpr const char* kSanitizers[] = {"__asan_init", "__tsan_init", "__msan_init",
                                                  "__hwasan_init"};
    for (const char* name : kSanitizers) {
      if (elf.Defines(name)) sanitized = true;
    }
    if (!anybody) first_is_ours = us;
    anybody = true;
    if (us) {
      passed_us = true;
    } else if (passed_us && !found) {
      behind = elf;
      found = true;
    }
  }
};

int VisitObject(dl_phdr_info* info, size_t, void* search) {
  ElfView elf;
  if (elf.Open(*info)) static_cast<Search*>(search)->Visit(elf, elf.Contains(&g_next));
  return 0;
}

bool IsLibc(const char* soname) {
  static constexpr char kName[] = "libc.so";
  for (size_t i = 0; i < sizeof kName - 1; ++i) {
    if (soname[i] != kName[i]) return false;
  }
  return true;
}

template <typename F>
bool Take(const ElfView& elf, const char* name, F* function) {
  const ElfW(Sym)* symbol = elf.Find(name);
  if (symbol == nullptr || symbol->st_value == 0 ||
      ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC) {
    return false;
  }
  *function = reinterpret_cast<F>(elf.base() + symbol->st_value);
  return true;
}

// Nothing of the C library may be called here: a sanitizer that is looking for the functions which
// it interposes has its own in their places already.
OD_OUT_OF_LINE void FindNext() {
  Search search;
  if (&linker_debug != nullptr && linker_debug.r_map != nullptr) {
    for (const link_map* object = linker_debug.r_map; object != nullptr; object = object->l_next) {
      ElfView elf;
      if (elf.Open(object->l_addr, object->l_ld)) search.Visit(elf, object->l_ld == own_dynamic);
    }
  } else {
    dl_iterate_phdr(&VisitObject, &search);
  }
  Next next;
  auto* next_malloc = &__libc_malloc;
  auto* next_free = &__libc_free;
  next.calloc = __libc_calloc;
  next.realloc = __libc_realloc;
  next.memalign = __libc_memalign;
  const bool libc = !search.found || IsLibc(search.behind.soname());
  if (!libc) {
    Next other;
    auto* other_malloc = next_malloc;
    auto* other_free = next_free;
    if (Take(search.behind, "malloc", &other_malloc) && Take(search.behind, "free", &other_free) &&
        Take(search.behind, "calloc", &other.calloc) &&
        Take(search.behind, "realloc", &other.realloc) &&
        Take(search.behind, "memalign", &other.memalign)) {
      next = other;
      next_malloc = other_malloc;
      next_free = other_free;
    }
  }
  if (!search.found || !Take(search.behind, "aligned_alloc", &next.aligned_alloc)) {
    next.aligned_alloc = next.memalign;
  }
  if (!search.found || !Take(search.behind, "malloc_usable_size", &next.usable_size)) {
    next.usable_size = [](void*) -> size_t { return 0; };
  }
  g_foreign = !libc || !search.first_is_ours;
  g_sanitized = search.sanitized;
  // Reading the environment can wait.
  if (g_sanitized) hot.min_bytes = SIZE_MAX;
  g_next = next;
  hot.next_malloc = next_malloc;
  hot.next_free = next_free;
  g_found = true;
}

void* FirstCalloc(size_t count, size_t bytes) {
  FindNext();
  return g_next.calloc(count, bytes);
}
void* FirstRealloc(void* block, size_t bytes) {
  FindNext();
  return g_next.realloc(block, bytes);
}
void* FirstMemalign(size_t alignment, size_t bytes) {
  FindNext();
  return g_next.memalign(alignment, bytes);
}
void* FirstAlignedAlloc(size_t alignment, size_t bytes) {
  FindNext();
  return g_next.aligned_alloc(alignment, bytes);
}
size_t FirstUsableSize(void* block) {
  FindNext();
  return g_next.usable_size(block);
}

// This library is there when the process starts, so its part of a thread's storage has a fixed
// place.
__thread SmallCache t_cache __attribute__((tls_model("initial-exec")));
pthread_key_t g_cache_key;

void CloseCache(void* cache) { static_cast<SmallCache*>(cache)->close(hot.next_free); }

// Whether threads may keep small blocks of the C library.
bool MayKeepSmall() {
  // Who watches or tunes the C library's allocator wants to see every call.
  static constexpr const char* kWatchers[] = {"MALLOC_CHECK_", "MALLOC_PERTURB_", "MALLOC_TRACE",
                                              "MALLOC_TCACHE_COUNT_", "GLIBC_TUNABLES"};
  for (const char* name : kWatchers) {
    if (memory::heap::find_variable(environ, name) != nullptr) return false;
  }
  if (!SmallCache::works(__libc_malloc, __libc_free, g_next.usable_size)) return false;
  return pthread_key_create(&g_cache_key, CloseCache) == 0;
}

// What is allocated meanwhile is the C library's.
class Deciding {
 public:
  Deciding() { t_deciding = true; }
  ~Deciding() { t_deciding = false; }
  Deciding(const Deciding&) = delete;
  Deciding& operator=(const Deciding&) = delete;
};

void Decide() {
  if (!g_found) FindNext();
  Deciding deciding;
  using memory::heap::Allocator;
  const Allocator allocator = g_sanitized ? Allocator::kSanitizer
                              : g_foreign ? Allocator::kForeign
                                          : Allocator::kLibc;
  const node::LocalPlace place = node::local_place(node::Variables(environ));
  if (!memory::heap::decide(environ, allocator, static_cast<unsigned>(place.size))) return;
  g_decided = true;
  // The first allocation is before the constructors of most libraries: what starts threads there,
  // or counts processors, shall find the final ones. Under a sanitizer our constructor does it.
  if (!g_sanitized) PinOnce(environ);
  // Processes that share nothing keep the C library's allocator as it is.
  if (hot.min_bytes != SIZE_MAX) hot.keeps_small = MayKeepSmall();
}

// The cache had no room for it.
OD_OUT_OF_LINE void FreeBeyondCache(void* block, size_t chunk) {
  SmallCache& cache = t_cache;
  if (cache.state == SmallCache::kNew) {
    // First, because it may allocate.
    if (pthread_setspecific(g_cache_key, &cache) != 0) {
      cache.state = SmallCache::kClosed;
    } else if (cache.state == SmallCache::kNew) {
      cache.open();
    }
    const unsigned bin = SmallCache::bin_of(chunk);
    if (bin < SmallCache::kBins && cache.put(block, bin)) return;
  }
  hot.next_free(block);
}

// The block's contents are what they would be if it had been freed already.
OD_OUT_OF_LINE void FreeSuspicious(void* block, size_t chunk) {
  SmallCache& cache = t_cache;
  const unsigned bin = SmallCache::bin_of(chunk);
  if (cache.is_here(block, bin)) {
    static constexpr char kText[] = "free(): double free detected by Overdrive\n";
    if (write(STDERR_FILENO, kText, sizeof kText - 1) < 0) abort();
    abort();
  }
  if (!cache.put(block, bin)) FreeBeyondCache(block, chunk);
}

// A block of at least hot.min_bytes, which is 0 until that is known; null: not ours.
OD_OUT_OF_LINE void* Large(size_t bytes, size_t alignment, bool* zero) {
  if (OD_UNLIKELY(hot.min_bytes == 0)) {
    if (t_deciding) return nullptr;
    Decide();
    if (bytes < hot.min_bytes || hot.min_bytes == 0) return nullptr;
  }
  if (bytes > PTRDIFF_MAX) return nullptr;  // the C library knows what to say
  return memory::heap::allocate(bytes, alignment, zero);
}

void* AllocateAligned(size_t alignment, size_t bytes) {
  if (OD_UNLIKELY(bytes >= hot.min_bytes)) {
    bool zero;
    if (void* block = Large(bytes, alignment, &zero)) return block;
  }
  return g_next.memalign(alignment, bytes);
}

// A block of the C library has grown to a large one: from here on it is reachable.
OD_OUT_OF_LINE void* MoveToHeap(void* block, size_t bytes) {
  const size_t old_bytes = g_next.usable_size(block);
  if (old_bytes == 0 || old_bytes >= hot.min_bytes) return nullptr;
  bool zero;
  void* moved = Large(bytes, 0, &zero);
  if (moved == nullptr) return nullptr;
  memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
  hot.next_free(block);
  return moved;
}

OD_OUT_OF_LINE void* FreshLargeMalloc(size_t bytes) {
  bool zero;
  void* block = Large(bytes, 0, &zero);
  return block != nullptr ? block : hot.next_malloc(bytes);
}

OD_OUT_OF_LINE void* LargeMalloc(size_t bytes) {
  if (void* block = memory::heap::allocate_again(bytes)) return block;
  return FreshLargeMalloc(bytes);
}

OD_OUT_OF_LINE void* LargeCalloc(size_t count, size_t bytes) {
  size_t total;
  bool zero;
  void* block = nullptr;
  if (!__builtin_mul_overflow(count, bytes, &total)) block = Large(total, 0, &zero);
  if (block == nullptr) return g_next.calloc(count, bytes);
  return zero ? block : memset(block, 0, total);
}

OD_OUT_OF_LINE void* LargeRealloc(void* block, size_t bytes) {
  if (block == nullptr) return LargeMalloc(bytes);
  void* moved = hot.min_bytes != 0 ? MoveToHeap(block, bytes) : nullptr;
  return moved != nullptr ? moved : g_next.realloc(block, bytes);
}

// What is on its way to a block arrives before the block changes hands.
inline void SettleBlock(const void* block) {
  if (!memory::guard::is_active()) return;
  memory::guard::guards.settle_range(reinterpret_cast<uintptr_t>(block),
                                     memory::heap::usable_bytes(block));
}

OD_OUT_OF_LINE void* ReallocOurs(void* block, size_t bytes) {
  SettleBlock(block);
  if (bytes == 0) {  // as the C library does
    memory::heap::release(block);
    return nullptr;
  }
  const size_t old_bytes = memory::heap::usable_bytes(block);
  // What becomes small goes back to the C library, but not at the first small step.
  const bool small = bytes < hot.min_bytes && bytes < old_bytes / 2;
  if (!small && memory::heap::resize(block, bytes)) return block;
  void* moved = nullptr;
  if (!small && bytes > old_bytes) {
    bool zero;
    moved = memory::heap::allocate_growing(bytes, block, old_bytes);
    if (moved == nullptr) moved = Large(bytes, 0, &zero);
  }
  if (moved == nullptr) moved = hot.next_malloc(bytes);
  if (moved == nullptr) return nullptr;
  memcpy(moved, block, old_bytes < bytes ? old_bytes : bytes);
  memory::heap::release(block);
  return moved;
}

bool IsPowerOfTwo(size_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

const void* HeapService() {
  // Where another allocator is first, nobody has asked us for anything yet.
  if (!g_decided) Decide();
  return memory::heap::reach_service();
}

}  // namespace od::loader

using namespace od::loader;

#define OD_EXPORT extern "C" __attribute__((visibility("default")))

// AddressSanitizer ends a program in whose list of libraries its own does not come first, because
// others might allocate in its place. We pass everything on to it, so it may be content. It asks
// for this function by name; what ASAN_OPTIONS says counts more.
OD_EXPORT const char* __asan_default_options() { return "verify_asan_link_order=0"; }

OD_EXPORT void* malloc(size_t bytes) noexcept {
  if (OD_LIKELY(bytes <= SmallCache::kMostBytes)) {
    if (void* block = t_cache.take(bytes)) return block;
    if (OD_UNLIKELY(bytes >= hot.min_bytes)) return LargeMalloc(bytes);
    return hot.next_malloc(bytes);
  }
  // Every way but one ends with a jump: no frame is set up for the usual ones.
  if (OD_UNLIKELY(bytes >= hot.min_bytes)) return LargeMalloc(bytes);
  if (bytes <= SmallCache::kMostMiddleBytes) {
    if (void* block = t_cache.take_middle(bytes)) return block;
  }
  return hot.next_malloc(bytes);
}

OD_EXPORT void free(void* block) noexcept {
  if (OD_UNLIKELY(is_ours(block))) {
    SettleBlock(block);
    od::memory::heap::release(block);
    return;
  }
  if (OD_LIKELY(hot.keeps_small && block != nullptr)) {
    const size_t chunk = SmallCache::chunk_of(block);
    const unsigned bin = SmallCache::bin_of(chunk);
    SmallCache& cache = t_cache;
    if (OD_LIKELY(bin < SmallCache::kBins)) {
      if (OD_UNLIKELY(SmallCache::may_be_here(block, &cache))) return FreeSuspicious(block, chunk);
      if (OD_LIKELY(cache.put(block, bin))) return;
      return FreeBeyondCache(block, chunk);
    }
    if (bin < SmallCache::bin_of(SmallCache::kMostMiddleBytes) && !SmallCache::is_mapped(block)) {
      if (OD_UNLIKELY(cache.state != SmallCache::kOpen)) return FreeBeyondCache(block, chunk);
      block = cache.put_middle(block, chunk);
      if (block == nullptr) return;
    }
  }
  hot.next_free(block);
}

OD_EXPORT void* calloc(size_t count, size_t bytes) noexcept {
  size_t total;
  if (OD_UNLIKELY(__builtin_mul_overflow(count, bytes, &total) || total >= hot.min_bytes)) {
    return LargeCalloc(count, bytes);
  }
  if (total <= SmallCache::kMostBytes) {
    if (void* block = t_cache.take(total)) return memset(block, 0, total);
  }
  return g_next.calloc(count, bytes);
}

OD_EXPORT void* realloc(void* block, size_t bytes) noexcept {
  if (OD_UNLIKELY(is_ours(block))) return ReallocOurs(block, bytes);
  if (OD_UNLIKELY(bytes >= hot.min_bytes)) return LargeRealloc(block, bytes);
  return g_next.realloc(block, bytes);
}

OD_EXPORT void* reallocarray(void* block, size_t count, size_t bytes) noexcept {
  size_t total;
  if (__builtin_mul_overflow(count, bytes, &total)) {
    errno = ENOMEM;
    return nullptr;
  }
  return realloc(block, total);
}

OD_EXPORT void* memalign(size_t alignment, size_t bytes) noexcept {
  return IsPowerOfTwo(alignment) ? AllocateAligned(alignment, bytes)
                                 : g_next.memalign(alignment, bytes);
}

OD_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  // What is no power of two is an error to newer C libraries, and rounded up by older ones.
  return IsPowerOfTwo(alignment) ? AllocateAligned(alignment, bytes)
                                 : g_next.aligned_alloc(alignment, bytes);
}

OD_EXPORT int posix_memalign(void** result, size_t alignment, size_t bytes) noexcept {
  if (!IsPowerOfTwo(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved_errno = errno;
  void* block = AllocateAligned(alignment, bytes);
  errno = saved_errno;
  if (block == nullptr) return ENOMEM;
  *result = block;
  return 0;
}

OD_EXPORT void* valloc(size_t bytes) noexcept {
  return AllocateAligned(static_cast<size_t>(getpagesize()), bytes);
}

OD_EXPORT void* pvalloc(size_t bytes) noexcept {
  const auto page_bytes = static_cast<size_t>(getpagesize());
  size_t rounded;
  if (__builtin_add_overflow(bytes, page_bytes - 1, &rounded)) {
    errno = ENOMEM;
    return nullptr;
  }
  return AllocateAligned(page_bytes, rounded / page_bytes * page_bytes);
}

OD_EXPORT size_t malloc_usable_size(void* block) noexcept {
  if (block == nullptr) return 0;
  return is_ours(block) ? od::memory::heap::usable_bytes(block) : g_next.usable_size(block);
}
