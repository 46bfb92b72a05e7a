// Messages to oneself on MPI_COMM_SELF and MPI_COMM_WORLD: order of send and receive, sizes,
// probes, synchronous sends, wildcards, cancel, derived types, many of them at once.
#include "odtest.h"

static const long kSizes[] = {0, 1, 56, 57, 1024, 5000, 16384, 65536, 65537, 1 << 20, 5 << 20};
enum { kSizeCount = 11, kMany = 2000 };

static void exchanges(MPI_Comm comm, int me) {
  for (int i = 0; i < kSizeCount; i++) {
    const int bytes = (int)kSizes[i];
    char* out = odt_memory((size_t)bytes);
    char* in = odt_memory((size_t)bytes);
    MPI_Request request, other;
    MPI_Status status;
    int count = -1, flag = 0;
    odt_fill(out, (size_t)bytes, odt_key(me, me, 1, i));
    // send first
    MUST(MPI_Isend(out, bytes, MPI_BYTE, me, 1, comm, &request));
    MUST(MPI_Recv(in, bytes, MPI_BYTE, me, 1, comm, &status));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == bytes && status.MPI_SOURCE == me, "%d bytes from %d", count, status.MPI_SOURCE);
    CHECK_DATA(in, bytes, odt_key(me, me, 1, i));
    // receive first
    memset(in, 0, (size_t)bytes);
    MUST(MPI_Irecv(in, bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &request));
    MUST(MPI_Send(out, bytes, MPI_BYTE, me, 2, comm));
    MUST(MPI_Wait(&request, &status));
    CHECK(status.MPI_TAG == 2 && status.MPI_SOURCE == me, "source %d tag %d", status.MPI_SOURCE,
          status.MPI_TAG);
    CHECK_DATA(in, bytes, odt_key(me, me, 1, i));
    // synchronous
    memset(in, 0, (size_t)bytes);
    MUST(MPI_Irecv(in, bytes, MPI_BYTE, me, 3, comm, &request));
    MUST(MPI_Ssend(out, bytes, MPI_BYTE, me, 3, comm));
    MUST(MPI_Wait(&request, &status));
    CHECK_DATA(in, bytes, odt_key(me, me, 1, i));
    MUST(MPI_Issend(out, bytes, MPI_BYTE, me, 4, comm, &request));
    for (int look = 0; look < 100 && !flag; look++) {
      MUST(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    }
    CHECK(!flag, "Issend to oneself complete without a receive");
    MUST(MPI_Iprobe(me, 4, comm, &flag, &status));
    MUST(MPI_Irecv(in, bytes, MPI_BYTE, me, 4, comm, &other));
    MUST(MPI_Wait(&other, &status));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    // sendrecv and matched probe
    memset(in, 0, (size_t)bytes);
    MUST(MPI_Sendrecv(out, bytes, MPI_BYTE, me, 5, in, bytes, MPI_BYTE, me, 5, comm, &status));
    CHECK_DATA(in, bytes, odt_key(me, me, 1, i));
    MUST(MPI_Sendrecv_replace(in, bytes, MPI_BYTE, me, 6, me, 6, comm, &status));
    CHECK_DATA(in, bytes, odt_key(me, me, 1, i));
    MPI_Message message;
    memset(in, 0, (size_t)bytes);
    MUST(MPI_Isend(out, bytes, MPI_BYTE, me, 7, comm, &request));
    MUST(MPI_Mprobe(me, 7, comm, &message, &status));
    MUST(MPI_Iprobe(me, 7, comm, &flag, &status));
    CHECK(!flag, "a matched message is still seen");
    MUST(MPI_Mrecv(in, bytes, MPI_BYTE, &message, &status));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK_DATA(in, bytes, odt_key(me, me, 1, i));
    free(in);
    free(out);
  }
}

static void many(MPI_Comm comm, int me) {
  MPI_Request* requests = odt_memory(2 * kMany * sizeof *requests);
  int* out = odt_memory(kMany * sizeof *out);
  int* in = odt_memory(kMany * sizeof *in);
  for (int i = 0; i < kMany; i++) {
    out[i] = i * 3;
    in[i] = -1;
    MUST(MPI_Isend(&out[i], 1, MPI_INT, me, i % 17, comm, &requests[i]));
  }
  for (int tag = 16; tag >= 0; tag--) {
    for (int i = tag; i < kMany; i += 17) {
      MUST(MPI_Irecv(&in[i], 1, MPI_INT, me, tag, comm, &requests[kMany + i]));
    }
  }
  MUST(MPI_Waitall(2 * kMany, requests, MPI_STATUSES_IGNORE));
  for (int i = 0; i < kMany; i++) CHECK(in[i] == i * 3, "message %d has %d", i, in[i]);
  free(in);
  free(out);
  free(requests);
}

static void buffered(MPI_Comm comm, int me) {
  const int room = 10 * (5000 + MPI_BSEND_OVERHEAD);
  char* space = odt_memory((size_t)room);
  char data[5000];
  MUST(MPI_Buffer_attach(space, room));
  for (int i = 0; i < 8; i++) {
    odt_fill(data, sizeof data, odt_key(me, me, 70, i));
    MUST(MPI_Bsend(data, sizeof data, MPI_BYTE, me, i, comm));
  }
  for (int i = 7; i >= 0; i--) {
    MUST(MPI_Recv(data, sizeof data, MPI_BYTE, me, i, comm, MPI_STATUS_IGNORE));
    CHECK_DATA(data, sizeof data, odt_key(me, me, 70, i));
  }
  void* returned;
  int bytes;
  MUST(MPI_Buffer_detach(&returned, &bytes));
  free(space);
}

static void strided(MPI_Comm comm, int me) {
  int out[600], in[600];
  MPI_Datatype column;
  MUST(MPI_Type_vector(100, 2, 6, MPI_INT, &column));
  MUST(MPI_Type_commit(&column));
  for (int i = 0; i < 600; i++) {
    out[i] = i;
    in[i] = -1;
  }
  MPI_Request request;
  MUST(MPI_Irecv(in, 200, MPI_INT, me, 1, comm, &request));
  MUST(MPI_Send(out, 1, column, me, 1, comm));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  for (int i = 0; i < 200; i++) {
    CHECK(in[i] == i / 2 * 6 + i % 2, "element %d is %d", i, in[i]);
  }
  MUST(MPI_Type_free(&column));
}

int main(int argc, char** argv) {
  odt_start("self", &argc, &argv);
  MPI_Comm copy;
  MUST(MPI_Comm_dup(MPI_COMM_SELF, &copy));
  const MPI_Comm comms[3] = {MPI_COMM_SELF, MPI_COMM_WORLD, copy};
  for (int i = 0; i < 3; i++) {
    int me;
    MUST(MPI_Comm_rank(comms[i], &me));
    exchanges(comms[i], me);
    many(comms[i], me);
    buffered(comms[i], me);
    strided(comms[i], me);
  }
  MUST(MPI_Comm_free(&copy));
  return odt_finish();
}
