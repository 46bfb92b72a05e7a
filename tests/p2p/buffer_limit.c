// Sends whose receiver does not come for a long time: the sender's own memory for them is bounded
// by a setting, what does not fit waits, and everything arrives when the receiver comes.
#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("buffer_limit", &argc, &argv);
  const int messages = (int)odt_number("messages", 64);
  const int bytes = (int)odt_number("bytes", 1 << 20);
  MPI_Request* requests = odt_memory((size_t)messages * sizeof *requests);
  char* buffers = odt_memory((size_t)messages * (size_t)bytes);
  if (odt.rank == 0) {
    for (int i = 0; i < messages; i++) {
      odt_fill(buffers + (size_t)i * (size_t)bytes, (size_t)bytes, odt_key(0, 1, 4, i));
      MUST(MPI_Isend(buffers + (size_t)i * (size_t)bytes, bytes, MPI_BYTE, 1, i, MPI_COMM_WORLD,
                     &requests[i]));
    }
    // Give the rule "a waiting sender buffers" every chance to go too far.
    double end = odt_seconds() + 0.5;
    int flag = 0;
    while (odt_seconds() < end) {
      MUST(MPI_Testall(messages, requests, &flag, MPI_STATUSES_IGNORE));
      if (flag) break;
    }
    MPI_Request ready;
    MUST(MPI_Ibarrier(MPI_COMM_WORLD, &ready));
    MUST(MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE));
    MUST(MPI_Wait(&ready, MPI_STATUS_IGNORE));
  } else {
    MPI_Request ready;
    MUST(MPI_Ibarrier(MPI_COMM_WORLD, &ready));
    MUST(MPI_Wait(&ready, MPI_STATUS_IGNORE));
    for (int i = messages - 1; i >= 0; i--) {
      MUST(MPI_Recv(buffers, bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK_DATA(buffers, bytes, odt_key(0, 1, 4, i));
    }
  }
  free(buffers);
  free(requests);
  return odt_finish();
}
