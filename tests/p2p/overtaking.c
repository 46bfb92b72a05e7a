// Messages of one sender with several tags, taken by receives and probes of which some accept all
// tags: none may overtake another as far as one receive could have taken either.
//
// Rank 1 sends to rank 0, three messages close together: tag 2, tag 2, tag 7. Ranks above send now
// and then as well, with a tag of their own.
#include "odtest.h"

enum { kLong = 20000, kOwnTag = 11 };

static int buffer[3][kLong];

static void pause_for(int round) {
  if (round % 5 == 0) odt_sleep_ms(1);
  for (volatile int i = 0; i < round * 37 % 4000; i++) {
  }
}

static void send_three(int round, int length) {
  static int data[3][kLong];
  static const int tags[3] = {2, 2, 7};
  MPI_Request requests[3];
  for (int i = 0; i < 3; i++) {
    data[i][0] = round * 10 + i;
    if (i == 2 && round % 2 == 0) {
      MUST(MPI_Issend(data[i], length, MPI_INT, 0, tags[i], MPI_COMM_WORLD, &requests[i]));
    } else {
      MUST(MPI_Isend(data[i], length, MPI_INT, 0, tags[i], MPI_COMM_WORLD, &requests[i]));
    }
  }
  MUST(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
}

static void expect_three(int round, const char* how) {
  for (int i = 0; i < 3; i++) {
    CHECK(buffer[i][0] == round * 10 + i, "round %d, %s: message %d is %d of round %d", round, how,
          i, buffer[i][0] % 10, buffer[i][0] / 10);
  }
}

// Receives that are posted before anything may have come.
static void posted(int round, int length) {
  MPI_Request requests[3];
  MPI_Status statuses[3];
  MUST(MPI_Irecv(buffer[0], length, MPI_INT, round % 3 == 0 ? 1 : MPI_ANY_SOURCE, MPI_ANY_TAG,
                 MPI_COMM_WORLD, &requests[0]));
  pause_for(round);
  MUST(MPI_Irecv(buffer[2], length, MPI_INT, 1, 7, MPI_COMM_WORLD, &requests[2]));
  MUST(MPI_Irecv(buffer[1], length, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &requests[1]));
  MUST(MPI_Waitall(3, requests, statuses));
  CHECK(statuses[0].MPI_TAG == 2 && statuses[0].MPI_SOURCE == 1, "round %d: tag %d from %d", round,
        statuses[0].MPI_TAG, statuses[0].MPI_SOURCE);
  expect_three(round, "receives");
}

// A probe finds the last one; the first still comes first.
static void probed(int round, int length, int source) {
  int flag = 0;
  MPI_Status status;
  pause_for(round);
  while (!flag) MUST(MPI_Iprobe(source, 7, MPI_COMM_WORLD, &flag, &status));
  CHECK(status.MPI_TAG == 7 && status.MPI_SOURCE == 1, "round %d: tag %d", round, status.MPI_TAG);
  for (int i = 0; i < 3; i++) {
    const int from = i == 1 ? 1 : MPI_ANY_SOURCE;
    MUST(MPI_Recv(buffer[i], length, MPI_INT, from, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
  }
  expect_three(round, "probe");
}

// The same while a receive of any tag is pending.
static void matched(int round, int length) {
  int flag = 0;
  MPI_Request first;
  MPI_Message message;
  MPI_Status status;
  MUST(MPI_Irecv(buffer[0], length, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &first));
  pause_for(round);
  while (!flag) {
    MUST(MPI_Improbe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &flag, &message, &status));
  }
  MUST(MPI_Mrecv(buffer[2], length, MPI_INT, &message, &status));
  MUST(MPI_Wait(&first, &status));
  MUST(MPI_Recv(buffer[1], length, MPI_INT, 1, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
  expect_three(round, "matched probe");
}

int main(int argc, char** argv) {
  odt_start("overtaking", &argc, &argv);
  const int rounds = (int)odt_number("rounds", 400);
  static const int lengths[] = {1, 1, 100, 1500, kLong};
  for (int round = 0; round < rounds; round++) {
    const int length = lengths[round % 5];
    if (odt.rank == 1) {
      pause_for(round * 7);
      send_three(round, length);
    } else if (odt.rank == 0) {
      switch (round % 4) {
        case 0:
        case 1:
          posted(round, length);
          break;
        case 2:
          probed(round, length, round % 8 == 2 ? 1 : MPI_ANY_SOURCE);
          break;
        default:
          matched(round, length);
          break;
      }
    }
    if (round % 10 == 9) MUST(MPI_Barrier(MPI_COMM_WORLD));
    if (round % 10 == 9 && odt.rank > 1) {
      MUST(MPI_Send(&round, 1, MPI_INT, 0, kOwnTag, MPI_COMM_WORLD));
    } else if (round % 10 == 9 && odt.rank == 0) {
      for (int i = 2, got = 0; i < odt.size; i++) {
        MUST(
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, kOwnTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      }
    }
    // Nobody's message of a later round may come before.
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
  return odt_finish();
}
