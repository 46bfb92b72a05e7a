// How long the program's MPI calls take, by function and by the place of the call.
//
// Each thread counts in a table of its own, without a lock; the tables are joined at the end. A
// place is the return address of the call. Only the program's own calls count: what the MPI library
// calls of itself lies inside them (face/call_timer.h).
#ifndef OVERDRIVE_OBSERVE_CALL_TIMES_H_
#define OVERDRIVE_OBSERVE_CALL_TIMES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace od::observe {

struct CallTime {
  std::uintptr_t address = 0;  // 0: places for which the table had no room
  std::uint32_t function = 0;  // its number in the interface text
  std::uint64_t calls = 0;     // 0: the entry is free
  std::uint64_t ns = 0;
  std::uint64_t longest_ns = 0;
};

// Sorts entries (of CallTime, or what counts alike) and adds up those that `same` calls equal,
// which `before` puts side by side.
template <typename Entry, typename Before, typename Same>
std::vector<Entry> add_equal(std::vector<Entry> entries, Before before, Same same) {
  std::sort(entries.begin(), entries.end(), before);
  std::vector<Entry> joined;
  for (const Entry& entry : entries) {
    if (joined.empty() || !same(joined.back(), entry)) {
      joined.push_back(entry);
      continue;
    }
    Entry& last = joined.back();
    last.calls += entry.calls;
    last.ns += entry.ns;
    last.longest_ns = std::max(last.longest_ns, entry.longest_ns);
  }
  return joined;
}

// The counts of one thread: open addressing, only added to.
class CallTable {
 public:
  static constexpr std::size_t kSlots = 1024;

  void add(std::uint32_t function, std::uintptr_t address, std::uint64_t ns) {
    CallTime& entry = find(function, address);
    entry.function = function;
    entry.address = address;
    ++entry.calls;
    entry.ns += ns;
    if (ns > entry.longest_ns) entry.longest_ns = ns;
  }
  void add_to(std::vector<CallTime>& all) const;

 private:
  friend class ThreadCalls;
  // A quarter stays free, so that searches end soon.
  static constexpr std::size_t kMostUsed = kSlots / 4 * 3;

  CallTime& find(std::uint32_t function, std::uintptr_t& address) {
    // Fibonacci hashing: return addresses differ in their low bits.
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15u;
    std::uint64_t hash = (address ^ (std::uint64_t{function} << 40)) * kGolden;
    for (std::size_t at = hash >> 54;; at = (at + 1) % kSlots) {
      CallTime& entry = entries_[at];
      if (entry.calls != 0 && entry.address == address && entry.function == function) return entry;
      if (entry.calls != 0) continue;
      if (used_ < kMostUsed) {
        ++used_;
        return entry;
      }
      address = 0;
      return overflow_;
    }
  }

  std::array<CallTime, kSlots> entries_{};
  CallTime overflow_{};
  std::size_t used_ = 0;
  CallTable* next_ = nullptr;       // of all tables
  CallTable* next_idle_ = nullptr;  // of those whose thread has ended
};

// Says that calls are timed, once, before the first; `names` are the functions' by their number and
// stay for ever.
void time_calls(const char* const* names);
// Null while calls are not timed.
const char* const* timed_call_names();

// This thread's table, or null if there is no memory for one.
CallTable* own_call_table();

// The calls of all threads of the process, joined; the caller sees to it that none is in a call.
std::vector<CallTime> all_call_times();

}  // namespace od::observe

#endif  // OVERDRIVE_OBSERVE_CALL_TIMES_H_
