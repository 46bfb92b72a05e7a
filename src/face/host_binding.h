// Fills the engine's table of host functions with the host MPI of this ABI.
#ifndef OVERDRIVE_SRC_FACE_HOST_BINDING_H_
#define OVERDRIVE_SRC_FACE_HOST_BINDING_H_

#include "host/host_table.h"

namespace od::face {

// Call after the host's MPI_Init; asks the host for the rank and the size of MPI_COMM_WORLD.
host::HostTable make_host_table();

// Before the host's MPI_Finalize: gives back what HostTable::poll uses.
void stop_polling();

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_HOST_BINDING_H_
