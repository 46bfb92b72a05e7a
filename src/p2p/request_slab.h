// Storage of requests: constant addresses and constant indexes, last freed first reused.
//
// Slot 0 is never handed out: it is the one completed send that every small send returns when the
// program asks for a request, so that such a send costs no slot at all. Releasing it does nothing.
//
// A request is constructed when its slot is handed out for the first time, so that a rank with few
// requests touches few pages.
#ifndef OVERDRIVE_P2P_REQUEST_SLAB_H_
#define OVERDRIVE_P2P_REQUEST_SLAB_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "p2p/at_rest.h"
#include "p2p/request.h"

namespace od {

class RequestSlab {
 public:
  static constexpr std::uint32_t kChunk = 1024;
  // 2^20 handles fit every face's handle range.
  static constexpr std::uint32_t kCapacity = 1u << 20;
  // Requests that any number of handles of the program may stand for: complete from the start.
  static constexpr std::uint32_t kCompletedSend = 0;
  static constexpr std::uint32_t kCompletedCollective = 1;
  static constexpr bool shared(std::uint32_t index) { return index <= kCompletedCollective; }

  RequestSlab() {
    chunks_.reserve(kCapacity / kChunk);
    completed_send_ = allocate();
    completed_send_->kind = RequestKind::send;
    completed_send_->complete = true;
    completed_collective_ = allocate();
    completed_collective_->kind = RequestKind::collective;
    completed_collective_->complete = true;
  }
  ~RequestSlab() {
    // Relaxed: nobody else is left.
    const std::uint32_t made = made_.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < made; ++i) slot(i)->~Request();
  }
  RequestSlab(const RequestSlab&) = delete;
  RequestSlab& operator=(const RequestSlab&) = delete;

  Request* completed_send() { return completed_send_; }
  Request* completed_collective() { return completed_collective_; }

  // Null only when kCapacity requests are pending.
  Request* allocate() {
    Request* request = free_;
    if (request != nullptr) [[likely]] {
      free_ = request->next;
      request->next = nullptr;
    } else if ((request = make()) == nullptr) {
      return nullptr;
    }
    ++in_use_;
    at_rest_.disturb();
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
    request.host_twin = 0;
    request.in_host = false;
    request.prev = nullptr;
    request.next = free_;
    free_ = &request;
    --in_use_;
  }
  Request* at(std::uint32_t index) {
    // Relaxed: who has an index got it from the thread that allocated it, and the program orders
    // that.
    if (index >= made_.load(std::memory_order_relaxed)) return nullptr;
    Request* request = slot(index);
    return request->kind == RequestKind::free ? nullptr : request;
  }
  std::uint32_t in_use() const { return in_use_; }
  p2p::AtRest& at_rest() { return at_rest_; }
  bool full() const { return in_use_ == kCapacity; }
  template <typename Visit>
  void each(Visit&& visit) {
    // Relaxed: called by whoever may allocate.
    const std::uint32_t made = made_.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < made; ++i) {
      if (slot(i)->kind != RequestKind::free) visit(*slot(i));
    }
  }

 private:
  struct Chunk {
    alignas(Request) std::byte bytes[kChunk * sizeof(Request)];
  };

  Request* slot(std::uint32_t index) {
    std::byte* const at = chunks_[index / kChunk]->bytes + index % kChunk * sizeof(Request);
    return std::launder(reinterpret_cast<Request*>(at));
  }
  // The next slot that was never used; null when there is none.
  [[gnu::noinline]] Request* make() {
    const std::uint32_t index = made_.load(std::memory_order_relaxed);  // the only writer is here
    if (index == kCapacity) return nullptr;
    if (index % kChunk == 0) chunks_.push_back(std::make_unique_for_overwrite<Chunk>());
    Request* request = new (chunks_.back()->bytes + index % kChunk * sizeof(Request)) Request;
    request->index = index;
    // Relaxed: see at().
    made_.store(index + 1, std::memory_order_relaxed);
    return request;
  }

  std::vector<std::unique_ptr<Chunk>> chunks_;  // reserved: readers on other threads are safe
  std::atomic<std::uint32_t> made_{0};          // requests constructed: slots 0 to made_ - 1
  Request* completed_send_ = nullptr;
  Request* completed_collective_ = nullptr;
  Request* free_ = nullptr;
  std::uint32_t in_use_ = 0;
  p2p::AtRest at_rest_;  // who has a request has something under way
};

}  // namespace od

#endif  // OVERDRIVE_P2P_REQUEST_SLAB_H_
