// Messages that are too long for who receives them, from the first rank to the last one, which may
// lie on another node: every call that finds one calls the error handler once, whoever carries it.
//
// --bcast=0 leaves out broadcasts
#include "odtest.h"

enum { kTimes = 4, kTooLong = 8, kTag = 5 };
// In pairs: from the first rank, and from any.
enum { kRecv = 0, kWait = 2, kTest = 4, kWaitall = 6, kBcast, kWays };

static const char* const kNames[kWays] = {
    "recv",          "recv from any",    "wait", "wait from any", "test",
    "test from any", "waitall from any", "bcast"};
static int calls;
static int others;  // for another communicator

static void handler(MPI_Comm* comm, int* code, ...) {
  (void)code;
  calls++;
  if (*comm != MPI_COMM_WORLD) others++;
}

static int receive(int way, void* data, int bytes) {
  const int source = way % 2 == 1 || way == kWaitall ? MPI_ANY_SOURCE : 0;
  MPI_Status status;
  MPI_Request request;
  if (way < kWait) return MPI_Recv(data, bytes, MPI_BYTE, source, kTag, MPI_COMM_WORLD, &status);
  MUST(MPI_Irecv(data, bytes, MPI_BYTE, source, kTag, MPI_COMM_WORLD, &request));
  if (way < kTest) return MPI_Wait(&request, &status);
  if (way == kWaitall) return MPI_Waitall(1, &request, &status);
  int done = 0;
  int code = MPI_SUCCESS;
  while (!done && code == MPI_SUCCESS) code = MPI_Test(&request, &done, &status);
  return code;
}

static void exchange(int way, int bytes) {
  const int last = odt.size - 1;
  char* data = odt_memory((size_t)bytes);
  odt_fill(data, (size_t)bytes, odt_key(0, last, way, bytes));
  for (int i = 0; i < kTimes; i++) {
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    calls = others = 0;
    int code = MPI_SUCCESS;
    if (way == kBcast) {
      code =
          MPI_Bcast(data, odt.rank == last ? bytes - kTooLong : bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    } else if (odt.rank == 0) {
      // The message is there before or after the receive.
      if (i % 2 == 1) odt_sleep_ms(2);
      MUST(MPI_Send(data, bytes, MPI_BYTE, last, kTag, MPI_COMM_WORLD));
    } else if (odt.rank == last) {
      if (i % 2 == 0) odt_sleep_ms(2);
      code = receive(way, data, bytes - kTooLong);
    }
    if (odt.rank != last) continue;
    CHECK(code != MPI_SUCCESS, "%s of %d bytes: no error", kNames[way], bytes);
    CHECK(calls == 1, "%s of %d bytes: the handler was called %d times", kNames[way], bytes, calls);
    CHECK(others == 0, "%s of %d bytes: for another communicator", kNames[way], bytes);
  }
  free(data);
}

int main(int argc, char** argv) {
  odt_start("handler_calls", &argc, &argv);
  MPI_Errhandler mine;
  MUST(MPI_Comm_create_errhandler(handler, &mine));
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
  const int ways = odt_number("bcast", 1) != 0 ? kWays : kBcast;
  for (int way = kRecv; way < ways; way++) {
    exchange(way, 128);
    exchange(way, 100000);
  }
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  MUST(MPI_Errhandler_free(&mine));
  return odt_finish();
}
