// Many messages that nobody has asked for yet: the sender is done with all of them before the first
// receive, which come in the order of sending or in the opposite one, by tag or from any source.
#include "odtest.h"

// Every MPI has at least tags up to 32767.
enum { kTags = 32000 };

int main(int argc, char** argv) {
  odt_start("unexpected", &argc, &argv);
  const long count = odt_number("count", 100000);
  const int bytes = (int)odt_number("bytes", 8);
  const int reverse = (int)odt_number("reverse", 0);
  const int any = (int)odt_number("any", 0);
  char* buffer = odt_memory((size_t)bytes);
  if (odt.rank == 0) {
    double begin = odt_seconds();
    for (long i = 0; i < count; i++) {
      odt_fill(buffer, (size_t)bytes, odt_key(0, 1, 3, i));
      MUST(MPI_Send(buffer, bytes, MPI_BYTE, 1, (int)(i % kTags), MPI_COMM_WORLD));
    }
    printf("sent in %.2f s\n", odt_seconds() - begin);
    MUST(MPI_Send(NULL, 0, MPI_BYTE, 1, kTags + 1, MPI_COMM_WORLD));
  } else if (odt.rank == 1) {
    // Only the very last message is received; all others are unexpected then.
    MUST(MPI_Recv(NULL, 0, MPI_BYTE, 0, kTags + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    double begin = odt_seconds();
    // Tags repeat every kTags messages. In reverse the tags come backwards; messages of one tag
    // keep their order.
    const long turns = (count + kTags - 1) / kTags;
    for (long k = 0; k < turns * kTags; k++) {
      long number = reverse ? k % turns * kTags + (kTags - 1 - k / turns) : k;
      if (number >= count) continue;
      MUST(MPI_Recv(buffer, bytes, MPI_BYTE, any ? MPI_ANY_SOURCE : 0,
                    any == 2 ? MPI_ANY_TAG : (int)(number % kTags), MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
      long wrong = odt_mismatch(buffer, (size_t)bytes, odt_key(0, 1, 3, number));
      CHECK(wrong < 0, "message %ld: wrong data at byte %ld", number, wrong);
    }
    int flag = 1;
    MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag, "a message is left over");
    printf("received in %.2f s\n", odt_seconds() - begin);
    fflush(stdout);
  }
  free(buffer);
  return odt_finish();
}
