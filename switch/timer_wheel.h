// Frames that wait for their time, to the microsecond.
//
// A wheel of slots of one microsecond; a frame hangs in the slot of its due time, behind those that
// came before it, so frames of one link with rising due times leave in order. Times beyond one turn
// of the wheel share slots with earlier ones and are told apart by the due time itself. Inserting
// and firing take constant time, however many frames wait.
#ifndef OVERDRIVE_SWITCH_TIMER_WHEEL_H_
#define OVERDRIVE_SWITCH_TIMER_WHEEL_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "switch/frame.h"

namespace od::fabric {

class TimerWheel {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  explicit TimerWheel(FramePool& pool) : pool_(pool) {}
  ~TimerWheel();
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  // A due time that has passed is fired by the next fire().
  void insert(FramePtr frame, std::uint64_t due_ns);

  // Calls `deliver(FramePtr)` for each frame that is due at `now_ns`, in order of time; frames that
  // it inserts may be fired by the same call. `now_ns` must not fall. Returns their number.
  template <typename Deliver>
  std::size_t fire(std::uint64_t now_ns, Deliver&& deliver);

  // The earliest due time, or kNever.
  std::uint64_t next_due_ns() const;
  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint64_t kSlotShift = 10;  // a slot is 1,024 ns
  static constexpr std::uint64_t kSlots = 4096;

  struct Slot {
    Frame* first = nullptr;
    Frame* last = nullptr;
  };

  void append(Slot& slot, Frame* frame);
  // Takes what is due out of a slot.
  Frame* take_due(Slot& slot, std::uint64_t now_ns);
  void mark(std::uint64_t index, bool used);
  // The first of the ticks from `tick` on, of one turn, whose slot is used; else one turn later.
  std::uint64_t next_used(std::uint64_t tick) const;

  FramePool& pool_;
  std::array<Slot, kSlots> slots_{};
  std::array<std::uint64_t, kSlots / 64> used_{};
  std::uint64_t tick_ = 0;  // of the last fire(): nothing earlier waits
  std::size_t size_ = 0;
};

template <typename Deliver>
std::size_t TimerWheel::fire(std::uint64_t now_ns, Deliver&& deliver) {
  const std::uint64_t last = now_ns >> kSlotShift;
  std::size_t fired = 0;
  if (size_ == 0) {
    tick_ = last;
    return 0;
  }
  // After a pause longer than a turn every slot is visited once.
  if (last > tick_ + kSlots - 1) tick_ = last - (kSlots - 1);
  while (true) {
    const std::uint64_t index = tick_ % kSlots;
    while ((used_[index / 64] >> (index % 64) & 1) != 0) {
      Frame* list = take_due(slots_[index], now_ns);
      if (slots_[index].first == nullptr) mark(index, false);
      if (list == nullptr) break;
      while (list != nullptr) {
        FramePtr frame = pool_.hold(list);
        list = list->next;
        frame->next = nullptr;
        --size_;
        ++fired;
        deliver(std::move(frame));
      }
    }
    if (tick_ >= last) return fired;
    tick_ = std::min(last, next_used(tick_ + 1));
  }
}

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_TIMER_WHEEL_H_
