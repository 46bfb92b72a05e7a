// Probe, Iprobe, Mprobe, Improbe, Mrecv, Imrecv: what they see, in which order, what they take
// away, and that a matched message belongs to its handle alone.
#include "odtest.h"

static const long kSizes[] = {0, 1, 56, 64, 1000, 4096, 20000, 65536, 65537, 1 << 20, 3000000};
enum { kSizeCount = 11 };

static void probe_then_receive(void) {
  for (int i = 0; i < kSizeCount; i++) {
    char* buffer = odt_memory((size_t)kSizes[i]);
    if (odt.rank == 0) {
      odt_fill(buffer, (size_t)kSizes[i], odt_key(0, 1, 1, i));
      MUST(MPI_Send(buffer, (int)kSizes[i], MPI_BYTE, 1, 10 + i, MPI_COMM_WORLD));
    } else {
      MPI_Status status, again;
      int count = -1, flag = 0;
      MUST(MPI_Probe(i % 2 ? 0 : MPI_ANY_SOURCE, i % 3 ? 10 + i : MPI_ANY_TAG, MPI_COMM_WORLD,
                     &status));
      MPI_Get_count(&status, MPI_BYTE, &count);
      CHECK(count == kSizes[i] && status.MPI_SOURCE == 0 && status.MPI_TAG == 10 + i,
            "Probe: %d bytes from %d tag %d", count, status.MPI_SOURCE, status.MPI_TAG);
      // It stays, as often as one looks.
      for (int look = 0; look < 3; look++) {
        MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &again));
        MPI_Get_count(&again, MPI_BYTE, &count);
        CHECK(flag && count == kSizes[i] && again.MPI_TAG == 10 + i, "Iprobe: %d, %d bytes, tag %d",
              flag, count, again.MPI_TAG);
      }
      MUST(MPI_Iprobe(0, 9, MPI_COMM_WORLD, &flag, &again));
      CHECK(!flag, "Iprobe sees a message of another tag");
      MUST(MPI_Recv(buffer, (int)kSizes[i], MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK_DATA(buffer, kSizes[i], odt_key(0, 1, 1, i));
      MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &again));
      CHECK(!flag, "Iprobe sees a message that has been received");
    }
    free(buffer);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// The third of five equal messages is matched last and received first.
static void matched_messages(int nonblocking) {
  enum { kMessages = 5 };
  for (int i = 0; i < kSizeCount; i++) {
    char* buffers[kMessages];
    for (int m = 0; m < kMessages; m++) buffers[m] = odt_memory((size_t)kSizes[i]);
    if (odt.rank == 0) {
      MPI_Request requests[kMessages];
      for (int m = 0; m < kMessages; m++) {
        odt_fill(buffers[m], (size_t)kSizes[i], odt_key(0, 1, 100 + m, i));
        MUST(MPI_Isend(buffers[m], (int)kSizes[i], MPI_BYTE, 1, 3, MPI_COMM_WORLD, &requests[m]));
      }
      MUST(MPI_Waitall(kMessages, requests, MPI_STATUSES_IGNORE));
    } else {
      MPI_Message handles[3];
      MPI_Request requests[3];
      MPI_Status status;
      int flag = 0, count = -1;
      for (int m = 0; m < 3; m++) {
        if (m % 2 == 0) {
          MUST(MPI_Mprobe(0, m == 0 ? 3 : MPI_ANY_TAG, MPI_COMM_WORLD, &handles[m], &status));
        } else {
          flag = 0;
          while (!flag) {
            MUST(MPI_Improbe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &flag, &handles[m], &status));
          }
        }
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == kSizes[i], "matched probe: %d bytes", count);
        CHECK(handles[m] != MPI_MESSAGE_NULL, "matched probe without a handle");
      }
      // Ordinary receives get what is left: the fourth and the fifth.
      MUST(MPI_Recv(buffers[3], (int)kSizes[i], MPI_BYTE, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
      if (nonblocking) {
        for (int m = 2; m >= 0; m--) {
          MUST(MPI_Imrecv(buffers[m], (int)kSizes[i], MPI_BYTE, &handles[m], &requests[m]));
          CHECK(handles[m] == MPI_MESSAGE_NULL, "Imrecv leaves the handle");
        }
        MUST(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
      } else {
        for (int m = 2; m >= 0; m--) {
          MUST(MPI_Mrecv(buffers[m], (int)kSizes[i], MPI_BYTE, &handles[m], &status));
          MPI_Get_count(&status, MPI_BYTE, &count);
          CHECK(count == kSizes[i] && status.MPI_TAG == 3 && status.MPI_SOURCE == 0,
                "Mrecv: %d bytes from %d tag %d", count, status.MPI_SOURCE, status.MPI_TAG);
        }
      }
      MUST(MPI_Recv(buffers[4], (int)kSizes[i], MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      for (int m = 0; m < kMessages; m++) {
        CHECK_DATA(buffers[m], kSizes[i], odt_key(0, 1, 100 + m, i));
      }
      MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
      CHECK(!flag, "a message is left over");
    }
    for (int m = 0; m < kMessages; m++) free(buffers[m]);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// A posted receive that matches has precedence: the probe must not see its message.
static void posted_first(void) {
  char byte[2] = {1, 2};
  if (odt.rank == 0) {
    MUST(MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Send(&byte[0], 1, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
    MUST(MPI_Send(&byte[1], 1, MPI_BYTE, 1, 5, MPI_COMM_WORLD));
  } else {
    MPI_Request request;
    MPI_Status status;
    char first = 0, second = 0;
    MUST(MPI_Irecv(&first, 1, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &request));
    MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD));
    MUST(MPI_Probe(0, 5, MPI_COMM_WORLD, &status));
    MUST(MPI_Recv(&second, 1, MPI_BYTE, 0, 5, MPI_COMM_WORLD, &status));
    MUST(MPI_Wait(&request, &status));
    CHECK(first == 1 && second == 2, "first %d second %d", first, second);
  }
}

// Iprobe alone must make progress: the peer waits for our answer to its large message.
static void probe_makes_progress(void) {
  enum { kBytes = 4 << 20 };
  char* buffer = odt_memory(kBytes);
  if (odt.rank == 0) {
    for (int i = 0; i < 10; i++) {
      odt_fill(buffer, kBytes, odt_key(0, 1, 8, i));
      MUST(MPI_Ssend(buffer, kBytes, MPI_BYTE, 1, 20, MPI_COMM_WORLD));
    }
  } else {
    for (int i = 0; i < 10; i++) {
      int flag = 0;
      MPI_Status status;
      double end = odt_seconds() + 30;
      while (!flag && odt_seconds() < end) {
        MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
      }
      CHECK(flag, "Iprobe does not find the message within 30 s");
      MUST(MPI_Recv(buffer, kBytes, MPI_BYTE, 0, 20, MPI_COMM_WORLD, &status));
      CHECK_DATA(buffer, kBytes, odt_key(0, 1, 8, i));
    }
  }
  free(buffer);
}

int main(int argc, char** argv) {
  odt_start("probe", &argc, &argv);
  if (odt.size == 2) {
    probe_then_receive();
    matched_messages(0);
    matched_messages(1);
    posted_first();
    probe_makes_progress();
  }
  return odt_finish();
}
