// Asks the host for the size of a datatype, and our communicators for world ranks and contexts.
#include "face/payload.h"

#include "face/calls.h"
#include "observe/arrivals.h"

namespace od::face {

observe::Payload payload(MPI_Count count, MPI_Datatype type) {
  int bytes = 0;
  if (count < 0 || type == abi::type_null()) return {};
  if (count > 0 && (OD_HOST(Type_size)(type, &bytes) != MPI_SUCCESS || bytes < 0)) return {};
  return {.bytes = static_cast<std::uint64_t>(bytes) * static_cast<std::uint64_t>(count),
          .known = true};
}

observe::Payload payload_to(MPI_Count count, MPI_Datatype type, int dest, MPI_Comm comm) {
  if (dest < 0) return {};
  observe::Payload found = payload(count, type);
  const Comm* known = find_comm(comm);
  if (known != nullptr && static_cast<std::size_t>(dest) < known->world_rank.size()) {
    found.peer = known->world_rank[static_cast<std::size_t>(dest)];
  } else if (comm == abi::comm_world()) {
    found.peer = dest;
  }
  return found;
}

void note_arrival(MPI_Comm comm, bool blocks, const CallTimer& timer) {
  const Comm* known = find_comm(comm);
  if (known == nullptr || known->inter || known->size < 2) return;
  observe::note_arrival({known->context, static_cast<std::uint32_t>(known->size), blocks},
                        timer.function(), timer.address(), timer.start_ns());
}

}  // namespace od::face
