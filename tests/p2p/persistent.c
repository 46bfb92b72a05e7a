// Persistent requests: all send modes, many rounds with changing data, Start and Startall in any
// order, completion by every kind of call, inactive requests in all of them, Request_free while
// active, MPI_PROC_NULL.
#include "odtest.h"

enum { kPairs = 6, kRounds = 60 };

static const long kSizes[kPairs] = {0, 8, 1000, 16384, 65537, 600000};

static int init_send(int kind, void* buffer, int bytes, int to, int tag, MPI_Request* request) {
  switch (kind) {
    case 0:
      return MPI_Send_init(buffer, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
    case 1:
      return MPI_Bsend_init(buffer, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
    case 2:
      return MPI_Ssend_init(buffer, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
    default:
      return MPI_Rsend_init(buffer, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
  }
}

static void complete(int how, int count, MPI_Request* requests) {
  int left = count, index, done, flag = 0, indices[2 * kPairs];
  MPI_Status statuses[2 * kPairs];
  switch (how % 6) {
    case 0:
      for (int i = 0; i < count; i++) MUST(MPI_Wait(&requests[i], &statuses[i]));
      break;
    case 1:
      MUST(MPI_Waitall(count, requests, statuses));
      break;
    case 2:
      for (; left > 0; left--) {
        MUST(MPI_Waitany(count, requests, &index, &statuses[0]));
        CHECK(index >= 0 && index < count, "Waitany: index %d with %d active", index, left);
      }
      break;
    case 3:
      while (left > 0) {
        MUST(MPI_Waitsome(count, requests, &done, indices, statuses));
        CHECK(done > 0, "Waitsome: %d with %d active", done, left);
        if (done <= 0) break;
        left -= done;
      }
      break;
    case 4:
      while (!flag) MUST(MPI_Testall(count, requests, &flag, statuses));
      break;
    default:
      for (int i = 0; i < count; i++) {
        flag = 0;
        while (!flag) MUST(MPI_Test(&requests[i], &flag, &statuses[i]));
      }
  }
  // All inactive now: everything returns at once with an empty status.
  MPI_Status status;
  int bytes = -1;
  MUST(MPI_Waitany(count, requests, &index, &status));
  CHECK(index == MPI_UNDEFINED, "Waitany of inactive requests: index %d", index);
  MUST(MPI_Wait(&requests[0], &status));
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  CHECK(bytes == 0 && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG,
        "Wait of an inactive request: %d bytes, source %d, tag %d", bytes, status.MPI_SOURCE,
        status.MPI_TAG);
  MUST(MPI_Waitsome(count, requests, &done, indices, statuses));
  CHECK(done == MPI_UNDEFINED, "Waitsome of inactive requests: %d", done);
  MUST(MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE));
  CHECK(flag, "Testall of inactive requests: not complete");
  for (int i = 0; i < count; i++) {
    CHECK(requests[i] != MPI_REQUEST_NULL, "completion freed the persistent request %d", i);
  }
}

static void rounds(int kind) {
  const int peer = odt.rank ^ 1;
  MPI_Request requests[2 * kPairs];  // receives, then sends
  char* in[kPairs];
  char* out[kPairs];
  int room = 0;
  for (int i = 0; i < kPairs; i++) room += (int)kSizes[i] + 2 * MPI_BSEND_OVERHEAD;
  void* space = odt_memory(4 * (size_t)room);
  if (kind == 1) MUST(MPI_Buffer_attach(space, 4 * room));
  for (int i = 0; i < kPairs; i++) {
    in[i] = odt_memory((size_t)kSizes[i]);
    out[i] = odt_memory((size_t)kSizes[i]);
    MUST(MPI_Recv_init(in[i], (int)kSizes[i], MPI_BYTE, i % 2 ? peer : MPI_ANY_SOURCE, i,
                       MPI_COMM_WORLD, &requests[i]));
    MUST(init_send(kind, out[i], (int)kSizes[i], peer, i, &requests[kPairs + i]));
  }
  for (int round = 0; round < kRounds; round++) {
    for (int i = 0; i < kPairs; i++) {
      memset(in[i], 0, (size_t)kSizes[i]);
      odt_fill(out[i], (size_t)kSizes[i], odt_key(odt.rank, peer, kind * 1000 + round, i));
    }
    MUST(MPI_Startall(kPairs, requests));
    // Ready sends need the peer's receives, buffered ones the space that its last receives freed.
    if (kind == 1 || kind == 3) {
      MUST(MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 99, NULL, 0, MPI_BYTE, peer, 99, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
    }
    if (round % 2) {
      MUST(MPI_Startall(kPairs, requests + kPairs));
    } else {
      for (int i = kPairs - 1; i >= 0; i--) MUST(MPI_Start(&requests[kPairs + i]));
    }
    complete(round, 2 * kPairs, requests);
    for (int i = 0; i < kPairs; i++) {
      long wrong =
          odt_mismatch(in[i], (size_t)kSizes[i], odt_key(peer, odt.rank, kind * 1000 + round, i));
      CHECK(wrong < 0, "kind %d round %d: wrong data at byte %ld of %ld", kind, round, wrong,
            kSizes[i]);
    }
  }
  for (int i = 0; i < 2 * kPairs; i++) {
    MUST(MPI_Request_free(&requests[i]));
    CHECK(requests[i] == MPI_REQUEST_NULL, "Request_free leaves the handle");
  }
  if (kind == 1) {
    void* returned;
    int bytes;
    MUST(MPI_Buffer_detach(&returned, &bytes));
  }
  for (int i = 0; i < kPairs; i++) {
    free(in[i]);
    free(out[i]);
  }
  free(space);
}

// Freed while active: the operation completes all the same.
static void free_while_active(void) {
  const int peer = odt.rank ^ 1;
  for (int i = 0; i < kPairs; i++) {
    char* in = odt_memory((size_t)kSizes[i]);
    char* out = odt_memory((size_t)kSizes[i]);
    MPI_Request request;
    odt_fill(out, (size_t)kSizes[i], odt_key(odt.rank, peer, 9999, i));
    if (i % 2) {
      MUST(MPI_Send_init(out, (int)kSizes[i], MPI_BYTE, peer, 50, MPI_COMM_WORLD, &request));
      MUST(MPI_Start(&request));
    } else {
      MUST(MPI_Isend(out, (int)kSizes[i], MPI_BYTE, peer, 50, MPI_COMM_WORLD, &request));
    }
    MUST(MPI_Request_free(&request));
    MUST(MPI_Recv(in, (int)kSizes[i], MPI_BYTE, peer, 50, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_DATA(in, kSizes[i], odt_key(peer, odt.rank, 9999, i));
    // A receive freed while active: the data is there when the peer says that all was sent and a
    // later message of the same pair has come.
    memset(in, 0, (size_t)kSizes[i]);
    MUST(MPI_Irecv(in, (int)kSizes[i], MPI_BYTE, peer, 51, MPI_COMM_WORLD, &request));
    MUST(MPI_Request_free(&request));
    MUST(MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 53, NULL, 0, MPI_BYTE, peer, 53, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    MUST(MPI_Ssend(out, (int)kSizes[i], MPI_BYTE, peer, 51, MPI_COMM_WORLD));
    // Both have finished their Ssend (the receives matched); let them move their data.
    double end = odt_seconds() + 10;
    while (odt_mismatch(in, (size_t)kSizes[i], odt_key(peer, odt.rank, 9999, i)) >= 0 &&
           odt_seconds() < end) {
      int flag;
      MUST(MPI_Iprobe(peer, 52, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    }
    CHECK_DATA(in, kSizes[i], odt_key(peer, odt.rank, 9999, i));
    MPI_Barrier(MPI_COMM_WORLD);
    free(in);
    free(out);
  }
}

static void proc_null(void) {
  char byte = 3;
  MPI_Request requests[2];
  MPI_Status statuses[2];
  MUST(MPI_Recv_init(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[0]));
  MUST(MPI_Send_init(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[1]));
  for (int round = 0; round < 5; round++) {
    MUST(MPI_Startall(2, requests));
    MUST(MPI_Waitall(2, requests, statuses));
    int count = -1;
    MPI_Get_count(&statuses[0], MPI_BYTE, &count);
    CHECK(count == 0 && byte == 3, "count %d", count);
  }
  MUST(MPI_Request_free(&requests[0]));
  MUST(MPI_Request_free(&requests[1]));
}

int main(int argc, char** argv) {
  odt_start("persistent", &argc, &argv);
  if (odt.size == 2) {
    for (int kind = 0; kind < 4; kind++) {
      // Open MPI 4.1 itself sends old data when a buffered request is started again.
      if (kind != 1 || odt_number("bsend", 1)) rounds(kind);
    }
    free_while_active();
  }
  proc_null();
  return odt_finish();
}
