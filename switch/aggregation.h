// One group's sums: slots in which contributions wait for each other.
//
// Packets of a group are numbered; number s lies in slot s mod 2W, where W is the window. A member
// sends number s + W only when it has the result of s, so
//   - all contributions to s + W prove that everybody has the result of s, which is kept until then
//     for members that have lost it: two sets of W slots, one for sums, one for proof;
//   - a slot is reused by s + 2W, which nobody sends before s + W is complete.
// A contribution counts once, whatever is repeated. Contributions are kept apart and combined in
// the order of members when all are there: the same bits in every run, whoever comes first.
#ifndef OVERDRIVE_SWITCH_AGGREGATION_H_
#define OVERDRIVE_SWITCH_AGGREGATION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "innetwork/packet.h"

namespace od::fabric {

// Combines arrays of values; false if the pair of operation and type is not supported. Sources are
// combined from left to right, each step rounded to the type.
bool combine(std::uint8_t operation, std::uint8_t type,
             std::span<const std::uint8_t* const> sources, std::size_t count, std::uint8_t* out);
bool supports(std::uint8_t operation, std::uint8_t type);
// Bit N is set for each operation, or type, with which anything can be computed.
std::uint16_t supported_operations();
std::uint16_t supported_types();

enum class Outcome : std::uint8_t {
  accepted,  // others are missing
  complete,  // that was the last: combined() holds the values
  repeated,  // it was there before, and others (or the result from above) are missing
  answered,  // it was there before, and there is a result: the member has lost it
  stale,     // older than anything that is kept, or too new to be right
  mismatch,  // other members compute something else under this number
};

class Aggregation {
 public:
  // `window` is a power of two; `members` contribute to every sum.
  Aggregation(std::size_t members, std::uint32_t window, std::size_t payload_bytes);

  // Memory that an aggregation takes.
  static std::size_t bytes(std::size_t members, std::uint32_t window, std::size_t payload_bytes) {
    return std::size_t{2} * window *
           ((members + 1) * payload_bytes + sizeof(Slot) + members / 8 + 8);
  }

  Outcome contribute(std::size_t member, std::uint32_t sequence,
                     const innetwork::ValuesHeader& values, std::span<const std::uint8_t> payload);
  // What was combined here: the result at the top of the tree, else what goes up.
  std::span<const std::uint8_t> combined(std::uint32_t sequence) const;
  const innetwork::ValuesHeader& values(std::uint32_t sequence) const;
  // The values from above replace the combined ones; false if nobody waits for them.
  bool finish(std::uint32_t sequence, const innetwork::ValuesHeader& values,
              std::span<const std::uint8_t> payload);
  // Marks the combined values as the result, where nothing is above.
  void finish(std::uint32_t sequence) { slot_of(sequence).finished = true; }

  // All contributions are here, and the values from above are not.
  bool waits_for_parent(std::uint32_t sequence) const {
    const Slot& slot = slot_of(sequence);
    return slot.sequence == sequence && slot.arrived == members_ && !slot.finished;
  }

  std::size_t members() const { return members_; }
  // Slots that wait for somebody.
  std::size_t slots_in_use() const;

 private:
  struct Slot {
    std::uint32_t sequence = 0;
    std::uint32_t arrived = 0;
    bool finished = false;
    innetwork::ValuesHeader values;
  };
  Slot& slot_of(std::uint32_t sequence) { return slots_[sequence % slots_.size()]; }
  const Slot& slot_of(std::uint32_t sequence) const { return slots_[sequence % slots_.size()]; }
  std::uint8_t* place(std::size_t slot, std::size_t member) {
    return buffer_.data() + (slot * (members_ + 1) + member) * payload_bytes_;
  }

  std::size_t members_;
  std::size_t payload_bytes_;
  std::vector<Slot> slots_;
  std::vector<bool> present_;  // by slot, then member
  std::vector<std::uint8_t> buffer_;
  std::vector<const std::uint8_t*> sources_;
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_AGGREGATION_H_
