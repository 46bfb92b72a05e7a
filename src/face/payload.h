// How much a call moves, and to whom, by its arguments: what the recorder of a run is told; and
// when this rank came to a collective.
//
// Payloads only for calls whose count and datatype the standard makes significant on every rank
// that passes them; the generator (generate.py) chooses these. Counts that are arrays are not added
// up.
#ifndef OVERDRIVE_SRC_FACE_PAYLOAD_H_
#define OVERDRIVE_SRC_FACE_PAYLOAD_H_

// Not face_mpi.h, which brings the generated calls of these functions along.
#include <mpi.h>

#include "face/call_timer.h"
#include "observe/recording.h"

namespace od::face {

observe::Payload payload(MPI_Count count, MPI_Datatype type);
// Of a message to `dest`; on communicators that are not served its world rank is known only if
// that is MPI_COMM_WORLD.
observe::Payload payload_to(MPI_Count count, MPI_Datatype type, int dest, MPI_Comm comm);

// Of the communicators that are known. Ranks count blocking collectives and others apart.
void note_arrival(MPI_Comm comm, bool blocks, const CallTimer& timer);

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_PAYLOAD_H_
