// Calls that look once and return, many times in a row while there is certainly nothing to find:
// the peer does not answer before it is told to. What a run shows is in the counters.
#include "odtest.h"

enum { kGo = 1, kAnswer = 2 };

static int peer;
static int polls;

static void tell(void) { MUST(MPI_Send(NULL, 0, MPI_BYTE, peer, kGo, MPI_COMM_WORLD)); }

// The peer's side of a case with a message.
static void answer(void) {
  MUST(MPI_Recv(NULL, 0, MPI_BYTE, peer, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  MUST(MPI_Send(NULL, 0, MPI_BYTE, peer, kAnswer, MPI_COMM_WORLD));
}

enum { kTest, kTestall, kTestany, kTestsome, kStatus, kIprobe, kImprobe, kRequestless };
static const char* const kNames[] = {
    "Test", "Testall", "Testany", "Testsome", "Request_get_status", "Iprobe", "Improbe"};

static void poll_case(int kind) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (kind < kIprobe) {
    MUST(MPI_Irecv(NULL, 0, MPI_BYTE, peer, kAnswer, MPI_COMM_WORLD, &request));
  }
  for (int i = 0; i < polls; i++) {
    int flag = 0, index = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    switch (kind) {
      case kTest:
        MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        break;
      case kTestall:
        MUST(MPI_Testall(1, &request, &flag, &status));
        break;
      case kTestany:
        MUST(MPI_Testany(1, &request, &index, &flag, MPI_STATUS_IGNORE));
        break;
      case kTestsome:
        MUST(MPI_Testsome(1, &request, &flag, &index, &status));
        break;
      case kStatus:
        MUST(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
        break;
      case kIprobe:
        MUST(MPI_Iprobe(peer, kAnswer, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        break;
      default:
        MUST(MPI_Improbe(MPI_ANY_SOURCE, kAnswer, MPI_COMM_WORLD, &flag, &message,
                         MPI_STATUS_IGNORE));
    }
    CHECK(flag == 0, "%s found something in poll %d", kNames[kind], i);
  }
  tell();
  if (kind < kIprobe) {
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  } else {
    MUST(MPI_Recv(NULL, 0, MPI_BYTE, peer, kAnswer, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
}

// A collective that the peer does not enter before it is told to.
static void collective_case(int reduce) {
  const int mine = odt.rank;
  int sum = -1;
  MPI_Request request;
  if (odt.rank != 0) {
    MUST(MPI_Recv(NULL, 0, MPI_BYTE, peer, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
  if (reduce) {
    MUST(MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
  } else {
    MUST(MPI_Ibarrier(MPI_COMM_WORLD, &request));
  }
  if (odt.rank == 0) {
    for (int i = 0; i < polls; i++) {
      int flag = 0;
      MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
      CHECK(flag == 0, "collective complete in poll %d", i);
    }
    tell();
  }
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  if (reduce) CHECK(sum == 1, "sum %d", sum);
}

int main(int argc, char** argv) {
  odt_start("polling", &argc, &argv);
  peer = 1 - odt.rank;
  polls = (int)odt_number("polls", 400);
  for (int kind = 0; kind < kRequestless; kind++) {
    if (odt.rank == 0) {
      poll_case(kind);
    } else {
      answer();
    }
  }
  collective_case(0);
  collective_case(1);
  return odt_finish();
}
