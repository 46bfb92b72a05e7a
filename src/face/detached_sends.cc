// Keeps the data of host sends that have no request in the program's hands.
#include "face/detached_sends.h"

#include <utility>

namespace od::face {

void DetachedSends::add(MPI_Request request, std::shared_ptr<void> data) {
  std::lock_guard<std::mutex> lock(mutex_);
  collect();
  entries_.push_back({request, std::move(data)});
}

void DetachedSends::collect() {
  HostCallScope scope(HostCallKind::kLocal);
  std::erase_if(entries_, [](Entry& entry) {
    int done = 0;
    OD_HOST(Test)(&entry.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

void DetachedSends::finish() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (entries_.empty()) return;
  HostCallScope scope(HostCallKind::kBlocking);
  for (Entry& entry : entries_) OD_HOST(Wait)(&entry.request, MPI_STATUS_IGNORE);
  entries_.clear();
}

}  // namespace od::face
