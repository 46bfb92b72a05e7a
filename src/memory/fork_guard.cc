// One pthread_atfork registration for all handlers, and a page that the kernel wipes in children.
#include "memory/fork_guard.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace od::memory {
namespace {

// Process-wide by nature: there is one fork per process, whatever it holds. Entries are only ever
// added; a child reads those that were complete when it was forked.
std::atomic<ForkGuard::InChild> handlers[ForkGuard::kMostHandlers];
// Nonzero in the process that called add() first. In a page of its own that children get as zeros.
std::atomic<unsigned char>* mark = nullptr;
// Set by the handler, for kernels that cannot wipe (before Linux 4.14).
std::atomic<bool> forked{false};
pthread_once_t once = PTHREAD_ONCE_INIT;
bool installed = false;

void in_child() {
  forked.store(true, std::memory_order_relaxed);  // the child has one thread
  for (const auto& handler : handlers) {
    // Acquire: pairs with the exchange in add().
    const ForkGuard::InChild call = handler.load(std::memory_order_acquire);
    if (call != nullptr) call();
  }
}

void install() {
  installed = pthread_atfork(nullptr, nullptr, in_child) == 0;
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page =
      mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (madvise(page, page_bytes, MADV_WIPEONFORK) != 0) {
    munmap(page, page_bytes);
    return;
  }
  mark = static_cast<std::atomic<unsigned char>*>(page);
  mark->store(1, std::memory_order_relaxed);
}

}  // namespace

bool ForkGuard::add(InChild handler) {
  pthread_once(&once, install);
  if (!installed) return false;
  for (auto& entry : handlers) {
    InChild expected = nullptr;
    // Release: what the handler uses was written before; pairs with the load in in_child().
    if (entry.compare_exchange_strong(expected, handler, std::memory_order_acq_rel,
                                      std::memory_order_relaxed) ||
        expected == handler) {
      return true;
    }
  }
  return false;
}

bool ForkGuard::in_forked_child() {
  if (forked.load(std::memory_order_relaxed)) return true;
  return mark != nullptr && mark->load(std::memory_order_relaxed) == 0;
}

}  // namespace od::memory
