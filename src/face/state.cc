// The one State of the process, errors, and what happens before a blocking host call.
#include "face/state.h"

#include <dlfcn.h>

#include <algorithm>
#include <new>

namespace od::face {

StateHolder::StateHolder() { new (&value) State; }
StateHolder state_holder;

void* host_data_symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  return found != nullptr ? found : state.loader->host_symbol(name);
}

bool prepare_to_block() {
  Rank* rank = any_rank();
  return rank != nullptr && rank->has_pending_work() && rank->entering_host_call();
}

void note_host_start() {
  if (Rank* rank = any_rank()) rank->note_host_start();
}

void note_host_message() {
  if (Rank* rank = any_rank()) rank->note_host_message();
}

void finish_blocking() { state.owned_rank->left_host_call(); }

void register_comm(host::Handle handle, Comm* comm) {
  if (comm == nullptr) {
    state.comms.erase(handle);
    return;
  }
  const auto local = std::count_if(comm->local_index.begin(), comm->local_index.end(),
                                   [](std::int16_t index) { return index != kRemote; });
  if (!comm->inter && comm->size > 1 && local == 1) {
    // Nobody but this rank itself: the host serves messages to oneself as well, and then a receive
    // from any source has just one place to look at.
    comm->local_index[static_cast<std::size_t>(comm->rank)] = kRemote;
  }
  comm->any_local = std::any_of(comm->local_index.begin(), comm->local_index.end(),
                                [](std::int16_t index) { return index != kRemote; });
  state.comms.insert(handle, comm);
}

int raise_error(host::Handle comm, int code) {
  const MPI_Comm handle = comm == 0 ? abi::comm_world() : abi::from_handle<MPI_Comm>(comm);
  // Not marked as a host call: the handler is the program's and may communicate.
  OD_HOST(Comm_call_errhandler)(handle, code);
  return code;
}

int raise_error(const Comm* comm, int code) {
  return raise_error(comm == nullptr || comm->freed ? host::Handle{0} : comm->handle, code);
}

}  // namespace od::face
