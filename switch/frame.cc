// Keeps the buffers of frames.
#include "switch/frame.h"

#include <cstring>
#include <new>

namespace od::fabric {

void FrameDeleter::operator()(Frame* frame) const { pool->give_back(frame); }

FramePool::~FramePool() {
  for (Frame* list : free_) {
    while (list != nullptr) {
      Frame* const next = list->next;
      ::operator delete(list);
      list = next;
    }
  }
}

// Makes an allocation of this class fit below the limit by letting go of free frames of the other.
bool FramePool::make_room(std::size_t wanted_class) {
  const std::size_t needed = sizeof(Frame) + class_bytes(wanted_class);
  const std::size_t other = 1 - wanted_class;
  while (allocated_bytes_ + needed > limit_bytes_ && free_[other] != nullptr) {
    Frame* const victim = free_[other];
    free_[other] = victim->next;
    allocated_bytes_ -= sizeof(Frame) + victim->capacity_bytes;
    ::operator delete(victim);
  }
  return allocated_bytes_ + needed <= limit_bytes_;
}

FramePtr FramePool::take(std::size_t bytes) {
  const std::size_t wanted = class_of(bytes);
  if (bytes > kLargeFrameBytes || (free_[wanted] == nullptr && !make_room(wanted))) {
    ++refused_;
    return hold(nullptr);
  }
  Frame* frame = free_[wanted];
  if (frame != nullptr) {
    free_[wanted] = frame->next;
  } else {
    const std::size_t capacity = class_bytes(wanted);
    frame = new (::operator new(sizeof(Frame) + capacity)) Frame;
    frame->capacity_bytes = static_cast<std::uint32_t>(capacity);
    allocated_bytes_ += sizeof(Frame) + capacity;
  }
  frame->next = nullptr;
  frame->bytes = static_cast<std::uint32_t>(bytes);
  frame->control = false;
  frame->offload = OffloadHeader{};
  ++in_use_;
  return hold(frame);
}

FramePtr FramePool::copy(const Frame& frame) {
  FramePtr twin = take(frame.bytes);
  if (twin) {
    std::memcpy(twin->data(), frame.data(), frame.bytes);
    twin->offload = frame.offload;
    twin->control = frame.control;
  }
  return twin;
}

void FramePool::give_back(Frame* frame) {
  const std::size_t number = class_of(frame->capacity_bytes);
  frame->next = free_[number];
  free_[number] = frame;
  --in_use_;
}

}  // namespace od::fabric
