// Spans of pages: see span_allocator.h. Page 0 is never handed out, so that 0 ends every list; its
// memory is the reach file's header.
#include "memory/heap/span_allocator.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/round.h"

namespace od::memory::heap {
namespace {

uint64_t add_relaxed(uint64_t* counter, uint64_t value) {
  if (OD_SINGLE_THREADED) return *counter += value;
  // Relaxed: a limit and statistics; nothing else depends on it.
  return __atomic_add_fetch(counter, value, __ATOMIC_RELAXED);
}

}  // namespace

bool SpanAllocator::init(char* base, uint64_t bytes, uint64_t keep_bytes, const System& system) {
  const uint64_t pages = bytes / kPageBytes;
  if (pages < 2) return false;
  page_count_ = static_cast<uint32_t>(pages < kMostPages ? pages : kMostPages);
  record_bytes_ = (uint64_t{page_count_} + 1) * sizeof(Page);
  void* records = mmap(nullptr, record_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (records == MAP_FAILED) return false;
  // Debuggers write what was never touched as zeros.
  madvise(records, record_bytes_, MADV_DONTDUMP);
  pages_ = static_cast<Page*>(records);
  base_ = base;
  keep_bytes_ = keep_bytes;
  system_ = system;
  top_ = 1;
  // Not the first unit: many programs never use more.
  filled_ = kFillPages;
  // The header on page 0 is written before anything is allocated.
  open_ = page_count_ < kOpenPages ? page_count_ : kOpenPages;
  if (system_.open(system_.context, base_, uint64_t{open_} * kPageBytes)) return true;
  destroy();
  return false;
}

void SpanAllocator::destroy() { munmap(pages_, record_bytes_); }

void SpanAllocator::fail(const char* what) {
  static constexpr char kPrefix[] = "overdrive: heap: ";
  if (write(STDERR_FILENO, kPrefix, sizeof kPrefix - 1) < 0 ||
      write(STDERR_FILENO, what, strlen(what)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
    abort();
  }
  abort();
}

uint32_t SpanAllocator::index_of(const void* block) const {
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(block) - base_);
  if (offset % kPageBytes != 0 || offset / kPageBytes >= page_count_) fail("invalid pointer");
  return static_cast<uint32_t>(offset / kPageBytes);
}

void* SpanAllocator::allocate(size_t bytes, size_t alignment, bool* zero) {
  if (bytes > uint64_t{page_count_} * kPageBytes) return nullptr;
  const uint32_t wanted = static_cast<uint32_t>((bytes + kPageBytes - 1) / kPageBytes);
  const unsigned size_class = class_above(wanted == 0 ? 1 : wanted);
  const uint32_t pages = class_pages(size_class);
  uint32_t align_pages = 1;
  if (alignment > kPageBytes) {
    if (alignment > uint64_t{page_count_} * kPageBytes) return nullptr;
    align_pages = static_cast<uint32_t>(alignment / kPageBytes);
  }
  if (size_class < kCachedClasses && bytes != 0) {
    void* const block = take_cached(bytes);
    if (block != nullptr) {
      *zero = false;
      if (reinterpret_cast<uintptr_t>(block) % (uint64_t{align_pages} * kPageBytes) == 0) {
        return block;
      }
      // Aligned blocks are rare.
      free(block);
    }
  }
  const uint32_t page = take_from_center(pages, align_pages);
  if (page == 0) return nullptr;
  *zero = pages_[page].zero;
  return address_of(page);
}

void SpanAllocator::free(void* block) {
  const uint32_t page = index_of(block);
  Page& record = pages_[page];
  if (__builtin_expect(record.get() != kUsed, 0)) {
    fail(record.get() == kNone ? "invalid pointer" : "double free");
  }
  const uint64_t bytes = uint64_t{record.pages} * kPageBytes;
  const unsigned size_class = record.size_class;
  if (size_class < kCachedClasses) {
    // Relaxed: the limit need not be exact.
    const uint64_t cached = __atomic_load_n(&cached_bytes_, __ATOMIC_RELAXED);
    if (cached + bytes <= keep_bytes_) {
      if (!OD_SINGLE_THREADED) return put_locked(page);
      put(shard(), page);
      cached_bytes_ = cached + bytes;
      return;
    }
  }
  record.set(kBusy);
  record.zero = false;
  give_to_center(page);
}

__attribute__((noinline)) void* SpanAllocator::take_locked(Shard& own, unsigned size_class) {
  own.mutex.lock();
  void* const block = pop(own, size_class);
  own.mutex.unlock();
  if (block != nullptr) {
    add_relaxed(&cached_bytes_, ~(uint64_t{class_pages(size_class)} * kPageBytes) + 1);
  }
  return block;
}

__attribute__((noinline)) void SpanAllocator::put_locked(uint32_t page) {
  const uint64_t bytes = uint64_t{pages_[page].pages} * kPageBytes;
  Shard& own = shard();
  own.mutex.lock();
  put(own, page);
  own.mutex.unlock();
  add_relaxed(&cached_bytes_, bytes);
}

// Of a span that nobody else can see (kBusy).
void SpanAllocator::give_to_center(uint32_t page) {
  Page& record = pages_[page];
  const uint64_t bytes = uint64_t{record.pages} * kPageBytes;
  center_.lock();
  if (dirty_free_bytes_ + bytes > keep_bytes_) {
    // What was freed just now is wanted again soonest; what lay there longer goes first.
    const bool keep_this = bytes <= keep_bytes_ / 2;
    if (keep_this) {
      give_back_center();
    } else {
      center_.unlock();
      record.zero = system_.give_back(system_.context, static_cast<char*>(address_of(page)), bytes);
      center_.lock();
    }
  }
  insert_joined(page, record.pages, record.zero ? 0 : record.pages, record.zero);
  center_.unlock();
}

// Gives back all memory of free spans; the lock is released meanwhile.
void SpanAllocator::give_back_center() {
  uint32_t taken = 0;
  for (uint32_t& list : lists_) {
    for (uint32_t page = list; page != 0;) {
      const uint32_t next = pages_[page].next;
      if (!pages_[page].zero) {
        remove(page);
        pages_[page].set(kBusy);
        pages_[page].next = taken;
        taken = page;
      }
      page = next;
    }
  }
  while (taken != 0) {
    Page& record = pages_[taken];
    const uint32_t next = record.next;
    const uint64_t bytes = uint64_t{record.pages} * kPageBytes;
    center_.unlock();
    const bool zero =
        system_.give_back(system_.context, static_cast<char*>(address_of(taken)), bytes);
    center_.lock();
    insert_joined(taken, record.pages, zero ? 0 : record.pages, zero);
    taken = next;
  }
}

size_t SpanAllocator::usable_bytes(const void* block) const {
  const Page& record = pages_[index_of(block)];
  if (record.get() != kUsed) fail("invalid pointer");
  return uint64_t{record.pages} * kPageBytes;
}

bool SpanAllocator::resize(void* block, size_t bytes) {
  const uint32_t page = index_of(block);
  Page& record = pages_[page];
  if (record.get() != kUsed) fail("invalid pointer");
  if (bytes > uint64_t{page_count_} * kPageBytes) return false;
  uint32_t wanted = static_cast<uint32_t>((bytes + kPageBytes - 1) / kPageBytes);
  if (wanted == 0) wanted = 1;
  const uint32_t now = record.pages;
  if (wanted <= now) {
    const uint32_t pages = class_pages(class_above(wanted));
    // A quarter less is worth it, and always what is large.
    if (pages >= now || (now - pages < now / 4 && now - pages < 256)) return true;
    center_.lock();
    set_pages(record, pages);
    insert_joined(page + pages, now - pages, now - pages, false);
    center_.unlock();
    return true;
  }
  const uint32_t pages = class_pages(class_above(wanted));
  const uint32_t more = pages - now;
  const uint32_t after = page + now;
  bool grown = false;
  center_.lock();
  if (after == top_) {
    grown = take_from_top(more, 1, 0) == after;
  } else if (pages_[after].get() == kFree && pages_[after].pages >= more) {
    const uint32_t rest = pages_[after].pages - more;
    const bool zero = pages_[after].zero;
    const uint32_t dirty = pages_[after].dirty_pages;
    remove(after);
    if (rest > 0) insert(after + more, rest, dirty > more ? dirty - more : 0, zero);
    grown = true;
  }
  if (grown) {
    pages_[after].set(kNone);
    set_pages(record, pages);
    record.zero = false;
  }
  center_.unlock();
  return grown;
}

uint64_t SpanAllocator::prepared(const void* block) const {
  return uint64_t{pages_[index_of(block)].dirty_pages} * kPageBytes;
}

void SpanAllocator::set_prepared(void* block, uint64_t bytes) {
  pages_[index_of(block)].dirty_pages = static_cast<uint32_t>(bytes / kPageBytes);
}

// ---- The center; its lock is held, except where said otherwise.

// Takes the lock itself.
uint32_t SpanAllocator::take_from_center(uint32_t pages, uint32_t align_pages) {
  Locked locked(center_);
  uint32_t page = take_from_lists(pages, align_pages);
  if (page != 0) return page;
  // Relaxed: whether it is worth looking at what the shards keep.
  if (__atomic_load_n(&cached_bytes_, __ATOMIC_RELAXED) >= uint64_t{pages} * kPageBytes) {
    center_.unlock();
    flush_shards();
    center_.lock();
    page = take_from_lists(pages, align_pages);
    if (page != 0) return page;
  }
  // Arrays that a loop walks through side by side had better not be equal in the address bits that
  // choose the bank of a memory module: a page between large spans, as the C library leaves it.
  page = take_from_top(pages, align_pages, pages >= kFillPages && align_pages == 1 ? 1 : 0);
  if (page != 0) return page;
  center_.unlock();
  flush_shards();  // everything, before giving up
  center_.lock();
  return take_from_lists(pages, align_pages);
}

uint32_t SpanAllocator::take_from_lists(uint32_t pages, uint32_t align_pages) {
  // Any span of the classes from here on holds the pages; an aligned one if it has room to spare.
  const uint64_t room = uint64_t{pages} + align_pages - 1;
  if (room >= kMostPages) return 0;
  unsigned size_class = class_above(static_cast<uint32_t>(room));
  unsigned word = size_class / 64;
  uint64_t bits = nonempty_[word] & (~uint64_t{0} << (size_class % 64));
  while (bits == 0) {
    if (++word == sizeof nonempty_ / sizeof nonempty_[0]) return 0;
    bits = nonempty_[word];
  }
  size_class = word * 64 + static_cast<unsigned>(__builtin_ctzll(bits));
  const uint32_t found = lists_[size_class];
  const uint32_t found_pages = pages_[found].pages;
  const bool zero = pages_[found].zero;
  uint32_t dirty = pages_[found].dirty_pages;
  remove(found);
  // Where in a mixed span the memory is, is not known; the parts share the count.
  const auto take_dirty = [&dirty](uint32_t most) {
    const uint32_t taken = dirty < most ? dirty : most;
    dirty -= taken;
    return taken;
  };
  const uint32_t page = aligned_page(found, align_pages);
  take_dirty(pages);
  if (page > found) insert(found, page - found, take_dirty(page - found), zero);
  const uint32_t rest = found + found_pages - (page + pages);
  if (rest > 0) insert(page + pages, rest, take_dirty(rest), zero);
  mark_used(page, pages, zero);
  return page;
}

uint32_t SpanAllocator::take_from_top(uint32_t pages, uint32_t align_pages, uint32_t apart) {
  const uint32_t page = aligned_page(top_ + apart, align_pages);
  const uint64_t end = uint64_t{page} + pages;
  if (end > page_count_) return 0;
  if (end > open_) {
    uint64_t opened = end > uint64_t{open_} + kOpenPages ? end : uint64_t{open_} + kOpenPages;
    opened = round_up(opened, kFillPages);
    if (opened > page_count_) opened = page_count_;
    if (!system_.open(system_.context, static_cast<char*>(address_of(open_)),
                      (opened - open_) * kPageBytes)) {
      return 0;
    }
    open_ = static_cast<uint32_t>(opened);
  }
  const uint32_t gap = page - top_;
  const uint32_t gap_start = top_;
  top_ = static_cast<uint32_t>(end);
  if (gap > 0) insert_joined(gap_start, gap, 0, true);
  mark_used(page, pages, true);
  if (pages < kFillPages) fill_to(page, static_cast<uint32_t>(end));
  return page;
}

// Small spans lie side by side, so what they need of memory is known before it is touched.
void SpanAllocator::fill_to(uint32_t page, uint32_t end) {
  if (end <= filled_ || system_.fill == nullptr) return;
  const uint32_t from = page > filled_ ? page / kFillPages * kFillPages : filled_;
  filled_ = static_cast<uint32_t>(round_up(end, kFillPages));
  if (filled_ <= open_) {
    system_.fill(system_.context, static_cast<char*>(address_of(from)),
                 uint64_t{filled_ - from} * kPageBytes);
  }
}

// The range itself begins at a multiple of a huge page only.
uint32_t SpanAllocator::aligned_page(uint32_t from, uint32_t align_pages) const {
  const uint64_t base = reinterpret_cast<uintptr_t>(base_) / kPageBytes;
  return static_cast<uint32_t>(round_up(base + from, align_pages) - base);
}

void SpanAllocator::mark_used(uint32_t page, uint32_t pages, bool zero) {
  set_pages(pages_[page], pages);
  pages_[page].set(kUsed);
  pages_[page].dirty_pages = 0;
  pages_[page].zero = zero;
}

void SpanAllocator::set_pages(Page& used, uint32_t pages) {
  const unsigned below = class_below(pages);
  used.pages = pages;
  used.size_class = class_pages(below) == pages ? static_cast<uint8_t>(below) : kNoClass;
}

void SpanAllocator::insert(uint32_t page, uint32_t pages, uint32_t dirty_pages, bool zero) {
  Page& first = pages_[page];
  Page& last = pages_[page + pages - 1];
  last.set(kFreeEnd);
  last.pages = pages;
  first.set(kFree);
  first.pages = pages;
  first.dirty_pages = dirty_pages;
  first.zero = zero;
  const unsigned size_class = class_below(pages);
  first.previous = 0;
  first.next = lists_[size_class];
  if (first.next != 0) pages_[first.next].previous = page;
  lists_[size_class] = page;
  nonempty_[size_class / 64] |= uint64_t{1} << (size_class % 64);
  dirty_free_bytes_ += uint64_t{dirty_pages} * kPageBytes;
  free_bytes_ += uint64_t{pages} * kPageBytes;
}

void SpanAllocator::remove(uint32_t page) {
  Page& first = pages_[page];
  const unsigned size_class = class_below(first.pages);
  if (first.previous != 0) {
    pages_[first.previous].next = first.next;
  } else {
    lists_[size_class] = first.next;
    if (first.next == 0) nonempty_[size_class / 64] &= ~(uint64_t{1} << (size_class % 64));
  }
  if (first.next != 0) pages_[first.next].previous = first.previous;
  dirty_free_bytes_ -= uint64_t{first.dirty_pages} * kPageBytes;
  free_bytes_ -= uint64_t{first.pages} * kPageBytes;
  pages_[page + first.pages - 1].set(kNone);
  first.set(kNone);
}

// First page of the free span that ends just before `page`, or 0.
uint32_t SpanAllocator::free_span_ending_before(uint32_t page) const {
  const Page& last = pages_[page - 1];
  if (last.get() == kFreeEnd) return page - last.pages;
  return last.get() == kFree && last.pages == 1 ? page - 1 : 0;
}

void SpanAllocator::insert_joined(uint32_t page, uint32_t pages, uint32_t dirty_pages, bool zero) {
  pages_[page].set(kNone);
  const uint32_t before = free_span_ending_before(page);
  if (before != 0) {
    zero = zero && pages_[before].zero;
    pages += pages_[before].pages;
    dirty_pages += pages_[before].dirty_pages;
    remove(before);
    page = before;
  }
  const uint32_t after = page + pages;
  if (after < top_ && pages_[after].get() == kFree) {
    zero = zero && pages_[after].zero;
    pages += pages_[after].pages;
    dirty_pages += pages_[after].dirty_pages;
    remove(after);
  }
  insert(page, pages, dirty_pages, zero);
}

// Without any lock: moves what the shards keep to the center, where it is joined.
void SpanAllocator::flush_shards() {
  for (Shard& each : shards_) {
    for (uint32_t& first : each.first) {
      each.mutex.lock();
      uint32_t page = first;
      first = 0;
      uint64_t bytes = 0;
      for (uint32_t i = page; i != 0; i = pages_[i].next) {
        bytes += uint64_t{pages_[i].pages} * kPageBytes;
        pages_[i].set(kBusy);
      }
      each.mutex.unlock();
      add_relaxed(&cached_bytes_, ~bytes + 1);
      while (page != 0) {
        const uint32_t next = pages_[page].next;
        give_to_center(page);
        page = next;
      }
    }
  }
}

void SpanAllocator::lock_all() {
  for (Shard& each : shards_) each.mutex.lock();
  center_.lock();
}

void SpanAllocator::unlock_all() {
  center_.unlock();
  for (Shard& each : shards_) each.mutex.unlock();
}

void SpanAllocator::begin_in_child() {
  open_ = top_;
  center_.reset();
  for (Shard& each : shards_) each.mutex.reset();
}

void SpanAllocator::for_each_used(void (*visit)(void*, char*, uint64_t), void* context) const {
  for (uint32_t page = 1; page < top_; page += pages_[page].pages) {
    if (pages_[page].get() != kUsed) continue;
    visit(context, static_cast<char*>(address_of(page)), uint64_t{pages_[page].pages} * kPageBytes);
  }
}

SpanAllocator::Usage SpanAllocator::usage() {
  Locked locked(center_);
  // Page 0 is the header; what is neither free nor cached is in use.
  const uint64_t cached = __atomic_load_n(&cached_bytes_, __ATOMIC_RELAXED);
  return {.used_bytes = top_bytes() - kPageBytes - free_bytes_ - cached,
          .cached_bytes = cached,
          .dirty_free_bytes = dirty_free_bytes_,
          .top_bytes = top_bytes()};
}

}  // namespace od::memory::heap
