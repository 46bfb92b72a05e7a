// Mappings of views and the handler of their faults: see debug_views.h.
//
// System calls are made directly: the functions of the C library are interposed by the loader,
// which would treat these mappings as the program's own.
#include "smpi/debug_views.h"

#include <linux/mman.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/round.h"
#include "node/region_layout.h"
#include "observe/log.h"

namespace od::smpi {
namespace {

constexpr std::uint64_t kPage = node::kPageBytes;

// A signal handler has nowhere else to look; a process has one rank that debugs.
std::atomic<DebugViews*> g_active{nullptr};
struct sigaction g_before;

const char* text(const char* site) { return site != nullptr ? site : "an unknown place"; }

bool protect_pages(const void* start, std::uint64_t bytes, int access) {
  return syscall(SYS_mprotect, start, bytes, access) == 0;
}

bool is_write(const void* context) {
#if defined(__x86_64__)
  const auto* const machine = static_cast<const ucontext_t*>(context);
  constexpr greg_t kWriteBit = 2;  // of the processor's page fault error code
  return (machine->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
#elif defined(__aarch64__)
  // The kernel says it in one of the records that follow the registers; the last one is empty.
  constexpr std::uint64_t kWriteBit = 1 << 6;  // of the exception syndrome of a data abort
  const auto* const machine = static_cast<const ucontext_t*>(context);
  const unsigned char* at = machine->uc_mcontext.__reserved;
  const unsigned char* const end = at + sizeof machine->uc_mcontext.__reserved;
  while (static_cast<std::size_t>(end - at) >= sizeof(esr_context)) {
    esr_context record;
    std::memcpy(&record, at, sizeof record);
    if (record.head.magic == ESR_MAGIC) return (record.esr & kWriteBit) != 0;
    if (record.head.magic == 0 || record.head.size < sizeof record.head ||
        record.head.size > static_cast<std::size_t>(end - at)) {
      break;
    }
    at += record.head.size;
  }
  return true;
#else
  (void)context;
  return true;
#endif
}

void on_fault(int signal, siginfo_t* info, void* context) {
  // Pairs with the release in the constructor.
  DebugViews* const views = g_active.load(std::memory_order_acquire);
  const auto* const address = static_cast<const std::byte*>(info->si_addr);
  if (views != nullptr && views->fault(address, is_write(context))) return;
  // Whoever was there before deals with it: by being called, or when the instruction faults again.
  if ((g_before.sa_flags & SA_SIGINFO) != 0 && g_before.sa_sigaction != nullptr) {
    g_before.sa_sigaction(signal, info, context);
  } else if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    g_before.sa_handler(signal);
  } else {
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGSEGV, &usual, nullptr);
  }
}

}  // namespace

DebugViews::DebugViews(int world_rank) : world_rank_(world_rank) {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  // Release: pairs with the acquire in the handler.
  g_active.store(this, std::memory_order_release);
  sigaction(SIGSEGV, &action, &g_before);
}

DebugViews::~DebugViews() {
  g_active.store(nullptr, std::memory_order_release);  // pairs with the acquire in the handler
  for (const auto& [number, view] : views_) syscall(SYS_munmap, view.pages, view.page_bytes);
}

const void* DebugViews::open(const std::byte* address, std::uint64_t bytes, int owner,
                             const char* site, std::uint64_t* view) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const std::uint64_t within = place % kPage;
  View added;
  added.page_bytes = round_up(within + (bytes > 0 ? bytes : 1), kPage);
  // An old size of 0 asks for a second mapping of shared pages.
  const long mapped =
      syscall(SYS_mremap, place - within, 0, added.page_bytes, MREMAP_MAYMOVE, nullptr);
  if (mapped == -1) {
    // Whoever asks for this mode must know where it shows nothing.
    OD_LOG_ONCE(
        Level::kError,
        "SMPI: a view cannot be watched, its pages cannot be mapped a second time: %s; it is "
        "used where the message lies, as without the debug mode, and so may others be",
        std::strerror(errno));
    return nullptr;
  }
  added.pages = reinterpret_cast<std::byte*>(mapped);
  protect_pages(added.pages, added.page_bytes, PROT_READ);
  added.start = added.pages + within;
  added.bytes = bytes;
  added.owner = owner;
  added.site = site;
  const std::lock_guard lock(mutex_);
  *view = next_view_++;
  views_[*view] = added;
  by_pages_[added.pages] = *view;
  return added.start;
}

void DebugViews::close(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = views_.find(number);
  if (found == views_.end() || !found->second.open) return;
  View& view = found->second;
  view.open = false;
  syscall(SYS_mmap, view.pages, view.page_bytes, PROT_NONE,
          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  released_.push_back(number);
  if (released_.size() <= kKept) return;
  const auto oldest = views_.find(released_.front());
  released_.pop_front();
  syscall(SYS_munmap, oldest->second.pages, oldest->second.page_bytes);
  by_pages_.erase(oldest->second.pages);
  views_.erase(oldest);
}

void DebugViews::released_twice(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = views_.find(number);
  if (found == views_.end()) {
    log(Level::kError, "SMPI: rank %d releases a view twice", world_rank_);
    return;
  }
  log(Level::kError, "SMPI: rank %d releases a view twice: %llu bytes of rank %d, received at %s",
      world_rank_, static_cast<unsigned long long>(found->second.bytes), found->second.owner,
      text(found->second.site));
}

void DebugViews::protect(std::byte* block, std::uint64_t bytes, Block* record, const char* site) {
  const std::uint64_t whole = round_up(bytes, kPage);
  const std::lock_guard lock(mutex_);
  if (whole == 0 || !protect_pages(block, whole, PROT_READ)) return;
  lent_[block] = {whole, record, site};
}

void DebugViews::unprotect(std::byte* block) {
  const std::lock_guard lock(mutex_);
  const auto found = lent_.find(block);
  if (found == lent_.end()) return;
  protect_pages(block, found->second.bytes, PROT_READ | PROT_WRITE);
  lent_.erase(found);
}

void DebugViews::unprotect_all(std::byte* start, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto next = lent_.lower_bound(start);
  if (next != lent_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > start) {
    --next;
  }
  while (next != lent_.end() && next->first < start + bytes) {
    protect_pages(next->first, next->second.bytes, PROT_READ | PROT_WRITE);
    next = lent_.erase(next);
  }
}

std::size_t DebugViews::report_open() {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [number, view] : views_) {
    if (!view.open) continue;
    ++count;
    log(Level::kError,
        "SMPI: rank %d has not released a view before MPI_Finalize: %llu bytes of rank %d, "
        "received at %s",
        world_rank_, static_cast<unsigned long long>(view.bytes), view.owner, text(view.site));
  }
  return count;
}

bool DebugViews::fault(const std::byte* address, bool write) {
  // Another thread may hold the lock, never this one: it was the program's code that faulted.
  const std::lock_guard lock(mutex_);
  auto next = lent_.upper_bound(const_cast<std::byte*>(address));
  if (next != lent_.begin()) {
    const auto found = std::prev(next);
    if (write && address < found->first + found->second.bytes) {
      Block& record = *found->second.record;
      // What viewers have read is over before the owner writes.
      const std::uint64_t views = record.views();
      if (views == 0) {
        protect_pages(found->first, found->second.bytes, PROT_READ | PROT_WRITE);
        lent_.erase(found);
        return true;
      }
      log(Level::kError,
          "SMPI: rank %d writes to a block while it is lent: byte %llu of %llu, allocated at %s, "
          "%llu views",
          world_rank_, static_cast<unsigned long long>(address - found->first),
          static_cast<unsigned long long>(record.capacity_bytes), text(found->second.site),
          static_cast<unsigned long long>(views));
      return false;
    }
  }
  auto after = by_pages_.upper_bound(address);
  if (after == by_pages_.begin()) return false;
  const View& view = views_.at(std::prev(after)->second);
  if (address >= view.pages + view.page_bytes) return false;
  log(Level::kError, "SMPI: rank %d %s: %llu bytes of rank %d, received at %s, byte %lld",
      world_rank_, view.open ? "writes through a view" : "uses a view after its release",
      static_cast<unsigned long long>(view.bytes), view.owner, text(view.site),
      static_cast<long long>(address - view.start));
  return false;
}

}  // namespace od::smpi
