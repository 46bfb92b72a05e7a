// A receive from any source is pending while its rank is in a constructor; a neighbour sends to it
// synchronously and comes to the constructor then, and after that another node sends. The receive
// is the neighbour's: its send could not complete otherwise.
//
// Four ranks, of which the last two are on another node (by OVERDRIVE_TEST_REMOTE, or because they
// are).
//   --rounds=N  of each constructor (5)
#include <unistd.h>

#include "odtest.h"

enum { kRoot, kNear, kFar, kOther, kGoTag = 7, kBytes = 40 };

static MPI_Comm copy(MPI_Comm comm) {
  MPI_Comm made;
  MUST(MPI_Comm_dup(comm, &made));
  return made;
}

static MPI_Comm split(MPI_Comm comm) {
  MPI_Comm made;
  MUST(MPI_Comm_split(comm, odt.rank % 2, odt.rank, &made));
  return made;
}

static MPI_Comm cart(MPI_Comm comm) {
  MPI_Comm made;
  int dims[2] = {2, 2}, periods[2] = {1, 1};
  MUST(MPI_Cart_create(comm, 2, dims, periods, 0, &made));
  return made;
}

static MPI_Comm merge(MPI_Comm comm) {
  MPI_Comm half, inter, merged;
  MUST(MPI_Comm_split(comm, odt.rank / 2, odt.rank, &half));
  // The host's own messages have this tag, on the communicator of the receive.
  MUST(MPI_Intercomm_create(half, 0, comm, odt.rank < 2 ? 2 : 0, 9, &inter));
  MUST(MPI_Intercomm_merge(inter, odt.rank / 2, &merged));
  MUST(MPI_Comm_free(&inter));
  MUST(MPI_Comm_free(&half));
  return merged;
}

// It has the host make another communicator.
static MPI_Comm first_collective(MPI_Comm comm) {
  MUST(MPI_Barrier(comm));
  return MPI_COMM_NULL;
}

static MPI_Comm window(MPI_Comm comm) {
  MPI_Win made;
  int memory = 0;
  MUST(MPI_Win_create(&memory, sizeof memory, sizeof memory, MPI_INFO_NULL, comm, &made));
  MUST(MPI_Win_free(&made));
  return MPI_COMM_NULL;
}

typedef MPI_Comm (*Constructor)(MPI_Comm comm);
static const Constructor kConstructors[] = {copy, split, cart, merge, window, first_collective};
enum { kConstructorCount = sizeof kConstructors / sizeof kConstructors[0] };

static void play(Constructor constructor, long round) {
  MPI_Comm comm = copy(MPI_COMM_WORLD);
  unsigned char data[2][kBytes];
  MPI_Request requests[2];
  MPI_Status statuses[2];
  const uint64_t near = odt_key(kNear, 0, (int)round, kBytes);
  const uint64_t far = odt_key(kFar, 0, (int)round, kBytes);
  if (odt.rank == kRoot) {
    MUST(MPI_Irecv(data[0], kBytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[0]));
    MUST(MPI_Send(NULL, 0, MPI_BYTE, kNear, kGoTag, MPI_COMM_WORLD));
  }
  if (odt.rank == kNear) {
    MUST(MPI_Recv(NULL, 0, MPI_BYTE, kRoot, kGoTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    usleep(20000);  // meanwhile the other one comes to the constructor
    odt_fill(data[0], kBytes, near);
    MUST(MPI_Ssend(data[0], kBytes, MPI_BYTE, kRoot, 1, comm));
  }
  MPI_Comm made = constructor(comm);
  if (odt.rank == kFar) {
    odt_fill(data[0], kBytes, far);
    MUST(MPI_Send(data[0], kBytes, MPI_BYTE, kRoot, 2, comm));
  }
  if (odt.rank == kRoot) {
    MUST(MPI_Irecv(data[1], kBytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[1]));
    MUST(MPI_Waitall(2, requests, statuses));
    CHECK(statuses[0].MPI_SOURCE == kNear, "the first receive got one of %d",
          statuses[0].MPI_SOURCE);
    CHECK(statuses[1].MPI_SOURCE == kFar, "the second receive got one of %d",
          statuses[1].MPI_SOURCE);
    CHECK_DATA(data[0], kBytes, near);
    CHECK_DATA(data[1], kBytes, far);
  }
  if (made != MPI_COMM_NULL) MUST(MPI_Comm_free(&made));
  MUST(MPI_Comm_free(&comm));
}

int main(int argc, char** argv) {
  odt_start("host_entry", &argc, &argv);
  const long rounds = odt_number("rounds", 5);
  for (long round = 0; round < rounds; round++) {
    for (int i = 0; i < kConstructorCount; i++) play(kConstructors[i], round);
  }
  return odt_finish();
}
