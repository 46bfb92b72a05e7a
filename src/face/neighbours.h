// Asks the host for the neighbours in a communicator's topology.
#ifndef OVERDRIVE_SRC_FACE_NEIGHBOURS_H_
#define OVERDRIVE_SRC_FACE_NEIGHBOURS_H_

#include "coll/run/neighbourhood.h"
#include "face/state.h"

namespace od::face {

// Of this rank, in the order in which neighbourhood collectives have them; null: there is no
// topology, or the host does not tell. Asked once per communicator, by a collective call on it.
const Neighbourhood* neighbours_of(Comm& comm);

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_NEIGHBOURS_H_
