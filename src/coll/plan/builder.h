// Turns a plain sequence of steps into a schedule: what depends on what is found by itself.
//
// An algorithm is written as if its steps ran one after the other. The builder notes which units
// each step reads and writes and makes a step wait exactly for those before it that touch the same
// units, unless both only read. So segments travel as a pipeline without a word about it in the
// algorithm, receives are posted as early as their memory allows, and no two steps that run at the
// same time can disturb each other. What cannot be seen in memory (the rounds of a barrier, limits
// on messages under way) is said by fence() and order().
//
// Steps of 0 units vanish: both sides of such a message know that it is empty.
//
// A frame lets one algorithm be a part of another schedule: while it is entered, peers and the
// buffers of the user are those that the frame names. Scratch memory and ordinals are always those
// of the whole schedule.
#ifndef OVERDRIVE_COLL_PLAN_BUILDER_H_
#define OVERDRIVE_COLL_PLAN_BUILDER_H_

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coll/plan/schedule.h"

namespace od::coll {

// The group and the buffers that an algorithm works with as a part of a schedule.
struct Frame {
  std::span<const int> peers;  // the rank of the schedule that each rank of the group is
  Place input = {};            // stands for the beginning of the user's input
  Place output = {};           // and of the output
  int slice = 0;               // of whose leaders it is
};

class Builder {
 public:
  using StepId = std::int32_t;
  static constexpr StepId kNoStep = -1;

  StepId send(int peer, Place source, std::int64_t count);
  StepId receive(int peer, Place target, std::int64_t count);
  // Messages without content.
  StepId signal(int peer);
  StepId await(int peer);
  StepId copy(Place target, Place source, std::int64_t count);
  // target = left op right
  StepId reduce(Place target, Place left, Place right, std::int64_t count);
  // A step of the node (coll/plan/hierarchy/node_steps.h), which at this rank reads and writes that
  // many units. Frames do not matter.
  StepId node(const Step& step, std::int64_t reads, std::int64_t writes);

  // A step of kind kElsewhere; what follows up to end_otherwise() does the same otherwise. Once in
  // a schedule per rank.
  StepId elsewhere(Elsewhere work, Place target, Place source, std::int64_t count);
  void end_otherwise() { otherwise_ = kNoStep; }

  // Until leave(), ranks and buffers are those of the frame; its peers must stay where they are.
  void enter(const Frame& frame);
  void leave();

  // Everything that follows waits for everything before.
  void fence();
  // `later` waits for `earlier`; later must be the newest step. kNoStep on either side: nothing.
  void order(StepId earlier, StepId later);

  // Messages that follow have this ordinal or a later one, with whomever: where sender and receiver
  // may not agree how many there were before.
  void number_from(std::uint32_t ordinal) { least_ordinal_ = ordinal; }

  // What follows belongs to this segment of a pipeline; for people who look at time lines.
  void mark_segment(std::int64_t segment) { segment_ = static_cast<std::uint16_t>(segment); }

  // Memory for intermediate results, not yet used by anything else.
  Place scratch(std::int64_t units);

  // What scratch() has given so far, and taking from a part of that again: what does not fit into
  // the part is new memory. Steps then wait for those that used the same units before.
  std::int64_t scratch_units() const { return scratch_units_; }
  void reuse_scratch(std::int64_t begin, std::int64_t end);

  // The schedule; the builder is empty afterwards.
  Schedule finish();

 private:
  // Units [key, end) of a block have the same history.
  struct Span {
    std::int64_t end;
    StepId writer;
    std::vector<StepId> readers;  // since the last write
  };
  using Spans = std::map<std::int64_t, Span>;

  Place placed(Place place) const;
  int peer_of(int peer) const;
  StepId insert(const Step& step);
  StepId add(const Step& step);
  void use(StepId step, Place place, std::int64_t count, bool writes);
  void wait_for(StepId earlier);
  void settle(StepId step);
  static Spans::iterator split(Spans& spans, std::int64_t at);

  std::vector<Step> steps_;
  std::vector<std::pair<StepId, StepId>> edges_;  // (earlier, later), grouped by later
  std::vector<StepId> current_waits_;
  std::unordered_map<std::uint64_t, Spans> memory_;        // by buffer and block
  std::unordered_map<std::uint64_t, std::uint32_t> sent_;  // ordinals by peer and direction
  std::vector<bool> has_follower_;
  StepId fence_ = kNoStep;
  StepId otherwise_ = kNoStep;  // the step that decides whether the newest steps are done
  std::int64_t scratch_units_ = 0;
  std::int64_t reuse_next_ = 0;
  std::int64_t reuse_end_ = 0;
  std::uint32_t ordinals_ = 0;
  std::uint32_t least_ordinal_ = 0;
  std::uint32_t node_steps_ = 0;
  Frame frame_;
  bool framed_ = false;
  std::uint16_t segment_ = 0;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_BUILDER_H_
