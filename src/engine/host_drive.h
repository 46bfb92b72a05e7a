// How often a rank that waits or polls asks the host MPI library to progress: the one place that
// decides it, from what is pending in the host and from what asking costs, which is measured.
//
//   every_round  Other ranks may need this one inside the host: a window exists, or the program has
//                started something there lately. The host alone would look in every round of its
//                own waiting, and so do we.
//   shared       Something may come either way: wildcards, requests of both sides. The host gets as
//                much time as everything else.
//   busy         The same while local messages keep coming: an eighth.
//   quiet        Nothing is known to be pending: 1/64, for what we cannot know.
//
// One object is used by one thread at a time (the rank's own under the rank's lock).
#ifndef OVERDRIVE_ENGINE_HOST_DRIVE_H_
#define OVERDRIVE_ENGINE_HOST_DRIVE_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace od {

class HostDrive {
 public:
  enum class Need : std::uint8_t { quiet, busy, shared, every_round };

  // `forced_rounds`: the host is asked in one of so many rounds whatever asking costs, where it is
  // needed at all; 0: as described above.
  explicit HostDrive(std::uint32_t forced_rounds = 0) : forced_rounds_(forced_rounds) {}

  // Counts a round; true if the host should be asked now.
  bool due(Need need) {
    ++rounds_;
    if (need == Need::quiet) {
      // The clock costs as much as a round.
      if (rounds_ % kQuietRounds != 0) [[likely]]
        return false;
      return passed(kQuietShare);
    }
    if (forced_rounds_ != 0) return counted(rounds_);
    if (need == Need::every_round) return true;
    return passed(need == Need::shared ? 1 : kBusyShare);
  }
  // The same for who looks for messages in every round, before it is known whether it is idle: a
  // forced interval is each one's own, or the one who counts last would always be it.
  bool due_for_messages() {
    return forced_rounds_ != 0 ? counted(++message_rounds_) : due(Need::shared);
  }

  // Asks the host, and takes the time now and then. Returns what `question` returns.
  template <typename Question>
  auto ask(Question&& question) {
    const Asking asking(*this);
    return question();
  }

  std::uint64_t ask_ns() const { return ask_ns_; }

 private:
  static constexpr std::uint32_t kQuietRounds = 32;
  static constexpr std::uint64_t kQuietShare = 64;
  static constexpr std::uint64_t kBusyShare = 8;
  // An answer that took longer was interrupted, or brought much work: it says nothing of the next.
  static constexpr std::uint64_t kLongestNs = 20'000;
  // With every_round the clock is not needed to decide: it is read for one question in so many.
  static constexpr std::uint32_t kAsksPerReading = 16;

  class Asking {
   public:
    explicit Asking(HostDrive& drive)
        : drive_(drive), timed_(drive.asks_++ % drive.reading_interval_ == 0) {
      if (timed_) started_ns_ = now_ns();
    }
    ~Asking() {
      if (drive_.forced_rounds_ == 0) drive_.rounds_ = 0;
      if (!timed_) return;
      drive_.asked_ns_ = now_ns();
      const std::uint64_t took_ns = std::min(drive_.asked_ns_ - started_ns_, kLongestNs);
      drive_.ask_ns_ = drive_.ask_ns_ == 0 ? took_ns : (7 * drive_.ask_ns_ + took_ns) / 8;
    }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;

   private:
    HostDrive& drive_;
    const bool timed_;
    std::uint64_t started_ns_ = 0;
  };

  bool counted(std::uint32_t& rounds) const {
    if (rounds < forced_rounds_) return false;
    rounds = 0;
    return true;
  }
  bool passed(std::uint64_t share) {
    reading_interval_ = 1;
    return now_ns() - asked_ns_ >= share * ask_ns_;
  }

  std::uint32_t forced_rounds_;
  std::uint32_t rounds_ = 0;          // since the host was asked
  std::uint32_t message_rounds_ = 0;  // likewise, with a forced interval
  std::uint32_t asks_ = 0;
  std::uint32_t reading_interval_ = kAsksPerReading;
  std::uint64_t asked_ns_ = 0;  // when it was asked last
  std::uint64_t ask_ns_ = 0;    // what asking costs; 0: not known yet
};

// What the program has in the host, as far as this rank sees it. Notes are made by any thread on
// its way into the host; everything else happens under the rank's lock. Relaxed throughout: they
// only decide how often the host is asked.
class HostNotes {
 public:
  enum class Kind : std::uint8_t {
    operation,  // a collective
    message,
  };

  void note(Kind kind) { of(kind).fresh.store(true, std::memory_order_relaxed); }
  void window_opened() { windows_.fetch_add(1, std::memory_order_relaxed); }
  void window_freed() { windows_.fetch_sub(1, std::memory_order_relaxed); }

  // Whether need() can be more than quiet.
  bool any() const {
    return windows_.load(std::memory_order_relaxed) > 0 || started(Kind::operation) ||
           started(Kind::message);
  }
  // Whether an operation may still be running.
  bool started(Kind kind = Kind::operation) const {
    const Note& note = notes_[static_cast<std::size_t>(kind)];
    return note.fresh.load(std::memory_order_relaxed) ||
           note.recent.load(std::memory_order_relaxed);
  }
  HostDrive::Need need() {
    if (windows_.load(std::memory_order_relaxed) > 0) return HostDrive::Need::every_round;
    if (!any()) [[likely]]
      return HostDrive::Need::quiet;
    const std::uint64_t now = now_ns();
    const bool operation = look_at(of(Kind::operation), now, kOperationNs);
    const bool message = look_at(of(Kind::message), now, kMessageNs);
    if (operation) return HostDrive::Need::every_round;
    return message ? HostDrive::Need::shared : HostDrive::Need::quiet;
  }

 private:
  // How long something is taken to be running after it was started: with more ranks than cores a
  // collective of several rounds takes that long.
  static constexpr std::uint64_t kOperationNs = 1'000'000'000;
  // A message goes by itself once its two sides have found each other; most have by then, and
  // whoever waits for one that has not asks the host anyway.
  static constexpr std::uint64_t kMessageNs = 10'000'000;

  struct Note {
    std::atomic<bool> fresh{false};   // made since the last look
    std::atomic<bool> recent{false};  // made before `until_ns` ran out
    std::uint64_t until_ns = 0;
  };

  Note& of(Kind kind) { return notes_[static_cast<std::size_t>(kind)]; }
  static bool look_at(Note& note, std::uint64_t now, std::uint64_t lasts_ns) {
    if (note.fresh.load(std::memory_order_relaxed)) {
      note.fresh.store(false, std::memory_order_relaxed);
      note.recent.store(true, std::memory_order_relaxed);
      note.until_ns = now + lasts_ns;
    } else if (now >= note.until_ns) {
      note.recent.store(false, std::memory_order_relaxed);
    }
    return note.recent.load(std::memory_order_relaxed);
  }

  std::atomic<int> windows_{0};
  std::array<Note, 2> notes_;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_HOST_DRIVE_H_
