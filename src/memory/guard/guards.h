// Pages that are closed until their contents have arrived: who touches them waits, and opens them.
//
// Part of the preloaded library. A thread that touches a closed page comes here through the handler
// of SIGSEGV (fault_handler.h), a wrapper of a system call or of free() through settle_range().
// Both look the address up in the parts of the flight, which ascend, wait on the part's futex word,
// look it up again and open it together with its neighbours that have arrived. No locks, nothing is
// allocated.
//
// Protocol. `parts_` and `count_` change only when nobody is inside (`inside_`): begin() and end()
// take the count away and wait until those inside have left; then begin() publishes the new table.
// Opening is idempotent, so threads may race for it; that nobody is inside when pages are closed
// keeps a late one from opening pages of the next flight. A fault at an address that was guarded
// once but is open now has been overtaken: it is tried again, and if it comes back it is the
// program's own.
#ifndef OVERDRIVE_MEMORY_GUARD_GUARDS_H_
#define OVERDRIVE_MEMORY_GUARD_GUARDS_H_

#include <stdint.h>

#include "memory/guard/guard_service.h"

namespace od::memory::guard {

class Guards {
 public:
  static constexpr uint64_t kNoLimit = ~uint64_t{0};

  void set_client(const GuardClient* client) { client_ = client; }
  // False when the kernel refuses (too many mappings): then all is open.
  bool begin(GuardPart* parts, uint32_t count, bool one_by_one = false);
  void arrived(GuardPart* part);
  // With `abandon` there is no further flight.
  void end(bool abandon = false);

  // Of the handler: whether the access may be tried again.
  bool fault(uintptr_t address);
  // Waits for what overlaps the range; returns whether anything did.
  bool settle_range(uintptr_t start, uint64_t bytes, uint64_t limit_ns = kNoLimit);
  bool settle_all(uint64_t limit_ns = kNoLimit) { return settle_range(0, ~uint64_t{0}, limit_ns); }
  // In a forked child nothing arrives any more: everything is open from here on.
  void forget();

  void exempt_thread();
  bool is_exempt() const;
  void call_client(bool abandon) const { client_->settle(client_->context, abandon); }

  bool ever_used() const { return __atomic_load_n(&flight_, __ATOMIC_RELAXED) != 0; }
  void usage(GuardUsage* usage) const;

 private:
  // Keeps begin() from changing the table. Without signals, because a handler of the program may
  // jump away and never come back; for the same reason nobody waits inside.
  class Inside {
   public:
    explicit Inside(Guards& guards);
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Guards& guards_;
    uint64_t signals_ = 0;  // what the thread has blocked by itself, as the kernel keeps it
  };

  bool may_overlap(uintptr_t start, uintptr_t end) const;
  GuardPart* find(uintptr_t address) const;  // the first part that ends behind it; null: none
  void leave_table();
  // When somebody first wanted what lies there, and when it could be had.
  static void note_touch(GuardPart& part);
  static void note_opened(GuardPart& part);
  // Waits a while, if the part is still closed whose state that is; returns for how long.
  uint64_t wait(const uint32_t* state, uint64_t limit_ns);
  // Opens it if it has arrived. Otherwise, or if others have to be opened with it that have not:
  // the part to wait for. Null: it is open.
  GuardPart* open_around(GuardPart* part);
  // Opens what has arrived up to the first part that has not, whose state is returned.
  const uint32_t* open_range(uintptr_t start, uintptr_t end, bool* found);
  bool open_run(GuardPart* first, GuardPart* last);
  bool may_try_again(uintptr_t address);

  const GuardClient* client_ = nullptr;
  GuardPart* parts_ = nullptr;
  uint32_t count_ = 0;
  uint32_t inside_ = 0;
  bool one_by_one_ = false;
  uintptr_t flight_start_ = 0;  // of the last flight: all parts lie between
  uintptr_t flight_end_ = 0;
  uint64_t flight_ = 0;               // number of the last one
  uintptr_t lowest_ = ~uintptr_t{0};  // of all that was ever guarded
  uintptr_t highest_ = 0;
  uint64_t faults_ = 0;
  uint64_t wait_ns_ = 0;
  uint64_t settled_ = 0;
};

// Of this process: address space is process-wide by nature. Zero-initialised but for `lowest_`.
extern Guards guards;
// Whether a flight is under way: what wrappers look at. Relaxed: the thread that begins a flight
// sees its own store, others may touch what is guarded only after they have heard of it from that
// one.
extern uint32_t active;
inline bool is_active() {
  return __builtin_expect(__atomic_load_n(&active, __ATOMIC_RELAXED) != 0, 0);
}

}  // namespace od::memory::guard

#endif  // OVERDRIVE_MEMORY_GUARD_GUARDS_H_
