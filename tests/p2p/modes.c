// Every send mode in its blocking and non-blocking form, against receives that are posted before or
// after, over all sizes; that synchronous sends are synchronous; that buffered sends use the
// attached buffer, free it and report when it is full.
#include "odtest.h"

enum { kStandard, kBuffered, kSynchronous, kReady, kModes };

static const char* const kNames[] = {"standard", "buffered", "synchronous", "ready"};

static int send_blocking(int mode, const void* data, int bytes, int to, int tag) {
  switch (mode) {
    case kStandard:
      return MPI_Send(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD);
    case kBuffered:
      return MPI_Bsend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD);
    case kSynchronous:
      return MPI_Ssend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD);
    default:
      return MPI_Rsend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD);
  }
}

static int send_nonblocking(int mode, const void* data, int bytes, int to, int tag,
                            MPI_Request* request) {
  switch (mode) {
    case kStandard:
      return MPI_Isend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
    case kBuffered:
      return MPI_Ibsend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
    case kSynchronous:
      return MPI_Issend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
    default:
      return MPI_Irsend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request);
  }
}

static void exchange(int mode, int blocking, int early, long bytes, int number) {
  const int tag = number % 1000;
  char* buffer = odt_memory((size_t)bytes + 8);
  if (mode == kReady) early = 1;
  if (odt.rank == 0) {
    odt_fill(buffer, (size_t)bytes, odt_key(0, 1, mode, number));
    if (early) MUST(MPI_Recv(NULL, 0, MPI_BYTE, 1, 1001, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (blocking) {
      MUST(send_blocking(mode, buffer, (int)bytes, 1, tag));
    } else {
      MPI_Request request;
      MUST(send_nonblocking(mode, buffer, (int)bytes, 1, tag, &request));
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
      CHECK(request == MPI_REQUEST_NULL, "%s: the request is not null after Wait", kNames[mode]);
    }
    // The buffer is the program's again: what it writes now must not arrive.
    memset(buffer, 0x5a, (size_t)bytes);
  } else {
    MPI_Request request;
    MPI_Status status;
    int count = -1;
    memset(buffer, 0x77, (size_t)bytes + 8);
    if (early) {
      MUST(MPI_Irecv(buffer, (int)bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &request));
      MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 1001, MPI_COMM_WORLD));
      MUST(MPI_Wait(&request, &status));
    } else {
      MUST(MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &status));
    }
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == bytes, "%s: %d of %ld bytes", kNames[mode], count, bytes);
    CHECK_DATA(buffer, bytes, odt_key(0, 1, mode, number));
    for (int i = 0; i < 8; i++) {
      CHECK(buffer[bytes + i] == 0x77, "%s: byte %d behind the message changed", kNames[mode], i);
    }
  }
  free(buffer);
}

static void all_modes(void) {
  static const long kSizes[] = {0,     1,      7,      56,     57,      500,     1023,    1024,
                                1025,  4096,   8191,   16384,  16385,   40000,   65535,   65536,
                                65537, 100000, 131072, 262144, 1000000, 2097152, 4194305, 8388608};
  const int sizes = (int)(sizeof kSizes / sizeof kSizes[0]);
  const int room = (8 << 20) + 4 * MPI_BSEND_OVERHEAD;
  void* space = odt_memory((size_t)room);
  int number = 0;
  for (int mode = 0; mode < kModes; mode++) {
    for (int size = 0; size < sizes; size++) {
      for (int form = 0; form < 4; form++) {
        if (mode == kBuffered && odt.rank == 0) MUST(MPI_Buffer_attach(space, room));
        exchange(mode, form & 1, form >> 1, kSizes[size], number++);
        if (mode == kBuffered && odt.rank == 0) {
          void* returned = NULL;
          int returned_bytes = 0;
          MUST(MPI_Buffer_detach(&returned, &returned_bytes));
          CHECK(returned == space, "detach gives another buffer back");
          CHECK(returned_bytes == room, "detach gives %d of %d bytes", returned_bytes, room);
          memset(space, 0x11, (size_t)room);  // detached: the messages are safe
        }
      }
    }
  }
  free(space);
}

// A synchronous send must not complete before its receive is posted.
static void really_synchronous(void) {
  static const long kSizes[] = {0, 1, 1000, 65536, 1 << 20};
  for (int i = 0; i < 5; i++) {
    char* buffer = odt_memory((size_t)kSizes[i]);
    if (odt.rank == 0) {
      MPI_Request request;
      odt_fill(buffer, (size_t)kSizes[i], odt_key(0, 1, 77, i));
      MUST(MPI_Issend(buffer, (int)kSizes[i], MPI_BYTE, 1, 7, MPI_COMM_WORLD, &request));
      double end = odt_seconds() + 0.03;
      int done = 0;
      while (!done && odt_seconds() < end) MUST(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
      CHECK(!done, "Issend of %ld bytes complete before its receive", kSizes[i]);
      MUST(MPI_Send(NULL, 0, MPI_BYTE, 1, 8, MPI_COMM_WORLD));
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));

      double begin = odt_seconds();
      MUST(MPI_Send(NULL, 0, MPI_BYTE, 1, 8, MPI_COMM_WORLD));
      MUST(MPI_Ssend(buffer, (int)kSizes[i], MPI_BYTE, 1, 9, MPI_COMM_WORLD));
      double took = odt_seconds() - begin;
      CHECK(took > 0.02, "Ssend of %ld bytes returned after %g s, its receive came after 0.03 s",
            kSizes[i], took);
    } else {
      MUST(MPI_Recv(NULL, 0, MPI_BYTE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      MUST(MPI_Recv(buffer, (int)kSizes[i], MPI_BYTE, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK_DATA(buffer, kSizes[i], odt_key(0, 1, 77, i));
      MUST(MPI_Recv(NULL, 0, MPI_BYTE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      // Probing sees the message and must not complete the send either.
      double end = odt_seconds() + 0.03;
      int flag = 0;
      while (odt_seconds() < end) {
        MUST(MPI_Iprobe(0, 9, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
      }
      MUST(MPI_Recv(buffer, (int)kSizes[i], MPI_BYTE, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK_DATA(buffer, kSizes[i], odt_key(0, 1, 77, i));
    }
    free(buffer);
  }
}

// Many buffered sends into one buffer; space comes back when messages are received; a full buffer
// is reported as MPI_ERR_BUFFER and leaves the buffer usable.
static void buffered(void) {
  enum { kBytes = 3000, kMessages = 40 };
  char data[kBytes];
  if (odt.rank == 0) {
    int packed = 0;
    MPI_Pack_size(kBytes, MPI_BYTE, MPI_COMM_WORLD, &packed);
    int room = kMessages * (packed + MPI_BSEND_OVERHEAD);
    char* space = odt_memory((size_t)room);
    MUST(MPI_Buffer_attach(space, room));
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < kMessages; i++) {
        odt_fill(data, kBytes, odt_key(0, 1, 50 + round, i));
        MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, i, MPI_COMM_WORLD));
        memset(data, 0, kBytes);
      }
      MUST(MPI_Send(NULL, 0, MPI_BYTE, 1, 999, MPI_COMM_WORLD));
      // The answer proves that all of them have been received: the space must be free again.
      MUST(MPI_Recv(NULL, 0, MPI_BYTE, 1, 999, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    void* returned;
    int bytes;
    MUST(MPI_Buffer_detach(&returned, &bytes));

    // Larger than the buffer, hence impossible in every state of it; and without any buffer. (Open
    // MPI itself hangs after a failed Bsend: its sequence numbers have a hole then.)
    const int strict = (int)odt_number("strict", 0);
    char* large = odt_memory(100000);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (strict) {
      int code = MPI_Bsend(large, 100000, MPI_BYTE, 1, 5, MPI_COMM_WORLD);
      CHECK(odt_class(code) == MPI_ERR_BUFFER, "Bsend without a buffer: %s", odt_class_name(code));
    }
    MUST(MPI_Buffer_attach(space, 4096 + MPI_BSEND_OVERHEAD));
    if (strict) {
      int code = MPI_Bsend(large, 100000, MPI_BYTE, 1, 5, MPI_COMM_WORLD);
      CHECK(odt_class(code) == MPI_ERR_BUFFER, "Bsend into a small buffer: %s",
            odt_class_name(code));
    }
    odt_fill(data, kBytes, odt_key(0, 1, 60, 0));
    MUST(MPI_Bsend(data, kBytes, MPI_BYTE, 1, 6, MPI_COMM_WORLD));
    MUST(MPI_Buffer_detach(&returned, &bytes));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MUST(MPI_Send(NULL, 0, MPI_BYTE, 1, 999, MPI_COMM_WORLD));
    free(large);
    free(space);
  } else {
    for (int round = 0; round < 3; round++) {
      MUST(MPI_Recv(NULL, 0, MPI_BYTE, 0, 999, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      for (int j = 0; j < kMessages; j++) {
        int i = (j * 7 + round) % kMessages;  // 7 has no common factor with the number of messages
        MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK_DATA(data, kBytes, odt_key(0, 1, 50 + round, i));
      }
      MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 999, MPI_COMM_WORLD));
    }
    MUST(MPI_Recv(data, kBytes, MPI_BYTE, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_DATA(data, kBytes, odt_key(0, 1, 60, 0));
    int flag = 1;
    MUST(MPI_Recv(NULL, 0, MPI_BYTE, 0, 999, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Iprobe(0, 5, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag, "a message arrived whose Bsend had failed");
  }
}

int main(int argc, char** argv) {
  odt_start("modes", &argc, &argv);
  if (odt.rank < 2) {
    all_modes();
    really_synchronous();
    buffered();
  }
  return odt_finish();
}
