// Whether calls overlap in automatic mode: measured in the running program, alike on all ranks.
//
// One for each kind of call on a communicator: calls are of one kind if all ranks see that they
// are. Places in the program differ between the ranks of a call (a root often stands elsewhere), so
// which place a rank stands at may not decide; where calls of one kind come from places of which
// some gain and some do not, the measurements scatter, and calls stay as they are.
//
// MPI makes the number of a call equal on all ranks. Call 1 is not looked at, call 2 is traced,
// calls 4 to 7 are measured; before call 8 the ranks add up what they have measured. A measurement
// is the time from a call to the program's next call of MPI, in which all that overlap changes
// takes place. If more than three percent of that could be hidden, four of the next eight calls
// overlap, and before call 16 there is a verdict; so on before each power of two, by the last eight
// calls before it: four of the other way, four as usual, the first of each four not measured. Calls
// that overlap go on to do so as long as they are faster; others begin to only for a gain above
// three percent and above the noise. Where nothing could be hidden no call overlaps by way of
// trial.
#ifndef OVERDRIVE_OVERLAP_AUTOMATIC_H_
#define OVERDRIVE_OVERLAP_AUTOMATIC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "overlap/link_order.h"

namespace od::overlap {

class Automatic {
 public:
  enum class Turn : std::uint8_t { kOff, kTrace, kOn };
  enum class Verdict : std::uint8_t { kNone, kSame, kTurnedOn, kTurnedOff };

  static constexpr std::uint64_t kTracedCall = 2;
  static constexpr std::uint64_t kFirstWindow = 8;

  // Before a call: whether the ranks have to add up offer() first, and then call judge().
  bool agreement_due() const;
  std::span<std::int64_t> offer();
  Verdict judge(int ranks);

  // The way of the next call, which counts.
  Turn next();
  // Whether the call that next() was asked for last is measured.
  bool measured() const { return sample_ >= 0; }
  // It has, from its beginning to the next call of MPI, taken `whole_ns`, of which at most
  // `hidden_ns` could have been hidden.
  void took(std::uint64_t whole_ns, std::uint64_t hidden_ns);
  // What the traced call has shown.
  void touched(const Accesses& accesses) { numbers_.accesses.add(accesses); }

  bool on() const { return on_; }
  const Order& order() const { return order_; }

 private:
  static constexpr std::size_t kSamples = 4;
  // Plain numbers, added up over the ranks.
  struct Numbers {
    std::array<std::int64_t, kSamples> off{};
    std::array<std::int64_t, kSamples> on{};
    std::int64_t hidden = 0;   // of calls that do not overlap
    std::int64_t missing = 0;  // samples that could not be taken
    Accesses accesses;
  };
  static_assert(sizeof(Numbers) % sizeof(std::int64_t) == 0);

  void plan_call(std::uint64_t call);

  std::uint64_t calls_ = 0;
  bool on_ = false;
  bool worth_trying_ = false;
  bool sample_is_on_ = false;
  int sample_ = -1;   // the one that the last call is for
  int expected_ = 0;  // samples since the last agreement
  int taken_ = 0;     // of these
  Turn turn_ = Turn::kOff;
  std::uint64_t agreed_at_ = 0;
  Numbers numbers_;
  Order order_;
};

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_AUTOMATIC_H_
