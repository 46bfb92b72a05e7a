// A session before MPI_Init, which then synchronises nothing, and after MPI_Finalize. The last rank
// calls MPI_Init long after the others; messages of the session and of MPI_COMM_WORLD do not meet.
#include "odtest.h"

enum { kRounds = 40, kLate = 2 };

static MPI_Comm made_of(MPI_Session session, const char* name) {
  MPI_Group group;
  MPI_Comm comm;
  MUST(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
  MUST(MPI_Comm_create_from_group(group, name, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
  MUST(MPI_Group_free(&group));
  return comm;
}

static void ring(MPI_Comm comm, int rank, int size, int what) {
  const int before = (rank + size - 1) % size;
  for (int round = 0; round < kRounds; round++) {
    int word = what * rank + round, got = -1, sum = -1;
    MUST(MPI_Sendrecv(&word, 1, MPI_INT, (rank + 1) % size, 1, &got, 1, MPI_INT, before, 1, comm,
                      MPI_STATUS_IGNORE));
    CHECK(got == what * before + round, "%d came", got);
    MUST(MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == what * size * (size - 1) / 2 + size * round, "sum %d", sum);
  }
}

int main(int argc, char** argv) {
  MPI_Session session;
  int rank, size, early = -1, word;
  odt.name = "sessions";
  MUST(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
  const MPI_Comm comm = made_of(session, "early");
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  odt.rank = rank;
  ring(comm, rank, size, 100);
  if (rank == size - 1) sleep(kLate);
  odt_start("sessions", &argc, &argv);
  CHECK(odt.rank == rank && odt.size == size, "rank %d of %d", odt.rank, odt.size);
  MPI_Request request;
  MUST(MPI_Irecv(&early, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &request));
  ring(MPI_COMM_WORLD, rank, size, 1000);
  word = rank;
  MUST(MPI_Send(&word, 1, MPI_INT, (rank + 1) % size, 3, comm));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(early == (rank + size - 1) % size, "%d came", early);
  const int code = odt_finish();
  ring(comm, rank, size, 100);
  MPI_Comm last = comm;
  MUST(MPI_Comm_free(&last));
  MUST(MPI_Session_finalize(&session));
  return odt.failures != 0 ? 1 : code;
}
