// Windows: the host serves them; what counts here is that there are any.
//
// Other ranks may need this one inside the host for as long as a window exists, because some hosts
// carry out one-sided communication at its target. Rank::window_opened() makes waits mind that.
#include "face/state.h"

namespace od::face {
namespace {

// Runs the host's constructor of a window, which all of `comm` come to.
template <typename Create>
int create(MPI_Comm comm, Create&& host_create) {
  const HostEntry entry(comm);
  HostCallScope scope(HostCallKind::kRmaSync);
  const int error = host_create();
  Rank* rank = any_rank();
  if (error == MPI_SUCCESS && rank != nullptr) rank->window_opened();
  return error;
}

}  // namespace
}  // namespace od::face

using namespace od::face;

int od_MPI_Win_free(MPI_Win* win) {
  HostCallScope scope(HostCallKind::kRmaSync);
  const int error = OD_HOST(Win_free)(win);
  od::Rank* rank = any_rank();
  if (error == MPI_SUCCESS && rank != nullptr) rank->window_freed();
  return error;
}

int od_MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  return create(comm, [&] { return OD_HOST(Win_create_dynamic)(info, comm, win); });
}

#define OD_WINDOWS(suffix, Unit)                                                               \
  int od_MPI_Win_create##suffix(void* base, MPI_Aint size, Unit disp_unit, MPI_Info info,      \
                                MPI_Comm comm, MPI_Win* win) {                                 \
    return create(comm, [&] {                                                                  \
      return OD_HOST(Win_create##suffix)(base, size, disp_unit, info, comm, win);              \
    });                                                                                        \
  }                                                                                            \
  int od_MPI_Win_allocate##suffix(MPI_Aint size, Unit disp_unit, MPI_Info info, MPI_Comm comm, \
                                  void* baseptr, MPI_Win* win) {                               \
    return create(comm, [&] {                                                                  \
      return OD_HOST(Win_allocate##suffix)(size, disp_unit, info, comm, baseptr, win);         \
    });                                                                                        \
  }                                                                                            \
  int od_MPI_Win_allocate_shared##suffix(MPI_Aint size, Unit disp_unit, MPI_Info info,         \
                                         MPI_Comm comm, void* baseptr, MPI_Win* win) {         \
    return create(comm, [&] {                                                                  \
      return OD_HOST(Win_allocate_shared##suffix)(size, disp_unit, info, comm, baseptr, win);  \
    });                                                                                        \
  }

OD_WINDOWS(, int)
OD_WINDOWS(_c, MPI_Aint)
