// Names and words of the table of collectives.
#include "coll/plan/shape.h"

#include "config/settings_types.h"

namespace od::coll {

const char* CollectiveInfo::size_text() const {
  switch (size_rule()) {
    case SizeRule::kNone:
      return output == Part::kNone ? "0: there is no message"
                                   : "0: the ranks do not know each other's sizes";
    case SizeRule::kVector:
      return "bytes of the vector: count times size of the datatype";
    case SizeRule::kBlock:
      return "bytes of the block that one rank sends to one rank";
    case SizeRule::kTotal:
      return "bytes of all blocks together";
  }
  return "";
}

bool find_collective(std::string_view name, Collective& collective) {
  for (std::size_t i = 0; i < kCollectives; ++i) {
    if (config::equal_ignoring_case(name, kCollectiveTable[i].name)) {
      collective = static_cast<Collective>(i);
      return true;
    }
  }
  return false;
}

}  // namespace od::coll
