// Cancelling: a receive that nothing matched is cancelled and its message goes to the next receive;
// a matched one completes; a send is either cancelled and never received or not cancelled and
// received.
#include "odtest.h"

static void receives(int persistent) {
  char first[8], second[8];
  if (odt.rank == 0) {
    MUST(MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Send("message", 8, MPI_CHAR, 1, 2, MPI_COMM_WORLD));
    return;
  }
  MPI_Request request;
  MPI_Status status;
  int cancelled = 0;
  memset(first, 0, sizeof first);
  if (persistent) {
    MUST(MPI_Recv_init(first, 8, MPI_CHAR, persistent == 1 ? 0 : MPI_ANY_SOURCE, 2, MPI_COMM_WORLD,
                       &request));
    MUST(MPI_Start(&request));
  } else {
    MUST(MPI_Irecv(first, 8, MPI_CHAR, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
  }
  MUST(MPI_Cancel(&request));
  MUST(MPI_Wait(&request, &status));
  MUST(MPI_Test_cancelled(&status, &cancelled));
  CHECK(cancelled, "an unmatched receive was not cancelled");
  CHECK(first[0] == 0, "a cancelled receive has data");
  if (persistent) {
    CHECK(request != MPI_REQUEST_NULL, "Wait freed a persistent request");
  } else {
    CHECK(request == MPI_REQUEST_NULL, "Wait left a cancelled request");
  }
  MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
  MUST(MPI_Recv(second, 8, MPI_CHAR, 0, 2, MPI_COMM_WORLD, &status));
  CHECK(strcmp(second, "message") == 0, "the receive after the cancelled one got '%.8s'", second);
  CHECK(first[0] == 0, "a cancelled receive got the message");
  if (persistent) MUST(MPI_Request_free(&request));
}

// The message is there before the cancel: the receive must complete normally.
static void too_late(long bytes) {
  char* buffer = odt_memory((size_t)bytes);
  if (odt.rank == 0) {
    odt_fill(buffer, (size_t)bytes, odt_key(0, 1, 5, bytes));
    MUST(MPI_Send(buffer, (int)bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD));
  } else {
    MPI_Request request;
    MPI_Status status;
    int cancelled = 0, count = 0;
    MUST(MPI_Probe(0, 3, MPI_COMM_WORLD, &status));
    MUST(MPI_Irecv(buffer, (int)bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &request));
    MUST(MPI_Cancel(&request));
    MUST(MPI_Wait(&request, &status));
    MUST(MPI_Test_cancelled(&status, &cancelled));
    CHECK(!cancelled, "a matched receive was cancelled");
    if (!cancelled) {
      MPI_Get_count(&status, MPI_BYTE, &count);
      CHECK(count == bytes, "%d of %ld bytes", count, bytes);
      CHECK_DATA(buffer, bytes, odt_key(0, 1, 5, bytes));
    }
  }
  free(buffer);
}

// The sender tells the receiver afterwards whether its send was cancelled.
static void sends(long bytes, int synchronous) {
  char* buffer = odt_memory((size_t)bytes);
  int cancelled = 0;
  if (odt.rank == 0) {
    MPI_Request request;
    MPI_Status status;
    odt_fill(buffer, (size_t)bytes, odt_key(0, 1, 6, bytes));
    if (synchronous) {
      MUST(MPI_Issend(buffer, (int)bytes, MPI_BYTE, 1, 4, MPI_COMM_WORLD, &request));
    } else {
      MUST(MPI_Isend(buffer, (int)bytes, MPI_BYTE, 1, 4, MPI_COMM_WORLD, &request));
    }
    // The receiver waits for tag 5 first: the send can only end by the cancel, by buffering, or by
    // the receive that the receiver posts once it knows the outcome.
    MUST(MPI_Cancel(&request));
    int done = 0;
    double end = odt_seconds() + 0.2;
    while (!done && odt_seconds() < end) MUST(MPI_Test(&request, &done, &status));
    if (done) MUST(MPI_Test_cancelled(&status, &cancelled));
    MUST(MPI_Send(&cancelled, 1, MPI_INT, 1, 5, MPI_COMM_WORLD));
    if (!done) {
      int late = 0;
      MUST(MPI_Wait(&request, &status));
      MUST(MPI_Test_cancelled(&status, &late));
      CHECK(!late, "a send was cancelled after its receiver had been told the opposite");
    }
    MUST(MPI_Send("end", 4, MPI_CHAR, 1, 4, MPI_COMM_WORLD));
  } else {
    MPI_Status status;
    int count = -1;
    MUST(MPI_Recv(&cancelled, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Probe(0, 4, MPI_COMM_WORLD, &status));
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (!cancelled) {
      CHECK(count == bytes, "the send was not cancelled, but %d bytes came", count);
      MUST(MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, 4, MPI_COMM_WORLD, &status));
      CHECK_DATA(buffer, bytes, odt_key(0, 1, 6, bytes));
    } else {
      CHECK(count == 4, "the send was cancelled, but %d bytes came", count);
    }
    char end[4] = "";
    MUST(MPI_Recv(end, 4, MPI_CHAR, 0, 4, MPI_COMM_WORLD, &status));
    CHECK(strcmp(end, "end") == 0, "'%.3s' instead of the end", end);
  }
  free(buffer);
  MPI_Barrier(MPI_COMM_WORLD);
}

// Request_free right after Cancel is the usual clean-up.
static void cancel_and_free(void) {
  char buffer[100];
  for (int i = 0; i < 1000; i++) {
    MPI_Request request;
    MUST(MPI_Irecv(buffer, 100, MPI_BYTE, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request));
    MUST(MPI_Cancel(&request));
    MUST(MPI_Request_free(&request));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const int peer = 1 - odt.rank;
  MUST(MPI_Sendrecv("alive", 6, MPI_CHAR, peer, 77, buffer, 100, MPI_CHAR, peer, 77, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
  CHECK(strcmp(buffer, "alive") == 0, "'%.5s' arrived", buffer);
}

int main(int argc, char** argv) {
  odt_start("cancel", &argc, &argv);
  static const long kSizes[] = {5, 2000, 70000, 1 << 20};
  if (odt.rank < 2) {
    for (int kind = 0; kind < 3; kind++) receives(kind);
    for (int i = 0; i < 4; i++) too_late(kSizes[i]);
    // Some hosts do not cancel sends at all; then the outcome must be "not cancelled".
    if (odt_number("sends", 1)) {
      for (int i = 0; i < 4; i++) {
        sends(kSizes[i], 0);
        sends(kSizes[i], 1);
      }
    }
    cancel_and_free();
  }
  return odt_finish();
}
