// Which copy path one kind of message takes: learnt from what whole cycles of the program take.
//
// A choice serves the messages to one peer of one range of sizes and one use of the send buffer. It
// begins with the path that the thresholds name (the prior). What it judges by is the time from one
// such send to the next, so that everything counts that a path costs either side: the copies, the
// waiting, and what the program pays later for lines that have gone to another core's cache. That
// time is read once for a chunk of sends. Now and then a trial takes another path for a few
// messages, between two chunks with the usual one, and is compared with their mean; chunks that
// disagree with each other tell nothing. A path has to win twice by 5 % before it takes over, and
// one that loses is tried more and more rarely.
//
// Trials are paid for: each send earns a credit, and a message on trial costs kPrice of them, more
// if it was slow. So beyond a first allowance trials take at most 2 % of the time. The two ranks of
// a dialogue try at the same moments while they have sent equally often. Some paths pay only if
// both take them (exchange frames), others only for one side, so after a trial in vain the next one
// of that path is shifted between the two.
//
// Used by one thread at a time (the rank's lock). No floating point: a message must not raise its
// flags.
#ifndef OVERDRIVE_P2P_PATH_CHOICE_H_
#define OVERDRIVE_P2P_PATH_CHOICE_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "p2p/path/path.h"

namespace od::p2p {

// What is read when a chunk of sends begins and ends.
struct PathMoment {
  std::uint64_t now_ns = 0;
  std::uint64_t receives = 0;  // another number whenever a message has been received meanwhile
};

class alignas(64) PathChoice {
 public:
  enum class Event : std::uint8_t { none, trial_begun, trial_over, path_changed };

  static constexpr unsigned bit(Path path) { return 1u << static_cast<unsigned>(path); }

  // Starts with `prior`. `able`: a bit for each path that may be tried. `far`, `bytes`: of the
  // first message, and about the same of all others.
  void begin(Path prior, unsigned able, bool far, std::uint64_t bytes);
  bool begun() const { return begun_; }
  Path usual() const { return usual_; }
  // From the beginning of a trial until it has been judged.
  bool trying() const { return judging_; }

  // The path of the message at hand; asked once for each message, after rests() or step().
  Path path() const { return path_; }
  // Before each send; false: step() has to come next.
  bool rests(std::uint64_t bytes) {
    if (--left_ == 0) [[unlikely]]
      return false;
    ++sends_;
    bytes_ += bytes;
    return true;
  }
  // `may_try`: no other choice of this rank is trying. `waits`: of the pair, this is the rank that
  // comes later when trials are shifted.
  Event step(std::uint64_t bytes, const PathMoment& moment, bool may_try, bool waits);
  // The path of this message was not to be had: what is being measured tells nothing.
  void spoil() { spoilt_ = true; }
  // Another choice has taken over the right to try.
  void give_up() { end_unjudged(); }

 private:
  enum class Phase : std::uint8_t { first, rest, warm, trial, back };
  struct Rival {
    std::uint32_t next = 0;  // turn from which on it may be tried
    std::uint8_t level = 0;  // after a loss 2^level turns are left out
    std::uint8_t wins = 0;
    bool shifted = false;
    bool met = false;  // it has been tried before: what is done only once has been done
  };
  static constexpr std::size_t kPaths = kPathCount;
  struct Pace;
  static const Pace kShortPace;
  static const Pace kLongPace;

  void open_chunk(std::uint64_t bytes, const PathMoment& moment, std::uint32_t sends);
  std::uint64_t cost(const PathMoment& moment) const;
  void charge(std::uint32_t sends, std::uint64_t ratio);
  Rival& rival() { return rivals_[static_cast<std::size_t>(rival_)]; }
  void end_trial(const PathMoment& moment);
  void end_unjudged();
  Event end_rest(const PathMoment& moment, bool may_try, bool waits);
  Event judge(std::uint64_t second_base);
  void note_usual(std::uint64_t cost);
  bool begin_trial(bool waits);
  std::uint32_t turn() const;
  const Pace& pace() const;
  bool hopeless(const PathMoment& moment, std::uint64_t most) const;

  // What every message touches.
  std::uint32_t left_ = 0;
  std::uint32_t sends_ = 0;  // of the chunk so far
  std::uint64_t bytes_ = 0;  // likewise
  Path path_ = Path::cells;
  Path usual_ = Path::cells;
  bool begun_ = false;
  bool spoilt_ = false;
  bool long_ = false;
  Phase phase_ = Phase::first;

  bool judging_ = false;   // a trial is under way, or its second chunk of the usual path
  bool dialogue_ = false;  // of a trial: each send so far was followed by a receive
  Path rival_ = Path::cells;
  std::uint8_t able_ = 0;  // without the usual one
  std::uint8_t odd_ = 0;   // chunks in a row that took much more or less than usual
  std::uint8_t delayed_ = 0;
  std::int32_t credit_ = 0;
  std::uint64_t start_ns_ = 0;
  std::uint64_t receives_ = 0;  // at the start of the chunk, or at the last send of a trial

  std::uint32_t warm_sends_ = 0;
  std::uint64_t all_sends_ = 0;
  // Nanoseconds for 64 KiB, so that messages of one range of sizes can be compared.
  std::uint64_t base_ = 0;  // of the newest chunk with the usual path; 0: not known
  std::uint64_t tried_ = 0;
  std::uint64_t typical_ = 0;
  std::array<Rival, kPaths> rivals_{};
};

// Which of `count` ranges of lengths: doublings from `least` on, the first and the last take what
// is beyond. Choices are made apart for each.
constexpr std::size_t size_range(std::uint64_t bytes, std::uint64_t least, std::size_t count) {
  const int doublings =
      static_cast<int>(std::bit_width(bytes)) - static_cast<int>(std::bit_width(least));
  return std::min(static_cast<std::size_t>(std::max(doublings, 0)), count - 1);
}

// Of several choices of a rank only one tries at a time: what another one does meanwhile would be
// taken for its doing.
class OneTrial {
 public:
  // choice.step() of one of them.
  PathChoice::Event step(PathChoice& choice, std::uint64_t bytes, const PathMoment& moment,
                         bool waits) {
    if (choice.trying() && owner_ != &choice) choice.give_up();
    const bool free =
        owner_ == nullptr || owner_ == &choice || moment.now_ns - owned_since_ns_ > kPatienceNs;
    const PathChoice::Event event = choice.step(bytes, moment, free, waits);
    if (event == PathChoice::Event::trial_begun) {
      owner_ = &choice;
      owned_since_ns_ = moment.now_ns;
    } else if (event != PathChoice::Event::none) {
      owner_ = nullptr;
    }
    return event;
  }

 private:
  // Nobody who is trying takes longer between two messages; perhaps there are no more of them.
  static constexpr std::uint64_t kPatienceNs = 100'000'000;

  PathChoice* owner_ = nullptr;  // who is trying
  std::uint64_t owned_since_ns_ = 0;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PATH_CHOICE_H_
