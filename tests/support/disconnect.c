// For jobs over several nodes with MPICH 4.0 over UCX, whose MPI_Finalize hangs now and then: it
// flushes and closes each connection and then enters the process manager's barrier. A rank that is
// in that barrier does not answer any more, and a peer that still flushes waits for it for ever.
// Here connections stay open until the library destroys them all behind the barrier. What the
// program has sent must have arrived by then: a barrier of the program's own before MPI_Finalize.
#include <stddef.h>

void* ucp_disconnect_nb(void* endpoint) {
  (void)endpoint;
  return NULL;  // UCS_OK: closed at once
}
