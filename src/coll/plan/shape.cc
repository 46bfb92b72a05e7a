// The table of collectives.
#include "coll/plan/shape.h"

#include <array>

#include "config/settings_types.h"

namespace od::coll {
namespace {

constexpr const char* kVector = "bytes of the vector: count times size of the datatype";
constexpr const char* kBlock = "bytes of the block that one rank sends to one rank";
constexpr const char* kTotal = "bytes of all blocks together";
constexpr const char* kNone = "0: the ranks do not know each other's sizes";

// In the order of Collective.
constexpr std::array<CollectiveInfo, kCollectives> kInfos = {{
    {"allgather", kBlock, false, false, false, false},
    {"allgatherv", kTotal, false, false, true, false},
    {"allreduce", kVector, true, false, false, false},
    {"alltoall", kBlock, false, false, false, false},
    {"alltoallv", kNone, false, false, false, true},
    {"alltoallw", kNone, false, false, false, true},
    {"barrier", "0: there is no message", false, false, false, false},
    {"bcast", kVector, false, true, false, false},
    {"exscan", kVector, true, false, false, false},
    {"gather", kBlock, false, true, false, false},
    {"gatherv", kNone, false, true, false, true},
    {"reduce", kVector, true, true, false, false},
    {"reduce_scatter", kTotal, true, false, true, false},
    {"reduce_scatter_block", kTotal, true, false, false, false},
    {"scan", kVector, true, false, false, false},
    {"scatter", kBlock, false, true, false, false},
    {"scatterv", kNone, false, true, false, true},
}};

}  // namespace

const CollectiveInfo& info(Collective collective) {
  return kInfos[static_cast<std::size_t>(collective)];
}

bool find_collective(std::string_view name, Collective& collective) {
  for (std::size_t i = 0; i < kCollectives; ++i) {
    if (config::equal_ignoring_case(name, kInfos[i].name)) {
      collective = static_cast<Collective>(i);
      return true;
    }
  }
  return false;
}

}  // namespace od::coll
