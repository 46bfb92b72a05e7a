// A collective under way in a team: what it is, and where it stands.
//
// It is a fixed sequence of exchanges: a single one, or those of a long reduction.
#ifndef OVERDRIVE_COLL_SHM_OPERATION_H_
#define OVERDRIVE_COLL_SHM_OPERATION_H_

#include <cstdint>

#include "coll/shm/combiner.h"
#include "coll/shm/exchange_spec.h"
#include "coll/shm/reduction_plan.h"

namespace od::coll::shm {

// Belongs to the caller and must stay where it is until it is done, like the buffers and arrays
// that it was given.
class Operation {
 public:
  bool done() const { return state_.finished == state_.exchanges; }
  // Whether what this member was shown was as long as it expected; once it is done.
  bool lengths_agree() const { return state_.lengths_agree; }

 private:
  friend class Team;

  struct Spec {
    enum class Kind : std::uint8_t { single, long_reduction };
    Kind kind = Kind::single;
    Combiner combiner;
    PlannedExchange single;
    ReductionPlan reduction;
  };
  struct State {
    std::uint32_t exchanges = 0;  // of the sequence; those below `begun` have begun
    std::uint32_t begun = 0;
    std::uint32_t finished = 0;
    bool lengths_agree = true;
    std::uint64_t first_number = 0;
    Operation* next = nullptr;  // that begins after this one

    bool begun_all() const { return begun == exchanges; }
  };

  Spec spec_;
  State state_;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_OPERATION_H_
