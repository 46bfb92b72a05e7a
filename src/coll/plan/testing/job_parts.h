// Test support: what a run of all ranks consists of (all_ranks.cc), and what is done outside of
// them.
#ifndef OVERDRIVE_COLL_PLAN_TESTING_JOB_PARTS_H_
#define OVERDRIVE_COLL_PLAN_TESTING_JOB_PARTS_H_

#include <algorithm>
#include <cstdint>
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

struct Rank {
  Schedule schedule;
  Run run;
  Buffers memory;
  Block scratch;
  std::vector<std::pair<std::uint32_t, std::vector<Range>>> running;
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
