// What the collectives of a rank cost, per collective, algorithm and way: a table for the user,
// kept only where statistics are asked for (the clock is read twice per call).
#ifndef OVERDRIVE_COLL_RUN_COLLECTIVE_STATS_H_
#define OVERDRIVE_COLL_RUN_COLLECTIVE_STATS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coll/plan/shape.h"

namespace od {

class CollectiveStats {
 public:
  enum class Way : std::uint8_t {
    shared,       // in shared memory alone
    messages,     // by messages alone
    both_levels,  // in shared memory inside nodes, by messages between them
    host,         // the installed MPI library
  };

  // Travels between ranks as plain bytes.
  struct Row {
    coll::Collective collective;
    Way way;
    std::int16_t algorithm;  // its number
    std::uint32_t arrivals;  // calls in which it was seen when the ranks of the node came
    std::uint64_t calls;
    std::uint64_t bytes;  // message sizes as the collective defines them
    std::uint64_t ns;     // from the call to its completion
    std::uint64_t longest_ns;
    std::uint64_t apart_ns;  // between the first and the last rank's call
    std::uint64_t longest_apart_ns;
  };
  // One call: `ns` is 0 for the host's, which are not timed.
  struct Call {
    coll::Collective collective = coll::Collective::kBarrier;
    Way way = Way::messages;
    int algorithm = 0;
    std::uint64_t bytes = 0;
    std::uint64_t ns = 0;
    bool arrivals_known = false;
    std::uint64_t apart_ns = 0;
  };
  void add(const Call& call);

  const std::vector<Row>& rows() const { return rows_; }

  // Joins the rows of all ranks.
  static std::vector<Row> join(std::span<const Row> all);
  // Lines for the statistics of `ranks` ranks; empty if there are no rows.
  static std::string table(std::span<const Row> rows, int ranks);
  // The rows as the elements of a JSON array.
  static std::string json(std::span<const Row> rows);

 private:
  static void merge(std::vector<Row>& rows, const Row& row);
  std::vector<Row> rows_;
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_COLLECTIVE_STATS_H_
