// Keeps frames until their time comes.
#include "switch/timer_wheel.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace od::fabric {

TimerWheel::~TimerWheel() {
  if (size_ == 0) return;
  for (Slot& slot : slots_) {
    while (slot.first != nullptr) {
      Frame* const next = slot.first->next;
      pool_.give_back(slot.first);
      slot.first = next;
    }
  }
}

void TimerWheel::mark(std::uint64_t index, bool used) {
  const std::uint64_t bit = std::uint64_t{1} << (index % 64);
  used_[index / 64] = used ? used_[index / 64] | bit : used_[index / 64] & ~bit;
}

void TimerWheel::append(Slot& slot, Frame* frame) {
  frame->next = nullptr;
  if (slot.first == nullptr) {
    slot.first = frame;
  } else {
    slot.last->next = frame;
  }
  slot.last = frame;
}

void TimerWheel::insert(FramePtr frame, std::uint64_t due_ns) {
  frame->due_ns = due_ns;
  const std::uint64_t index = std::max(due_ns >> kSlotShift, tick_) % kSlots;
  append(slots_[index], frame.release());
  mark(index, true);
  ++size_;
}

Frame* TimerWheel::take_due(Slot& slot, std::uint64_t now_ns) {
  Slot due;
  Slot later;
  for (Frame* frame = slot.first; frame != nullptr;) {
    Frame* const next = frame->next;
    append(frame->due_ns <= now_ns ? due : later, frame);
    frame = next;
  }
  slot = later;
  return due.first;
}

std::uint64_t TimerWheel::next_used(std::uint64_t tick) const {
  const std::uint64_t end = tick + kSlots;
  while (tick < end) {
    const std::uint64_t index = tick % kSlots;
    const std::uint64_t rest = used_[index / 64] >> (index % 64);
    if (rest != 0) return std::min(end, tick + static_cast<std::uint64_t>(std::countr_zero(rest)));
    tick += 64 - index % 64;
  }
  return end;
}

std::uint64_t TimerWheel::next_due_ns() const {
  if (size_ == 0) return kNever;
  std::uint64_t earliest = kNever;
  // Slots in order of time, from that of the last fire(); one whole turn.
  const std::uint64_t end = tick_ + kSlots;
  for (std::uint64_t tick = next_used(tick_); tick < end; tick = next_used(tick + 1)) {
    for (const Frame* frame = slots_[tick % kSlots].first; frame != nullptr; frame = frame->next) {
      earliest = std::min(earliest, frame->due_ns);
    }
    // Nothing in a later slot is earlier, unless what was found belongs to a later turn.
    if (earliest >> kSlotShift <= tick) break;
  }
  return earliest;
}

}  // namespace od::fabric
