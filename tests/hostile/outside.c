// Calls that MPI allows before MPI_Init and after MPI_Finalize, repeated queries, and attributes
// that are deleted by MPI_Finalize while messages to oneself still work.
#include "odtest.h"

static int deleted;

static int on_delete(MPI_Comm comm, int key, void* value, void* state) {
  (void)key;
  (void)value;
  (void)state;
  // MPI is still active here: a message to oneself must work.
  int out = 5, in = 0;
  MPI_Request request;
  MPI_Isend(&out, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request);
  MPI_Recv(&in, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  deleted = in == 5 && comm == MPI_COMM_SELF;
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  int flag = -1, version = 0, subversion = 0, length = 0, key;
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Initialized(&flag);
  int good = flag == 0;
  MPI_Finalized(&flag);
  good &= flag == 0;
  MPI_Get_version(&version, &subversion);
  good &= version >= 3;
  MPI_Get_library_version(text, &length);
  good &= length > 0;
  odt_start("outside", &argc, &argv);
  CHECK(good, "a query before MPI_Init was wrong");
  MPI_Initialized(&flag);
  CHECK(flag == 1, "not initialised after MPI_Init");
  CHECK(MPI_Wtime() >= 0, "MPI_Wtime gives a negative time");
  MUST(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &key, NULL));
  MUST(MPI_Comm_set_attr(MPI_COMM_SELF, key, &key));
  int peer = odt.rank ^ 1, out = odt.rank, in = -1;
  if (peer < odt.size) {
    MUST(MPI_Sendrecv(&out, 1, MPI_INT, peer, 1, &in, 1, MPI_INT, peer, 1, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    CHECK(in == peer, "got %d", in);
  }
  const int rank = odt.rank;
  const int code = odt_finish();
  MPI_Finalized(&flag);
  good = flag == 1;
  MPI_Initialized(&flag);
  good &= flag == 1;
  MPI_Get_version(&version, &subversion);
  MPI_Get_library_version(text, &length);
  good &= deleted;
  if (!good)
    fprintf(stderr, "FAIL outside rank %d: after MPI_Finalize, deleted %d\n", rank, deleted);
  return good ? code : 1;
}
