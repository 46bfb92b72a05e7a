// What a rank keeps of its run for `overdrive report` (setting `record`), beside counters and call
// times: sizes of calls, messages to each peer, and time in MPI over the run.
//
// Everything is added up at once, so it takes the same memory however long the run is: sizes in
// classes of powers of two, the run in kSlots slots of time, which become twice as long, two joined
// to one, whenever the run outgrows them. Each thread has a record of its own, without a lock; they
// are joined at the end.
#ifndef OVERDRIVE_OBSERVE_RECORDING_H_
#define OVERDRIVE_OBSERVE_RECORDING_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace od::observe {

// What a call does, for the time line.
enum class Activity : std::uint8_t { kSend, kReceive, kWait, kCollective, kOneSided, kOther };
inline constexpr std::size_t kActivities = 6;
inline constexpr const char* kActivityNames[kActivities] = {"send",       "receive",   "wait",
                                                            "collective", "one-sided", "other"};
// By the function's name, such as "MPI_Isend".
Activity activity_of(std::string_view function);

// How much a call moves, as far as its arguments tell.
struct Payload {
  static constexpr int kNoPeer = -1;
  std::uint64_t bytes = 0;
  bool known = false;  // `bytes` counts
  int peer = kNoPeer;  // world rank to which the message goes
};

// Time in MPI over the run, by activity.
class TimeSlots {
 public:
  static constexpr std::size_t kSlots = 1024;
  static constexpr std::uint64_t kFirstSlotNs = 1'000'000;

  // From `start_ns` to `end_ns`, both since the beginning of the run.
  void add(Activity activity, std::uint64_t start_ns, std::uint64_t end_ns) {
    while (end_ns / slot_ns_ >= kSlots) halve();
    std::size_t at = start_ns / slot_ns_;
    const std::size_t last = end_ns / slot_ns_;
    const auto kind = static_cast<std::size_t>(activity);
    for (; at < last; ++at) {
      const std::uint64_t limit = (at + 1) * slot_ns_;
      ns_[at][kind] += limit - start_ns;
      start_ns = limit;
    }
    ns_[last][kind] += end_ns - start_ns;
  }
  // Adds another thread's.
  void add(const TimeSlots& other);

  std::uint64_t slot_ns() const { return slot_ns_; }
  std::uint64_t ns(std::size_t slot, Activity activity) const {
    return ns_[slot][static_cast<std::size_t>(activity)];
  }

 private:
  void halve();

  std::uint64_t slot_ns_ = kFirstSlotNs;
  std::array<std::array<std::uint64_t, kActivities>, kSlots> ns_{};
};

// Calls of one function by size.
struct SizeClasses {
  static constexpr std::size_t kClasses = 48;
  struct Class {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
    std::uint64_t ns = 0;
  };
  // 0: no bytes; n: from 2^(n-1) to below 2^n bytes.
  std::array<Class, kClasses> classes{};

  static std::size_t class_of(std::uint64_t bytes) {
    const auto width = static_cast<std::size_t>(std::bit_width(bytes));
    return width < kClasses ? width : kClasses - 1;
  }
};

class Recording {
 public:
  void add(std::uint32_t function, std::uint64_t start_ns, std::uint64_t end_ns,
           const Payload& payload);
  void add(const Recording& other);

  // The members "sizes", "peers", "timeline" of a JSON object.
  std::string json(const char* const* names) const;

 private:
  struct Peer {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<SizeClasses> sizes_;  // by the function's number
  std::vector<Peer> peers_;         // by world rank
  TimeSlots slots_;

  friend struct RecordList;
  Recording* next_ = nullptr;  // of all threads' records
};

// Begins to record, once, before the first timed call; `names` are those of time_calls().
void start_recording(const char* const* names, std::uint64_t now_ns);
bool is_recording();
// Where the run begins on the time line: when all ranks left MPI_Init. Before there are threads.
void set_begin_of_record(std::uint64_t now_ns);

// This thread's record, or null: nothing is recorded, or there is no memory.
Recording* own_recording();

// The records of all threads, joined; the caller sees to it that none is in a call.
std::string recording_json(const char* const* names);

}  // namespace od::observe

#endif  // OVERDRIVE_OBSERVE_RECORDING_H_
