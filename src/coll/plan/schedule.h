// What one rank does in a collective: a program of small steps and what each has to wait for.
//
// A schedule is made once (Builder), never changes, and may run any number of times, also several
// times at once: all state of a run is in its Run. A step may start when the steps that it waits
// for are complete; there is no other order. A send is complete when its memory may be overwritten.
//
// The k-th message from rank a to rank b in a's schedule is received by the k-th receive from a in
// b's schedule; k is the `ordinal` of both steps. Steps may start in another order than that of the
// program, so an executor must match by ordinal (as part of the tag), not by arrival.
//
// Steps of the node are things that all ranks of a node do together. Each of these ranks has the
// same ones in the same order; `ordinal` counts them, and Run hands them out in that order, so that
// the k-th one that a rank starts is the k-th one of every other.
//
// Memory is named, not addressed: a place is a buffer, a block in it and an offset in units. Where
// user buffers are one piece, block is 0. In the collectives with displacements (allgatherv,
// alltoallv, alltoallw, gatherv, scatterv) block i of a user buffer is that of rank i, wherever it
// lies; where a rank knows its own counts only, steps move whole blocks (kWholeBlock).
#ifndef OVERDRIVE_COLL_PLAN_SCHEDULE_H_
#define OVERDRIVE_COLL_PLAN_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace od::coll {

enum class Buffer : std::uint8_t {
  kInput,    // the user's send buffer; never written, never used with MPI_IN_PLACE
  kOutput,   // the user's receive buffer; the only buffer of a broadcast
  kScratch,  // Schedule::scratch_units of the executor's memory, undefined at first
};

struct Place {
  std::int64_t offset = 0;  // units from the beginning of the block
  std::int32_t block = 0;
  Buffer buffer = Buffer::kInput;

  Place operator+(std::int64_t units) const { return {offset + units, block, buffer}; }
  bool operator==(const Place&) const = default;
};

enum class StepKind : std::uint8_t {
  kSend,     // source to peer
  kReceive,  // from peer to target
  kCopy,     // target = source
  kReduce,   // target = source op right; target is one of them or does not overlap them
  kNode,     // `peer` says what the ranks of this node do (coll/plan/hierarchy/node_steps.h)
  kJoin,     // nothing: stands for the completion of what it waits for
  // `peer` says what (Elsewhere): the ranks that have this step hand it to something outside, such
  // as a switch that adds. That does it for all of them or for none; then steps that are marked
  // `otherwise`, all of which wait for it, do it. Else these are complete as soon as they may
  // start.
  kElsewhere,
};

// What a step of kind kElsewhere computes. `count` and the places are those of this rank.
enum class Elsewhere : std::uint8_t {
  kCombine,  // target = sources of all, joined in the order of ranks
  kShow,     // source is everybody's target
  kTake,     // target = the source of the one that shows
  kMeet,     // all have come
};

// However long the vector, segments become so large that a pair of up to a thousand ranks exchanges
// no more messages than this in one direction: executors can reserve that many tags for a call.
inline constexpr std::uint32_t kMostOrdinals = 4096;

// The count of the block at run time; the block is known by sender and receiver alike.
inline constexpr std::int64_t kWholeBlock = -1;

struct Step {
  std::int64_t count = 0;  // units, or kWholeBlock; 0: a message without content
  Place target = {};
  Place source = {};
  Place right = {};
  std::int32_t peer = -1;
  std::uint32_t ordinal = 0;  // of this message among those with the same sender and receiver
  StepKind kind = StepKind::kJoin;
  std::uint16_t segment = 0;  // of a pipeline in two levels; for people
  bool otherwise = false;     // only if the step of kind kElsewhere has come to nothing

  bool operator==(const Step&) const = default;
};

struct Schedule {
  std::vector<Step> steps;
  // How many steps each one waits for, and which ones wait for it: those of step i are
  // followers[first_follower[i]] up to followers[first_follower[i + 1]].
  std::vector<std::uint32_t> waits;
  std::vector<std::uint32_t> first_follower;
  std::vector<std::uint32_t> followers;
  std::int64_t scratch_units = 0;
  std::uint32_t ordinals = 0;  // those of messages are below: the tags that one run needs
  std::uint32_t node_steps = 0;

  std::span<const std::uint32_t> followers_of(std::uint32_t step) const {
    return {followers.data() + first_follower[step], followers.data() + first_follower[step + 1]};
  }
  bool operator==(const Schedule&) const = default;
};

// Step::peer of a step of kind kElsewhere, for the leaders of a slice.
inline int elsewhere_code(Elsewhere work, int slice) { return slice << 4 | static_cast<int>(work); }
inline Elsewhere elsewhere_work(const Step& step) { return static_cast<Elsewhere>(step.peer & 15); }
inline int elsewhere_slice(const Step& step) { return step.peer >> 4; }

// One run of a schedule: which steps may start. Usage: begin(), then take() steps until it returns
// false, complete() each one when it is, take() again, until done(). Allocates in begin() only, and
// there only if an earlier run was shorter.
class Run {
 public:
  void begin(const Schedule& schedule) {
    schedule_ = &schedule;
    waits_.assign(schedule.waits.begin(), schedule.waits.end());
    ready_.clear();
    ready_.reserve(waits_.size());
    held_.clear();
    held_.reserve(schedule.node_steps);
    next_node_step_ = 0;
    taken_ = 0;
    open_ = waits_.size();
    // Receives first: what arrives early should find its place.
    for (const bool receives : {true, false}) {
      for (std::uint32_t step = 0; step < waits_.size(); ++step) {
        const bool receive = schedule.steps[step].kind == StepKind::kReceive;
        if (waits_[step] == 0 && receive == receives) ready_.push_back(step);
      }
    }
  }

  // The next step that may start; joins are not shown. False if none is left for now.
  bool take(std::uint32_t& step) {
    if (take_held(step)) return true;
    while (taken_ < ready_.size()) {
      step = ready_[taken_++];
      const Step& found = schedule_->steps[step];
      if (found.kind == StepKind::kJoin) {
        complete(step);
      } else if (found.kind == StepKind::kNode && found.ordinal != next_node_step_) {
        held_.push_back(step);
      } else {
        if (found.kind == StepKind::kNode) ++next_node_step_;
        return true;
      }
    }
    return false;
  }

  void complete(std::uint32_t step) {
    --open_;
    for (const std::uint32_t follower : schedule_->followers_of(step)) {
      if (--waits_[follower] == 0) ready_.push_back(follower);
    }
  }

  bool done() const { return open_ == 0; }
  std::size_t open_steps() const { return open_; }

 private:
  // A step of the node that was ready before its turn, if that has come.
  bool take_held(std::uint32_t& step) {
    for (std::uint32_t& held : held_) {
      if (schedule_->steps[held].ordinal != next_node_step_) continue;
      step = held;
      held = held_.back();
      held_.pop_back();
      ++next_node_step_;
      return true;
    }
    return false;
  }

  const Schedule* schedule_ = nullptr;
  std::vector<std::uint32_t> waits_;
  std::vector<std::uint32_t> ready_;  // in the order in which they became ready
  std::vector<std::uint32_t> held_;   // steps of the node that others have to precede
  std::uint32_t next_node_step_ = 0;
  std::size_t taken_ = 0;
  std::size_t open_ = 0;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_SCHEDULE_H_
