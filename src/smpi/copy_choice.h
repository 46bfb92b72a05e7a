// Whether new data is lent in place or as a copy: learnt from whole cycles.
//
// Near, a line that the viewer has fetched comes back in so short a time that looking at a few of
// them does not tell what the viewer has read. But the time from one such send to the next does,
// as it does for copy paths: p2p/path_choice.h says how it is judged and what trials may cost. One
// choice for each doubling of the length, near and far; only one of them tries at a time. Near a
// copy is the usual way at first: it is never slower than a message. Far it is not, where looks at
// lines have not told that the viewer reads much.
//
// Used by one thread at a time (the service's mutex).
#ifndef OVERDRIVE_SMPI_COPY_CHOICE_H_
#define OVERDRIVE_SMPI_COPY_CHOICE_H_

#include <array>
#include <bit>
#include <cstdint>

#include "base/clock.h"
#include "p2p/path_choice.h"

namespace od::smpi {

class CopyChoice {
 public:
  // Lengths below and above count as these.
  static constexpr std::uint64_t kLeastBytes = 1024;
  static constexpr std::uint64_t kMostBytes = 512u << 10;

  // `clock`: the time in ns; tests have their own.
  explicit CopyChoice(std::uint64_t (*clock)() = now_ns) : clock_(clock) {}

  // Asked once for each send of new data. `received`: another number whenever a message has come
  // meanwhile. `waits`: of two ranks that answer each other, one says true and one false.
  bool copied(std::uint64_t bytes, bool far, std::uint64_t received, bool waits) {
    last_ = &choices_[far ? 1 : 0][p2p::size_range(bytes, kLeastBytes, kSizes)];
    if (!last_->begun()) last_->begin(far ? kInPlace : kCopied, kBoth, far, bytes);
    if (!last_->rests(bytes)) trial_.step(*last_, bytes, {clock_(), received}, waits);
    return last_->path() == kCopied;
  }
  // What copied() has said last was not to be had.
  void spoil_last() { last_->spoil(); }
  // Whether the choice that was asked last tries the other way: then every send should do as told.
  bool trying() const { return last_ != nullptr && last_->trying(); }

 private:
  // The names that copy paths have for it: the receiver reads the sender's memory; the sender
  // copies what it sends.
  static constexpr p2p::Path kInPlace = p2p::Path::pull;
  static constexpr p2p::Path kCopied = p2p::Path::cells;
  static constexpr unsigned kBoth = p2p::PathChoice::bit(kInPlace) | p2p::PathChoice::bit(kCopied);
  static constexpr std::size_t kSizes =
      std::bit_width(kMostBytes) - std::bit_width(kLeastBytes) + 1;

  std::uint64_t (*clock_)();
  std::array<p2p::PathChoice, kSizes> choices_[2];  // near, far
  p2p::OneTrial trial_;
  p2p::PathChoice* last_ = nullptr;
};

}  // namespace od::smpi

#endif  // OVERDRIVE_SMPI_COPY_CHOICE_H_
