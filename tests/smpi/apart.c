// Blocks that are passed to a rank on another node: the request of SMPI_Ipass is the message's.
//
// Whoever waits for it moves the message on; what is left when the wait is over needs the sender no
// more. So once rank 0's call has returned, rank 1 gets the message although rank 0 makes no call
// of MPI until it is told, by a file, that the message has come. Each way to complete a request is
// taken, several times over: with smpi_limit the blocks must come back.
#define _GNU_SOURCE
#include <fcntl.h>
#include <overdrive/smpi.h>
#include <sys/mman.h>

#include "odtest.h"

enum { kRounds = 4, kBytes = 8 << 20, kSeconds = 60 };

enum { kWait, kWaitall, kWaitany, kWaitsome, kTest, kTestall, kTestany, kTestsome, kFree, kWays };

// Words of a file that both ranks see: how far they are.
static volatile uint64_t* g_sent;
static volatile uint64_t* g_come;

static int reached(volatile uint64_t* word, uint64_t value) {
  for (int i = 0; i < kSeconds * 1000; i++) {
    // Acquire: pairs with the release of whoever says how far it is.
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= value) return 1;
    usleep(1000);
  }
  return 0;
}

// Completes requests[1]; requests[0] is null and requests[2] an idle receive.
static void complete(int way, MPI_Request requests[3]) {
  int done = 0, at = -1, places[3];
  while (!done) {
    at = 1;
    done = 1;
    switch (way) {
      case kWait:
        MUST(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        break;
      case kWaitall:
        MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        break;
      case kWaitany:
        MUST(MPI_Waitany(3, requests, &at, MPI_STATUS_IGNORE));
        break;
      case kWaitsome:
        MUST(MPI_Waitsome(3, requests, &done, places, MPI_STATUSES_IGNORE));
        at = places[0];
        break;
      case kTest:
        MUST(MPI_Test(&requests[1], &done, MPI_STATUS_IGNORE));
        break;
      case kTestall:
        MUST(MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE));
        break;
      case kTestany:
        MUST(MPI_Testany(3, requests, &at, &done, MPI_STATUS_IGNORE));
        break;
      case kTestsome:
        MUST(MPI_Testsome(3, requests, &done, places, MPI_STATUSES_IGNORE));
        at = places[0];
        break;
      default:
        break;
    }
  }
  CHECK(at == 1, "request %d of way %d", at, way);
  CHECK(requests[1] == MPI_REQUEST_NULL, "way %d leaves the request", way);
}

static void send(int way, uint64_t number) {
  MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  uint64_t* block = NULL;
  int flag = 1;
  MUST(SMPI_Alloc(kBytes, &block));
  for (size_t i = 0; i < kBytes / 8; i += 512) block[i] = number + i;
  MUST(MPI_Irecv(NULL, 0, MPI_BYTE, 1, 99, MPI_COMM_WORLD, &requests[2]));
  MUST(SMPI_Ipass(block, kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[1]));
  // Nobody receives yet.
  MUST(MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE));
  CHECK(!flag, "the request of message %llu is complete at once", (unsigned long long)number);
  __atomic_store_n(g_sent, number, __ATOMIC_RELEASE);
  if (way == kFree) {
    MUST(MPI_Request_free(&requests[1]));
    CHECK(requests[1] == MPI_REQUEST_NULL, "freed");
  } else {
    complete(way, requests);
    CHECK(reached(g_come, number), "message %llu does not come", (unsigned long long)number);
  }
  MUST(MPI_Cancel(&requests[2]));
  MUST(MPI_Wait(&requests[2], MPI_STATUS_IGNORE));
}

static void receive(uint64_t number) {
  SMPI_View view;
  const uint64_t* data = NULL;
  CHECK(reached(g_sent, number), "nobody sends message %llu", (unsigned long long)number);
  MUST(SMPI_Recv(&view, kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  MUST(SMPI_View_get(view, &data, MPI_STATUS_IGNORE));
  for (size_t i = 0; i < kBytes / 8; i += 512) {
    if (data[i] != number + i) CHECK(0, "word %zu of message %llu", i, (unsigned long long)number);
  }
  MUST(SMPI_View_release(&view));
  __atomic_store_n(g_come, number, __ATOMIC_RELEASE);
}

int main(int argc, char** argv) {
  odt_start("apart", &argc, &argv);
  MUST(SMPI_Comm_attach(MPI_COMM_WORLD));
  int place[2] = {getpid(), -1};
  char path[64];
  if (odt.rank == 0) {
    place[1] = memfd_create("words", 0);
    if (place[1] < 0 || ftruncate(place[1], 4096) != 0) MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MUST(MPI_Bcast(place, 2, MPI_INT, 0, MPI_COMM_WORLD));
  snprintf(path, sizeof path, "/proc/%d/fd/%d", place[0], place[1]);
  const int file = open(path, O_RDWR);
  uint64_t* words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || words == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 2);
  g_sent = words;
  g_come = words + 64;
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  uint64_t number = 0;
  for (int round = 0; round < kRounds; round++) {
    for (int way = 0; way < kWays; way++) {
      number++;
      if (odt.rank == 0) send(way, number);
      if (odt.rank == 1) receive(number);
    }
  }
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  return odt_finish();
}
