// Blocking collectives of a few bytes inside a node, served past everything that longer ones need.
#ifndef OVERDRIVE_ENGINE_COLLECTIVE_LINE_H_
#define OVERDRIVE_ENGINE_COLLECTIVE_LINE_H_

#include "coll/node/team.h"
#include "engine/collective_call.h"

namespace od {

// True: the call is done. False: it goes on as start_whole(), of which the others notice nothing.
// The team must be that of the whole communicator.
bool serve_as_line(coll::shm::Team& team, const CollectiveCall& call);

}  // namespace od

#endif  // OVERDRIVE_ENGINE_COLLECTIVE_LINE_H_
