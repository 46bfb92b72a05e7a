// Finds what hangs on a request of the host's.
#include "face/watched_requests.h"

#include <utility>

#include "face/state.h"

namespace od::face {

void WatchedRequests::add(MPI_Request request, std::function<void(Rank&)> then) {
  insert(request, std::move(then), nullptr);
}

void WatchedRequests::keep(MPI_Request request, std::shared_ptr<void> kept) {
  insert(request, nullptr, std::move(kept));
}

void WatchedRequests::insert(MPI_Request request, std::function<void(Rank&)> then,
                             std::shared_ptr<void> kept) {
  auto entry = std::make_unique<Entry>();
  entry->request = request;
  entry->then = std::move(then);
  entry->kept = std::move(kept);
  const std::lock_guard lock(mutex_);
  entries_.emplace(abi::to_handle(request), std::move(entry));
  count_.store(static_cast<int>(entries_.size()), std::memory_order_relaxed);
}

WatchedRequests::Entry* WatchedRequests::claim(MPI_Request request) {
  if (!any()) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto [first, last] = entries_.equal_range(abi::to_handle(request));
  for (auto at = first; at != last; ++at) {
    if (at->second->claimed) continue;
    at->second->claimed = true;
    return at->second.get();
  }
  return nullptr;
}

void WatchedRequests::release(Entry* entry) {
  if (entry == nullptr) return;
  const std::lock_guard lock(mutex_);
  entry->claimed = false;
}

std::unique_ptr<WatchedRequests::Entry> WatchedRequests::take(Entry* entry) {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = entries_.equal_range(abi::to_handle(entry->request));
  for (auto at = first; at != last; ++at) {
    if (at->second.get() != entry) continue;
    std::unique_ptr<Entry> taken = std::move(at->second);
    entries_.erase(at);
    count_.store(static_cast<int>(entries_.size()), std::memory_order_relaxed);
    return taken;
  }
  return nullptr;
}

void WatchedRequests::completed(Rank& rank, Entry* entry) {
  if (entry == nullptr) return;
  // What hangs on it is done, and let go, without the mutex.
  const std::unique_ptr<Entry> taken = take(entry);
  if (taken != nullptr && taken->then) taken->then(rank);
}

bool WatchedRequests::adopt(MPI_Request request) {
  Entry* const entry = claim(request);
  if (entry == nullptr) return false;
  if (entry->kept == nullptr) {
    release(entry);
    return false;
  }
  const std::unique_ptr<Entry> taken = take(entry);
  state.detached.add(request, std::move(taken->kept));
  return true;
}

}  // namespace od::face
