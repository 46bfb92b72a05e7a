// Storage of requests: constant addresses and constant indexes, last freed first reused.
//
// Slot 0 is never handed out: it is the one completed send that every small send returns when the
// program asks for a request, so that such a send costs no slot at all. Releasing it does nothing.
#ifndef OVERDRIVE_ENGINE_REQUEST_SLAB_H_
#define OVERDRIVE_ENGINE_REQUEST_SLAB_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/request.h"

namespace od {

class RequestSlab {
 public:
  static constexpr std::uint32_t kChunk = 1024;
  // 2^20 handles fit every face's handle range.
  static constexpr std::uint32_t kCapacity = 1u << 20;
  static constexpr std::uint32_t kCompletedSend = 0;

  RequestSlab() {
    chunks_.reserve(kCapacity / kChunk);
    Request* completed = allocate();
    completed->kind = RequestKind::send;
    completed->complete = true;
  }

  // Null only when kCapacity requests are pending.
  Request* allocate() {
    if (free_ == nullptr && !grow()) return nullptr;
    Request* request = free_;
    free_ = request->next;
    request->next = nullptr;
    ++in_use_;
    return request;
  }
  void release(Request& request) {
    // Only what the next use does not set itself.
    request.kind = RequestKind::free;
    request.complete = false;
    request.persistent = false;
    request.active = false;
    request.orphan = false;
    request.blocking = false;
    request.cancel_requested = false;
    request.mode = SendMode::standard;
    request.layout = p2p::LayoutRef();
    request.comm = nullptr;
    request.unexpected = nullptr;
    request.outgoing = nullptr;
    request.incoming = nullptr;
    request.collective = nullptr;
    request.host_request = 0;
    request.prev = nullptr;
    request.next = free_;
    free_ = &request;
    --in_use_;
  }
  Request* at(std::uint32_t index) {
    if (index / kChunk >= chunks_.size()) return nullptr;
    Request& request = chunks_[index / kChunk][index % kChunk];
    return request.kind == RequestKind::free ? nullptr : &request;
  }
  std::uint32_t in_use() const { return in_use_; }
  template <typename Visit>
  void each(Visit&& visit) {
    for (auto& chunk : chunks_) {
      for (std::uint32_t i = 0; i < kChunk; ++i) {
        if (chunk[i].kind != RequestKind::free) visit(chunk[i]);
      }
    }
  }

 private:
  bool grow() {
    if (chunks_.size() * kChunk >= kCapacity) return false;
    const auto first = static_cast<std::uint32_t>(chunks_.size()) * kChunk;
    chunks_.push_back(std::make_unique<Request[]>(kChunk));
    Request* chunk = chunks_.back().get();
    for (std::uint32_t i = kChunk; i-- > 0;) {
      chunk[i].index = first + i;
      chunk[i].next = free_;
      free_ = &chunk[i];
    }
    return true;
  }

  std::vector<std::unique_ptr<Request[]>> chunks_;  // reserved: readers on other threads are safe
  Request* free_ = nullptr;
  std::uint32_t in_use_ = 0;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_REQUEST_SLAB_H_
