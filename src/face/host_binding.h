// Fills the engine's table of host functions with the host MPI of this ABI.
#ifndef OVERDRIVE_SRC_FACE_HOST_BINDING_H_
#define OVERDRIVE_SRC_FACE_HOST_BINDING_H_

#include <cstddef>
#include <cstdint>

#include "host/host_table.h"

namespace od::face {

// Call after the host's MPI_Init; asks the host for the rank and the size of MPI_COMM_WORLD.
host::HostTable make_host_table();

// Whether all ranks of MPI_COMM_WORLD come here within `limit_ns`. If not, the operation stays
// under way in the host: all that can be done then is to end the job.
bool world_meets(std::uint64_t limit_ns);

// From rank 0 to all of MPI_COMM_WORLD; while joining.
int world_broadcast(void* data, std::size_t bytes);

// Before the host's MPI_Finalize: gives back what HostTable::poll uses.
void stop_polling();

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_HOST_BINDING_H_
