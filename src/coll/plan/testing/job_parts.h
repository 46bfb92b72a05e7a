// Test support: what a run of all ranks consists of (all_ranks.cc), and what is done outside of
// them.
#ifndef OVERDRIVE_COLL_PLAN_TESTING_JOB_PARTS_H_
#define OVERDRIVE_COLL_PLAN_TESTING_JOB_PARTS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "coll/plan/schedule.h"
#include "coll/plan/testing/definitions.h"

namespace od::coll::testing {

struct Failure {
  std::string what;
};

struct Range {
  Buffer buffer;
  std::int32_t block;
  std::int64_t begin;
  std::int64_t end;
  bool writes;

  bool collides(const Range& other) const {
    return (writes || other.writes) && buffer == other.buffer && block == other.block &&
           begin < other.end && other.begin < end;
  }
};

// Which steps of a rank are running, and what they read and write. The units of every range are
// counted, for a rank may have hundreds of steps under way: comparing each with all others took
// most of the time of these tests.
class Running {
 public:
  // Lets `step` use these ranges until it has ended, unless another step disturbs it: that one is
  // returned. A step's own ranges may overlap.
  std::optional<std::uint32_t> start(std::uint32_t step, std::vector<Range> ranges) {
    for (const Range& range : ranges) {
      const std::uint32_t* const uses = uses_of(range).data();
      const std::uint32_t most = range.writes ? 0 : kWriter - 1;
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        if (uses[i] > most) return who_collides(range);
      }
    }
    for (const Range& range : ranges) count(range, range.writes ? kWriter : kReader);
    steps_.emplace(step, std::move(ranges));
    return {};
  }
  void end(std::uint32_t step) {
    const auto found = steps_.find(step);
    for (const Range& range : found->second) count(range, range.writes ? 0 - kWriter : 0 - kReader);
    steps_.erase(found);
  }
  const std::map<std::uint32_t, std::vector<Range>>& steps() const { return steps_; }

 private:
  static constexpr std::uint32_t kReader = 1;
  static constexpr std::uint32_t kWriter = 1u << 16;

  std::vector<std::uint32_t>& uses_of(const Range& range) {
    std::vector<std::uint32_t>& uses = uses_[{range.buffer, range.block}];
    const auto end = static_cast<std::size_t>(range.end);
    if (uses.size() < end) uses.resize(end);
    return uses;
  }
  void count(const Range& range, std::uint32_t difference) {
    std::uint32_t* const uses = uses_of(range).data();
    for (std::int64_t i = range.begin; i < range.end; ++i) uses[i] += difference;
  }
  std::optional<std::uint32_t> who_collides(const Range& range) const {
    for (const auto& [step, ranges] : steps_) {
      for (const Range& other : ranges) {
        if (range.collides(other)) return step;
      }
    }
    throw std::logic_error("units are in use by nobody");
  }

  std::map<std::uint32_t, std::vector<Range>> steps_;
  std::map<std::pair<Buffer, std::int32_t>, std::vector<std::uint32_t>> uses_;
};

struct Rank {
  Schedule schedule;
  Run run;
  Buffers memory;
  Block scratch;
  Running running;
  bool served_elsewhere = false;
};

struct Event {
  enum Kind { kStart, kLocal, kBuffer, kDeliver, kNodeWork, kNodeDone, kOutside } kind;
  int rank;
  std::uint32_t step;  // of the sender for kDeliver and kBuffer
};

// One message; steps are known when they have started.
struct Message {
  bool sent = false;
  bool buffered = false;
  bool delivery_due = false;
  std::uint32_t send_step = 0;
  std::int64_t receive_step = -1;
  Block content;
};

// What the members of a node do together: who has started it.
struct NodeWorkDone {
  std::vector<std::int64_t> step;  // by position; or kNotYet, kDone
  std::vector<bool> done;
  bool worked = false;
};

// A rank's step of kind kElsewhere.
struct OutsidePart {
  const Step* step;
  const Element* source;
  Element* target;

  Elsewhere work() const { return elsewhere_work(*step); }
  bool reads() const { return work() == Elsewhere::kCombine || work() == Elsewhere::kShow; }
  bool writes() const { return work() == Elsewhere::kCombine || work() == Elsewhere::kTake; }
};

// What is outside does its work, in the order of ranks.
inline void work_outside(const Case& test, const std::vector<OutsidePart>& parts) {
  std::vector<Element> result;
  for (const OutsidePart& part : parts) {
    const std::int64_t count = part.step->count;
    if (count != parts.front().step->count) throw Failure{"counts outside differ"};
    if (part.source == nullptr) continue;
    if (result.empty()) {
      result.assign(part.source, part.source + count);
    } else if (part.work() == Elsewhere::kShow) {
      throw Failure{"two ranks show something"};
    } else {
      for (std::size_t i = 0; i < result.size(); ++i) {
        result[i] = apply(test, result[i], part.source[i]);
      }
    }
  }
  for (const OutsidePart& part : parts) {
    if (part.target != nullptr) std::copy(result.begin(), result.end(), part.target);
  }
}

}  // namespace od::coll::testing

#endif  // OVERDRIVE_COLL_PLAN_TESTING_JOB_PARTS_H_
