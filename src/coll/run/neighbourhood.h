// With whom a rank exchanges in the neighbourhood collectives of a communicator, in the order of
// its topology, and the schedules of these.
//
// A message goes straight from each rank to each of its neighbours. Where a rank is a neighbour
// more than once, its messages are told apart by their ordinals, which both sides derive from their
// own lists alone:
//   graphs   the k-th edge from a to b in the list of a is the k-th edge from a in the list of b;
//   grids    what goes to one side arrives from the other one, in each dimension. (In a periodic
//            dimension of two places the same rank is on both sides, of one place the rank itself.)
// Beyond the border of a grid is nobody: nothing is sent there, and what a rank has for it stays as
// it is. A rank that is its own neighbour copies.
#ifndef OVERDRIVE_COLL_RUN_NEIGHBOURHOOD_H_
#define OVERDRIVE_COLL_RUN_NEIGHBOURHOOD_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "coll/plan/schedule.h"
#include "coll/plan/shape.h"

namespace od {

class Neighbourhood {
 public:
  struct Edge {
    int peer = -1;              // rank in the communicator; negative: nobody
    std::uint32_t ordinal = 0;  // of the message among those of its sender and receiver

    bool is_nobody() const { return peer < 0; }
  };

  // A graph in which `rank` gets from `sources` and sends to `destinations`.
  static std::unique_ptr<Neighbourhood> graph(int rank, const std::vector<int>& sources,
                                              const std::vector<int>& destinations);
  // A grid: by dimension who is below and who is above, negative for nobody.
  static std::unique_ptr<Neighbourhood> grid(int rank, const std::vector<int>& around);

  // From whom blocks come, and to whom they go.
  const std::vector<Edge>& in() const { return in_; }
  const std::vector<Edge>& out() const { return out_; }

  // A grid in which nobody is on both sides: there all hosts give each block the same place. The
  // same on all ranks.
  bool is_plain_grid() const { return is_plain_grid_; }

  // The messages of an allgather(v), in which all get the same block, or of an alltoall(v, w).
  const std::shared_ptr<const coll::Schedule>& schedule(coll::Collective collective) const {
    return coll::info(collective).input == coll::Part::kOne ? same_block_ : own_blocks_;
  }

 private:
  Neighbourhood(int rank, bool is_plain_grid, std::vector<Edge> in, std::vector<Edge> out);
  std::shared_ptr<const coll::Schedule> messages(int rank, bool same_block) const;

  bool is_plain_grid_;
  std::vector<Edge> in_;
  std::vector<Edge> out_;
  std::shared_ptr<const coll::Schedule> same_block_;
  std::shared_ptr<const coll::Schedule> own_blocks_;
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_NEIGHBOURHOOD_H_
