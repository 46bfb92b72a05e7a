// Many short messages that nobody takes, and then one that goes another way: it must still arrive
// after all of them. Boxes of every size up to the largest can hold the many.
#include <unistd.h>

#include "odtest.h"

enum { kToken = 1, kNumbered = 2 };

// Words that both ranks see, so that a rank can wait without any MPI progress.
static volatile int* words;

static void wait_for(int value) {
  while (__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) < value) usleep(200);
}

static void burst(int round, int count) {
  int token = round;
  if (odt.rank == 1) {
    MUST(MPI_Send(&token, 1, MPI_INT, 0, kToken, MPI_COMM_WORLD));
    wait_for(round);
    for (int i = 0; i <= count; i++) {
      int number = -1;
      MUST(MPI_Recv(&number, 1, MPI_INT, 0, kNumbered, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK(number == i, "message %d of %d has number %d", i, count + 1, number);
    }
  } else {
    for (int i = 0; i <= count; i++) {
      // What the token came in may carry the last message.
      if (i == count) {
        MUST(MPI_Recv(&token, 1, MPI_INT, 1, kToken, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      }
      MUST(MPI_Send(&i, 1, MPI_INT, 1, kNumbered, MPI_COMM_WORLD));
    }
    __atomic_store_n(&words[0], round, __ATOMIC_RELEASE);
  }
}

int main(int argc, char** argv) {
  static const int kCounts[] = {1,   2,   10,  200, 254, 255,  256, 257,
                                258, 300, 511, 512, 513, 1025, 9000};
  MPI_Win window;
  MPI_Aint bytes;
  int unit;
  void* mine;
  void* first;
  odt_start("long_boxes", &argc, &argv);
  MUST(MPI_Win_allocate_shared(odt.rank == 0 ? 4096 : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine,
                               &window));
  MUST(MPI_Win_shared_query(window, 0, &bytes, &unit, &first));
  words = first;
  if (odt.rank == 0) words[0] = 0;
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  for (int i = 0; i < (int)(sizeof kCounts / sizeof *kCounts); i++) burst(i + 1, kCounts[i]);
  MUST(MPI_Win_free(&window));
  return odt_finish();
}
