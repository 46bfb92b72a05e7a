// Streams of a sender in the order in which they came. The queue owns them, and any may leave at
// once, wherever it stands: receivers take messages in orders of their own.
//
// It also remembers one of them, with which whoever looks at them in turn goes on.
#ifndef OVERDRIVE_P2P_STREAM_QUEUE_H_
#define OVERDRIVE_P2P_STREAM_QUEUE_H_

#include <cstddef>
#include <memory>

#include "p2p/streams.h"

namespace od::p2p {

class StreamQueue {
 public:
  StreamQueue() = default;
  ~StreamQueue() {
    while (first_ != nullptr) take(*first_);
  }
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;

  bool empty() const { return first_ == nullptr; }
  std::size_t size() const { return size_; }
  // The oldest; OutgoingStream::next leads to the others.
  OutgoingStream* first() const { return first_; }

  void push_back(std::unique_ptr<OutgoingStream> stream) {
    OutgoingStream* const added = stream.release();
    added->queue = this;
    added->next = nullptr;
    added->prev = last_;
    (last_ != nullptr ? last_->next : first_) = added;
    last_ = added;
    ++size_;
  }
  void push_front(std::unique_ptr<OutgoingStream> stream) {
    OutgoingStream* const added = stream.release();
    added->queue = this;
    added->prev = nullptr;
    added->next = first_;
    (first_ != nullptr ? first_->prev : last_) = added;
    first_ = added;
    ++size_;
  }
  // `stream` is in this queue.
  std::unique_ptr<OutgoingStream> take(OutgoingStream& stream) {
    if (turn_ == &stream) turn_ = stream.next;
    (stream.prev != nullptr ? stream.prev->next : first_) = stream.next;
    (stream.next != nullptr ? stream.next->prev : last_) = stream.prev;
    stream.queue = nullptr;
    stream.next = stream.prev = nullptr;
    --size_;
    return std::unique_ptr<OutgoingStream>(&stream);
  }

  // Where to go on; null: at the beginning.
  OutgoingStream* turn() const { return turn_; }
  void set_turn(OutgoingStream* stream) { turn_ = stream; }

 private:
  OutgoingStream* first_ = nullptr;
  OutgoingStream* last_ = nullptr;
  OutgoingStream* turn_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_STREAM_QUEUE_H_
