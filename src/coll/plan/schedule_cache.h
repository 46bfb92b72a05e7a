// Schedules of one communicator that are used again, within a budget of memory.
//
// What serves all sizes (Algorithm::scales) is kept once: made for one unit, and run with units of
// the whole vector or block. Others are kept per count. A schedule that is running outlives its
// place in the cache.
//
// Hierarchical schedules (coll/plan/hierarchy) are kept beside flat ones of the same algorithm.
#ifndef OVERDRIVE_COLL_PLAN_SCHEDULE_CACHE_H_
#define OVERDRIVE_COLL_PLAN_SCHEDULE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "coll/plan/hierarchy/hierarchy.h"
#include "coll/plan/registry.h"
#include "coll/plan/schedule.h"
#include "coll/plan/select/selection.h"
#include "coll/plan/shape.h"

namespace od::coll {

class ScheduleCache {
 public:
  explicit ScheduleCache(std::size_t budget_bytes) : budget_bytes_(budget_bytes) {}

  struct Found {
    std::shared_ptr<const Schedule> schedule;
    // How many of the shape's units are one unit of the schedule: its `count` for a schedule that
    // serves all sizes, else 1.
    std::int64_t units_per_unit;
  };
  // The schedule for a shape, made now if it is not there. The parameters are effective ones. Ranks
  // and rank must always be the same.
  Found get(const Algorithm& algorithm, const Shape& shape);
  // As decided, not for the host's algorithm; the decision's parameters count. The nodes must
  // always be the same; the way that this rank's node goes differs from call to call.
  Found get(const Decision& decision, Shape shape, const Nodes& nodes, NodeDriver driver);

  std::size_t used_bytes() const { return used_bytes_; }
  std::size_t entries() const { return entries_.size(); }
  std::uint64_t made() const { return made_; }

 private:
  struct Entry {
    const Algorithm* algorithm;
    std::optional<NodeDriver> driver;  // none: not hierarchical
    Parameters parameters;
    std::int64_t count;
    std::int64_t unit_bytes;
    std::vector<std::int64_t> counts;
    int root;
    bool commutative;
    bool in_place;
    std::size_t bytes;
    std::shared_ptr<const Schedule> schedule;
  };

  // `make(shape)` makes what is not there.
  template <class Make>
  Found find(const Algorithm& algorithm, std::optional<NodeDriver> driver, bool scales,
             const Shape& shape, Make make);

  std::size_t budget_bytes_;
  std::size_t used_bytes_ = 0;
  std::uint64_t made_ = 0;
  std::vector<Entry> entries_;  // last used first
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_SCHEDULE_CACHE_H_
