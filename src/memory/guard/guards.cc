// Closing, waiting for and opening parts: see guards.h. Safe in signal handlers throughout.
#include "memory/guard/guards.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace od::memory::guard {
namespace {

// A thread that waits looks whether it has been forgotten now and then.
constexpr uint64_t kLookNs = 20'000'000;

// This library is there when the process starts: fixed places in a thread's storage.
__thread bool t_exempt __attribute__((tls_model("initial-exec")));
__thread uintptr_t t_last_address __attribute__((tls_model("initial-exec")));
__thread uint64_t t_last_flight __attribute__((tls_model("initial-exec")));

uint64_t clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The system call itself: the program's function is ours as well, and settles.
bool protect(uintptr_t start, uintptr_t end, int access) {
  const int saved_errno = errno;
  const bool done = syscall(SYS_mprotect, start, end - start, access) == 0;
  errno = saved_errno;
  return done;
}

uint32_t state_of(const GuardPart& part) {
  // Acquire pairs with the release in arrived(): the contents are there.
  return __atomic_load_n(&part.state, __ATOMIC_ACQUIRE);
}

}  // namespace

constinit Guards guards;
uint32_t active = 0;

// Sequentially consistent on both sides, with leave_table(): either it sees who is inside, or who
// comes inside sees that there is no table.
Guards::Inside::Inside(Guards& guards) : guards_(guards) {
  const uint64_t all = ~uint64_t{0};
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &signals_, sizeof all);
  __atomic_fetch_add(&guards_.inside_, 1, __ATOMIC_SEQ_CST);  // pairs with leave_table()
}
Guards::Inside::~Inside() {
  __atomic_fetch_sub(&guards_.inside_, 1, __ATOMIC_RELEASE);  // pairs with leave_table()
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &signals_, nullptr, sizeof signals_);
}

bool Guards::begin(GuardPart* parts, uint32_t count, bool one_by_one) {
  leave_table();
  __atomic_store_n(&one_by_one_, one_by_one, __ATOMIC_RELAXED);
  // Parts ascend. Release, both: pairs with may_overlap().
  __atomic_store_n(&flight_start_, count == 0 ? 0 : parts[0].start, __ATOMIC_RELEASE);
  __atomic_store_n(&flight_end_, count == 0 ? 0 : parts[count - 1].end, __ATOMIC_RELEASE);
  for (uint32_t i = 0; i < count; ++i) {
    if (parts[i].start < lowest_) __atomic_store_n(&lowest_, parts[i].start, __ATOMIC_RELAXED);
    if (parts[i].end > highest_) __atomic_store_n(&highest_, parts[i].end, __ATOMIC_RELAXED);
  }
  __atomic_store_n(&parts_, parts, __ATOMIC_RELAXED);
  __atomic_fetch_add(&flight_, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&count_, count, __ATOMIC_RELEASE);  // pairs with find()
  __atomic_store_n(&active, 1, __ATOMIC_RELAXED);
  for (uint32_t first = 0, next; first < count; first = next) {
    for (next = first + 1; next < count && parts[next].start == parts[next - 1].end;) ++next;
    if (protect(parts[first].start, parts[next - 1].end, PROT_NONE)) continue;
    // Their contents are where they were, and nobody waits yet.
    for (uint32_t i = 0; i < count; ++i) arrived(&parts[i]);
    end();
    return false;
  }
  return true;
}

void Guards::arrived(GuardPart* part) {
  uint32_t expected = GuardPart::kClosed;
  // Release pairs with state_of().
  __atomic_compare_exchange_n(&part->state, &expected, GuardPart::kArrived, false, __ATOMIC_RELEASE,
                              __ATOMIC_RELAXED);
  // A wake per part of some hundred kilobytes.
  const int saved_errno = errno;
  syscall(SYS_futex, &part->state, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  errno = saved_errno;
}

void Guards::end(bool abandon) {
  const uint32_t count = __atomic_load_n(&count_, __ATOMIC_RELAXED);
  __atomic_store_n(&one_by_one_, false, __ATOMIC_RELAXED);
  for (uint32_t i = 0; i < count; ++i) arrived(&parts_[i]);
  for (uint32_t i = 0; i < count; ++i) {
    if (state_of(parts_[i]) != GuardPart::kOpen) open_around(&parts_[i]);
  }
  __atomic_store_n(&active, 0, __ATOMIC_RELAXED);
  // Who abandons may be a handler that has interrupted one of those inside.
  if (!abandon) leave_table();
}

// From here on nobody looks at the parts any more.
void Guards::leave_table() {
  __atomic_store_n(&count_, 0, __ATOMIC_SEQ_CST);  // pairs with Inside and find()
  while (__atomic_load_n(&inside_, __ATOMIC_SEQ_CST) != 0) sched_yield();
}

GuardPart* Guards::find(uintptr_t address) const {
  // Acquire pairs with the release in begin().
  const uint32_t count = __atomic_load_n(&count_, __ATOMIC_ACQUIRE);
  GuardPart* const parts = __atomic_load_n(&parts_, __ATOMIC_RELAXED);
  uint32_t low = 0;
  uint32_t high = count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (parts[middle].end > address) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low < count ? &parts[low] : nullptr;
}

// Relaxed, both: read when the flight is over, by whoever has ended it.
void Guards::note_touch(GuardPart& part) {
  uint64_t never = 0;
  __atomic_compare_exchange_n(&part.touched_ns, &never, clock_ns(), false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
}
void Guards::note_opened(GuardPart& part) {
  uint64_t never = 0;
  __atomic_compare_exchange_n(&part.opened_ns, &never, clock_ns(), false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
}

// The flight may end meanwhile, and its parts go: only the kernel looks at the word.
uint64_t Guards::wait(const uint32_t* state, uint64_t limit_ns) {
  const int saved_errno = errno;
  const uint64_t began_ns = clock_ns();
  client_->hurry(client_->context, true);
  const timespec look{0, static_cast<long>(limit_ns < kLookNs ? limit_ns : kLookNs)};
  syscall(SYS_futex, state, FUTEX_WAIT_PRIVATE, GuardPart::kClosed, &look, nullptr, 0);
  client_->hurry(client_->context, false);
  const uint64_t waited_ns = clock_ns() - began_ns;
  __atomic_fetch_add(&wait_ns_, waited_ns, __ATOMIC_RELAXED);
  errno = saved_errno;
  return waited_ns;
}

// Both arrived, as has everything between them, and they follow each other without gaps.
bool Guards::open_run(GuardPart* first, GuardPart* last) {
  if (!protect(first->start, last->end, PROT_READ | PROT_WRITE)) return false;
  for (GuardPart* part = first; part <= last; ++part) {
    __atomic_store_n(&part->state, GuardPart::kOpen, __ATOMIC_RELEASE);  // pairs with state_of()
  }
  return true;
}

GuardPart* Guards::open_around(GuardPart* part) {
  if (state_of(*part) == GuardPart::kClosed) return part;
  GuardPart* const begin = parts_;
  GuardPart* const end = begin + __atomic_load_n(&count_, __ATOMIC_RELAXED);
  GuardPart* first = part;
  GuardPart* last = part;
  const bool neighbours = !__atomic_load_n(&one_by_one_, __ATOMIC_RELAXED);
  while (neighbours && first > begin && first[-1].end == first->start &&
         state_of(first[-1]) == GuardPart::kArrived) {
    --first;
  }
  while (neighbours && last + 1 < end && last[1].start == last->end &&
         state_of(last[1]) == GuardPart::kArrived) {
    ++last;
  }
  if (open_run(first, last)) return nullptr;
  // To open part of a run the kernel needs another mapping; for all of it, one less.
  first = last = part;
  while (first > begin && first[-1].end == first->start) --first;
  while (last + 1 < end && last[1].start == last->end) ++last;
  for (GuardPart* each = first; each <= last; ++each) {
    if (state_of(*each) == GuardPart::kClosed) return each;
  }
  while (!open_run(first, last)) sched_yield();
  return nullptr;
}

bool Guards::fault(uintptr_t address) {
  if (!ever_used() || t_exempt) return false;
  for (bool first = true;; first = false) {
    const uint32_t* awaited = nullptr;
    {
      const Inside inside(*this);
      GuardPart* const part = find(address);
      if (part != nullptr && part->start <= address && state_of(*part) != GuardPart::kOpen) {
        if (first) __atomic_fetch_add(&faults_, 1, __ATOMIC_RELAXED);
        note_touch(*part);
        GuardPart* const closed = open_around(part);
        if (closed == nullptr) {
          note_opened(*part);
          return true;
        }
        awaited = &closed->state;
      }
    }
    if (awaited == nullptr) return !first || may_try_again(address);
    wait(awaited, kLookNs);
  }
}

bool Guards::may_try_again(uintptr_t address) {
  if (address < __atomic_load_n(&lowest_, __ATOMIC_RELAXED) ||
      address >= __atomic_load_n(&highest_, __ATOMIC_RELAXED)) {
    return false;
  }
  const uint64_t flight = __atomic_load_n(&flight_, __ATOMIC_RELAXED);
  if (t_last_address == address && t_last_flight == flight) return false;
  t_last_address = address;
  t_last_flight = flight;
  return true;
}

// Without a look at the table, for which signals have to be blocked: most of what programs free or
// write lies elsewhere. Who may touch memory of a flight has heard of it from the thread that began
// it, and so sees its bounds. Or those of a later one, or one of either: then all of this one is
// open, because its end came before. Acquire, both: pairs with begin().
bool Guards::may_overlap(uintptr_t start, uintptr_t end) const {
  return start < __atomic_load_n(&flight_end_, __ATOMIC_ACQUIRE) &&
         end > __atomic_load_n(&flight_start_, __ATOMIC_ACQUIRE);
}

bool Guards::settle_range(uintptr_t start, uint64_t bytes, uint64_t limit_ns) {
  if (bytes == 0 || t_exempt) return false;
  const uintptr_t end = bytes > ~uintptr_t{0} - start ? ~uintptr_t{0} : start + bytes;
  if (!may_overlap(start, end)) return false;
  bool found = false;
  for (uint64_t waited_ns = 0;;) {
    const uint32_t* const awaited = open_range(start, end, &found);
    if (awaited == nullptr || waited_ns >= limit_ns) break;
    waited_ns += wait(awaited, limit_ns - waited_ns);
  }
  if (found) __atomic_fetch_add(&settled_, 1, __ATOMIC_RELAXED);
  return found;
}

const uint32_t* Guards::open_range(uintptr_t start, uintptr_t end, bool* found) {
  const Inside inside(*this);
  const uint32_t count = __atomic_load_n(&count_, __ATOMIC_ACQUIRE);  // pairs with begin()
  for (GuardPart* part = find(start); part != nullptr && part < parts_ + count && part->start < end;
       ++part) {
    if (state_of(*part) == GuardPart::kOpen) continue;
    *found = true;
    note_touch(*part);
    const GuardPart* const closed = open_around(part);
    if (closed != nullptr) return &closed->state;
    note_opened(*part);
  }
  return nullptr;
}

void Guards::forget() {
  // Other threads may have been inside; they are not here.
  __atomic_store_n(&inside_, 0, __ATOMIC_RELAXED);
  end();
}

void Guards::exempt_thread() { t_exempt = true; }
bool Guards::is_exempt() const { return t_exempt; }

void Guards::usage(GuardUsage* usage) const {
  usage->faults = __atomic_load_n(&faults_, __ATOMIC_RELAXED);
  usage->wait_ns = __atomic_load_n(&wait_ns_, __ATOMIC_RELAXED);
  usage->settled = __atomic_load_n(&settled_, __ATOMIC_RELAXED);
}

}  // namespace od::memory::guard
