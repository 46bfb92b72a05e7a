// Chunks, trials and their verdicts; see path_choice.h.

#include "p2p/path_choice.h"

#include <algorithm>

namespace od::p2p {

namespace {

// A chunk ends at a send before which something has been received, so that the waits of a program
// that sends many messages at a time are in it; but not later than this.
constexpr std::uint32_t kLongestChunk = 64;

constexpr std::uint64_t kPrice = 50;  // 2 %
constexpr std::int32_t kLeastCredit = -1 << 24;

// Of the cost of the usual path, in thousandths.
constexpr std::uint64_t kEqual = 1000;
constexpr std::uint64_t kWin = 950;
constexpr std::uint64_t kLoss = 1030;
constexpr std::uint64_t kClearLoss = 1300;
constexpr std::uint64_t kHopeless = 4000;
// The first message on another path may have to map the other side's pages.
constexpr std::uint64_t kHopelessAtFirst = 16000;
// A trial is not given up for an interruption by the system's clock.
constexpr std::uint64_t kHopelessNs = 20'000;
// What the chunks before and after a trial may differ by.
constexpr std::uint64_t kAgreement = 1250;

constexpr int kWins = 2;
constexpr std::uint8_t kMostLevel = 5;
constexpr std::uint8_t kShift = 2;  // chunks by which trials are shifted
// So many chunks in a row that take 1.5 times as long, or as short: the program does something
// else.
constexpr std::uint8_t kChange = 3;

// From here on messages take ten microseconds or so: few of them can be told apart, and a program
// may send few.
constexpr std::uint64_t kLongBytes = 128u << 10;
constexpr std::uint64_t kLongFarBytes = 32u << 10;

}  // namespace

struct PathChoice::Pace {
  // The first sends of all touch new pages and are not measured.
  std::uint32_t first;
  // Sends whose time is read together: one reading of the clock for 16 messages of 4 KiB is less
  // than half a percent.
  std::uint32_t chunk;
  // After a change of path: sends that only bring the caches into the state that the path leaves.
  std::uint32_t warm;
  std::uint32_t trial;
  std::int32_t allowance;  // eight trials
  unsigned turn_bits;      // a turn is so many sends as a trial costs
};

const PathChoice::Pace PathChoice::kShortPace = {
    .first = 4, .chunk = 16, .warm = 2, .trial = 8, .allowance = 4000, .turn_bits = 9};
const PathChoice::Pace PathChoice::kLongPace = {
    .first = 2, .chunk = 4, .warm = 1, .trial = 3, .allowance = 1600, .turn_bits = 8};

const PathChoice::Pace& PathChoice::pace() const { return long_ ? kLongPace : kShortPace; }

void PathChoice::begin(Path prior, unsigned able, bool far, std::uint64_t bytes) {
  const bool longer = bytes >= (far ? kLongFarBytes : kLongBytes);
  *this = PathChoice{};
  begun_ = true;
  long_ = longer;
  credit_ = pace().allowance;
  usual_ = path_ = prior;
  able_ = static_cast<std::uint8_t>(able & ~bit(prior));
  left_ = 1;
}

void PathChoice::open_chunk(std::uint64_t bytes, const PathMoment& moment, std::uint32_t sends) {
  start_ns_ = moment.now_ns;
  receives_ = moment.receives;
  left_ = sends;
  sends_ = 1;
  bytes_ = bytes;
  spoilt_ = false;
}

std::uint64_t PathChoice::cost(const PathMoment& moment) const {
  return std::max<std::uint64_t>((moment.now_ns - start_ns_) * 65536 / bytes_, 1);
}

void PathChoice::charge(std::uint32_t sends, std::uint64_t ratio) {
  const std::uint64_t price = sends * kPrice * std::max(ratio, kEqual) / kEqual;
  credit_ = std::max<std::int32_t>(
      credit_ - static_cast<std::int32_t>(std::min<std::uint64_t>(price, 1u << 20)), kLeastCredit);
}

std::uint32_t PathChoice::turn() const {
  return static_cast<std::uint32_t>(all_sends_ >> pace().turn_bits);
}

void PathChoice::end_unjudged() {
  charge(warm_sends_ + sends_, kEqual);
  path_ = usual_;
  phase_ = Phase::back;
  judging_ = false;
  base_ = 0;
  left_ = 1;
}

void PathChoice::end_trial(const PathMoment& moment) {
  tried_ = spoilt_ ? 0 : cost(moment);
  std::uint64_t ratio = cost(moment) * kEqual / base_;
  // What happens once is not what a trial costs: the other side's pages were mapped, or the process
  // was interrupted. To pay for a millisecond of that with 2 % of the time takes thousands of
  // sends.
  if (!rival().met || ratio > kHopelessAtFirst) ratio = std::min(ratio, kHopeless);
  charge(warm_sends_ + sends_, ratio);
  path_ = usual_;
  phase_ = Phase::back;
}

bool PathChoice::hopeless(const PathMoment& moment, std::uint64_t most) const {
  if (sends_ < 2) return false;
  const std::uint64_t elapsed_ns = moment.now_ns - start_ns_;
  return elapsed_ns > kHopelessNs && cost(moment) > base_ * most / kEqual;
}

PathChoice::Event PathChoice::step(std::uint64_t bytes, const PathMoment& moment, bool may_try,
                                   bool waits) {
  const bool received = moment.receives != receives_;
  const bool ends = phase_ == Phase::first || received || sends_ >= kLongestChunk;
  Event event = Event::none;
  std::uint32_t next = pace().chunk;
  switch (phase_) {
    case Phase::first:
      if (sends_ == 0) {
        next = pace().first;
      } else {
        phase_ = Phase::rest;
      }
      break;
    case Phase::rest:
      if (!ends) break;
      event = end_rest(moment, may_try, waits);
      if (phase_ == Phase::warm) next = pace().warm;
      break;
    case Phase::warm:
      if (!ends) break;
      warm_sends_ = 0;
      if (hopeless(moment, kHopelessAtFirst)) {
        end_trial(moment);
        next = pace().warm;
        break;
      }
      warm_sends_ = sends_;
      phase_ = Phase::trial;
      dialogue_ = true;
      next = 1;
      break;
    case Phase::trial: {
      // Each send is looked at, so that a path that is much too slow is left at once; but only
      // where each is followed by a receive. Elsewhere single sends take no time, and others all.
      dialogue_ = dialogue_ && received;
      const bool given_up = dialogue_ && hopeless(moment, kHopeless);
      if (!given_up && (sends_ < pace().trial || !(received || sends_ >= kLongestChunk))) {
        if (dialogue_) receives_ = moment.receives;
        left_ = 1;
        ++sends_;
        bytes_ += bytes;
        return event;
      }
      end_trial(moment);
      next = pace().warm;
      break;
    }
    case Phase::back:
      if (ends) phase_ = Phase::rest;
      break;
  }
  if (!ends && phase_ != Phase::trial) {
    left_ = 1;
    ++sends_;
    bytes_ += bytes;
    return event;
  }
  open_chunk(bytes, moment, next);
  return event;
}

PathChoice::Event PathChoice::end_rest(const PathMoment& moment, bool may_try, bool waits) {
  all_sends_ += sends_;
  credit_ = std::min<std::int32_t>(credit_ + static_cast<std::int32_t>(sends_), pace().allowance);
  const std::uint64_t now = spoilt_ ? 0 : cost(moment);
  if (now != 0) note_usual(now);
  if (judging_) {
    const Event event = judge(now);
    base_ = event == Event::path_changed ? 0 : now;
    return event;
  }
  base_ = now;
  if (base_ == 0 || !may_try || credit_ < 0 || !begin_trial(waits)) return Event::none;
  judging_ = true;
  path_ = rival_;
  phase_ = Phase::warm;
  return Event::trial_begun;
}

void PathChoice::note_usual(std::uint64_t now) {
  if (typical_ == 0) typical_ = now;
  if (now * 2 <= typical_ * 3 && now * 3 >= typical_ * 2) {
    typical_ = (typical_ * 7 + now) / 8;
    odd_ = 0;
    return;
  }
  if (++odd_ < kChange) return;
  // What has been learnt about the other paths was learnt with something else.
  odd_ = 0;
  typical_ = now;
  for (Rival& rival : rivals_) rival = Rival{.met = rival.met};
}

bool PathChoice::begin_trial(bool waits) {
  const std::uint32_t now = turn();
  // One that has won once comes first, then in turn.
  int found = -1;
  for (std::size_t i = 1; i <= kPaths; ++i) {
    const std::size_t path = (static_cast<std::size_t>(rival_) + i) % kPaths;
    const Rival& rival = rivals_[path];
    if ((able_ >> path & 1) == 0 || rival.next > now) continue;
    if (rival.wins > 0) {
      found = static_cast<int>(path);
      break;
    }
    if (found < 0) found = static_cast<int>(path);
  }
  if (found < 0) return false;
  if (rivals_[static_cast<std::size_t>(found)].shifted && waits && delayed_ < kShift) {
    ++delayed_;
    return false;
  }
  delayed_ = 0;
  rival_ = static_cast<Path>(found);
  return true;
}

PathChoice::Event PathChoice::judge(std::uint64_t second_base) {
  judging_ = false;
  Rival& rival = this->rival();
  const bool first = !rival.met;
  rival.met = true;
  if (tried_ == 0) {
    // It was not to be had, for instance because the receiver is late as a rule.
    if (rival.level < kMostLevel) ++rival.level;
    rival.next = turn() + (1u << rival.level);
    return Event::trial_over;
  }
  const std::uint64_t low = std::min(base_, second_base);
  const std::uint64_t high = std::max(base_, second_base);
  if (low == 0 || high * kEqual > low * kAgreement) {
    rival.next = turn() + 1;
    return Event::trial_over;
  }
  const std::uint64_t ratio = tried_ * kEqual * 2 / (base_ + second_base);
  if (ratio >= kWin && first) {
    // Perhaps only because the other side's pages had to be mapped, or the pool to be touched.
    rival.next = turn();
    return Event::trial_over;
  }
  if (ratio >= kWin) {
    rival.wins = 0;
    rival.shifted = !rival.shifted;
    const int more = ratio > kClearLoss && rival.level != 0 ? 2 : ratio > kLoss ? 1 : 0;
    rival.level = static_cast<std::uint8_t>(std::min<int>(rival.level + more, kMostLevel));
    rival.next = turn() + (1u << rival.level);
    return Event::trial_over;
  }
  rival.level = 0;
  rival.next = 0;
  if (++rival.wins < kWins) return Event::trial_over;
  rival = Rival{.met = true};
  // The path that was usual so far becomes a rival, and may come back soon.
  able_ = static_cast<std::uint8_t>((able_ | bit(usual_)) & ~bit(rival_));
  rivals_[static_cast<std::size_t>(usual_)] = {.next = turn() + 1, .met = true};
  usual_ = path_ = rival_;
  typical_ = tried_;
  // The next chunk brings the caches into the new state and is not a base.
  phase_ = Phase::back;
  return Event::path_changed;
}

}  // namespace od::p2p
