// Collective calls: whether they are ours, and how they run.

#include "engine/collective_call.h"
#include "engine/engine.h"

namespace od {

int Rank::collective(const CollectiveCall&, Comm&, bool* served) {
  *served = false;
  return host::kSuccess;
}

int Rank::icollective(CollectiveCall&&, Comm&, Request**, bool* served) {
  *served = false;
  return host::kSuccess;
}

int Rank::collective_init(CollectiveCall&&, Comm&, Request**, bool* served) {
  *served = false;
  return host::kSuccess;
}

}  // namespace od
