// Blocking collectives of a few bytes inside a node, served past everything that longer ones need.
#ifndef OVERDRIVE_COLL_RUN_LINE_H_
#define OVERDRIVE_COLL_RUN_LINE_H_

#include "coll/run/call.h"
#include "coll/shm/team.h"

namespace od {

// How often a rank with a core of its own looks for the lines of the others: some microseconds.
// Until then nothing else makes progress.
inline constexpr int kLineLooks = 200;

// True: the call is done. False: when patience is at its end it goes on as start_whole(), of which
// the others notice nothing. The team must be that of the whole communicator.
bool serve_as_line(coll::shm::Team& team, const CollectiveCall& call, coll::shm::ReductionForm form,
                   coll::shm::Patience patience);

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_LINE_H_
