// Keeps the tables of all threads, also of those that have ended: the next thread goes on with one.
#include "observe/call_times.h"

#include <mutex>
#include <new>
#include <utility>

namespace od::observe {

// Lists of tables; nothing but their making and the report passes through them.
class ThreadCalls {
 public:
  static CallTable* take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (CallTable* idle = idle_) {
      idle_ = idle->next_idle_;
      return idle;
    }
    auto* table = new (std::nothrow) CallTable;
    if (table == nullptr) return nullptr;
    table->next_ = all_;
    return all_ = table;
  }
  static void give_back(CallTable* table) {
    const std::lock_guard<std::mutex> lock(mutex_);
    table->next_idle_ = idle_;
    idle_ = table;
  }
  static void add_to(std::vector<CallTime>& found) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const CallTable* table = all_; table != nullptr; table = table->next_) {
      table->add_to(found);
    }
  }

 private:
  static constinit inline std::mutex mutex_{};
  static constinit inline CallTable* all_ = nullptr;
  static constinit inline CallTable* idle_ = nullptr;
};

namespace {

struct Own {
  CallTable* table = nullptr;
  ~Own() {
    if (table != nullptr) ThreadCalls::give_back(table);
    table = nullptr;
  }
};
thread_local Own own;

constinit const char* const* call_names = nullptr;

}  // namespace

void time_calls(const char* const* names) { call_names = names; }
const char* const* timed_call_names() { return call_names; }

void CallTable::add_to(std::vector<CallTime>& all) const {
  for (const CallTime& entry : entries_) {
    if (entry.calls != 0) all.push_back(entry);
  }
  if (overflow_.calls != 0) all.push_back(overflow_);
}

CallTable* own_call_table() {
  if (own.table == nullptr) own.table = ThreadCalls::take();
  return own.table;
}

std::vector<CallTime> all_call_times() {
  std::vector<CallTime> found;
  ThreadCalls::add_to(found);
  const auto key = [](const CallTime& entry) { return std::pair(entry.function, entry.address); };
  return add_equal(
      std::move(found), [&](const auto& a, const auto& b) { return key(a) < key(b); },
      [&](const auto& a, const auto& b) { return key(a) == key(b); });
}

}  // namespace od::observe
