// Tells where each rank is and with whom it shares memory, and exchanges messages with every rank:
// "rank R of N on HOST, L local". With an argument it goes on for so many seconds.
#include "odtest.h"

enum { kNameBytes = 256, kLongCount = 30000 };

// Exchanges a short and a long message with every other rank.
static void exchange_with_all(void) {
  int* sent = (int*)malloc(kLongCount * sizeof(int));
  int* received = (int*)malloc(kLongCount * sizeof(int));
  for (int distance = 1; distance < odt.size; distance++) {
    int to = (odt.rank + distance) % odt.size;
    int from = (odt.rank + odt.size - distance) % odt.size;
    for (int count = 1; count <= kLongCount; count += kLongCount - 1) {
      for (int i = 0; i < count; i++) sent[i] = odt.rank * 1000003 + to * 101 + i;
      memset(received, 0, kLongCount * sizeof(int));
      MPI_Sendrecv(sent, count, MPI_INT, to, count, received, count, MPI_INT, from, count,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      int right = 0;
      while (right < count && received[right] == from * 1000003 + odt.rank * 101 + right) right++;
      CHECK(right == count, "from %d: %d of %d are right", from, right, count);
    }
  }
  free(sent);
  free(received);
}

int main(int argc, char** argv) {
  odt_start("hello", &argc, &argv);
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int local;
  MPI_Comm_size(node, &local);
  MPI_Comm_free(&node);
  char host[kNameBytes];
  gethostname(host, sizeof host);
  printf("rank %d of %d on %s, %d local\n", odt.rank, odt.size, host, local);
  fflush(stdout);
  exchange_with_all();
  long seconds = odt_number("seconds", 0);
  if (seconds > 0) sleep((unsigned)seconds);
  CHECK(local >= 1, "%d local ranks", local);
  MPI_Barrier(MPI_COMM_WORLD);
  return odt_finish();
}
