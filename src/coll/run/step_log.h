// When each step of the last collectives began and ended, for a picture of what overlaps.
//
// Kept only where the setting `timeline` asks for it: each step costs two looks at the clock and a
// record. The memory is bounded, the oldest calls are forgotten first. Times are those of the
// machine's monotonic clock: ranks on different machines have different ones.
//
// begin_call() for each collective that is served, step() as steps complete in any order, then
// end_call(). Several calls may be under way. Used under the rank's lock.
#ifndef OVERDRIVE_COLL_RUN_STEP_LOG_H_
#define OVERDRIVE_COLL_RUN_STEP_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "coll/plan/schedule.h"
#include "coll/plan/select/selection.h"
#include "coll/plan/shape.h"

namespace od {

class StepLog {
 public:
  // About a segment of a large vector on a small job: a picture shows some hundreds.
  static constexpr std::size_t kMostSteps = 50'000;
  static constexpr std::size_t kMostCalls = 5'000;

  // What the program does with data that may still be on its way (engine/overlap.h).
  struct Touch {
    std::int32_t source;  // the rank whose data it is
    std::int64_t offset;  // in its block, or in the whole output
    std::int64_t bytes;
    std::uint64_t touched_ns;
    std::uint64_t opened_ns;  // when it could go on
  };
  struct Outlasted {
    std::uint64_t returned_ns = 0;  // 0: nothing is known
    std::uint64_t next_ns = 0;      // when the next call of MPI began
    std::vector<Touch> touches;
  };

  struct Call {
    std::uint64_t number = 0;  // of this rank's recorded calls, from 0
    coll::Collective collective = coll::Collective::kBarrier;
    coll::Decision decision;
    bool whole = false;       // one operation in shared memory, no steps
    std::uint64_t bytes = 0;  // message size as the collective defines it
    std::int64_t unit_bytes = 1;
    int rank = 0;  // in the communicator
    int size = 1;
    std::vector<int> node_of_rank;
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;  // 0: under way, or not completed

    struct Timed {
      coll::Step step;
      bool between_nodes;
      std::uint64_t begin_ns;
      std::uint64_t end_ns;
    };
    std::vector<Timed> steps;
    Outlasted outlasted;
  };

  // The number by which the other functions know the call; `number` of `call` is set here.
  std::uint64_t begin_call(Call call);
  // Of a call that has been forgotten meanwhile: nothing happens.
  void step(std::uint64_t number, const Call::Timed& timed);
  void end_call(std::uint64_t number, std::uint64_t end_ns);
  void outlasted(std::uint64_t number, Outlasted what);

  const std::deque<Call>& calls() const { return calls_; }
  std::uint64_t forgotten() const { return first_; }

  // All that is remembered, as one JSON object of a rank of MPI_COMM_WORLD.
  std::string json(int world_rank, int world_size) const;

 private:
  Call* find(std::uint64_t number);
  void forget();

  std::deque<Call> calls_;   // numbers follow each other
  std::uint64_t first_ = 0;  // number of the first one that is left
  std::size_t steps_ = 0;    // of all of them
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_STEP_LOG_H_
