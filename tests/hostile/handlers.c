// Error handlers that leave by longjmp (or, compiled as C++, by an exception), and ones that
// communicate: whoever raised the error, the library or Overdrive, messages go on as before.
#include <setjmp.h>

#include "odtest.h"

enum { ROUNDS = 30, WRONG_RANK = 1000 };

static MPI_Comm pair;
static int other;
static int calls;
static int how_to_leave;  // 0: returns
static jmp_buf back;

#ifdef __cplusplus
struct Left {};
#endif

static void handler(MPI_Comm* comm, int* code, ...) {
  (void)code;
  CHECK(*comm == pair, "another communicator");
  calls++;
#ifdef __cplusplus
  if (how_to_leave) throw Left();
#else
  if (how_to_leave) longjmp(back, 1);
#endif
}

// A handler is the program's: what it sends must arrive where the program receives.
static void telling_handler(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  (void)code;
  calls++;
  int token = 4711;
  MPI_Request request;
  MUST(MPI_Isend(&token, 1, MPI_INT, other, 9, MPI_COMM_WORLD, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

// Both ranks; whoever is still taken to be inside the library sends past the other.
static void traffic(const char* after) {
  static char out[40000], in[40000];
  for (int i = 0; i < ROUNDS; i++) {
    const int bytes = i % 3 == 0 ? (int)sizeof out : 64;
    MPI_Request requests[2];
    odt_fill(out, (size_t)bytes, (uint64_t)(i + odt.rank));
    MUST(MPI_Irecv(in, bytes, MPI_CHAR, other, 3, pair, &requests[0]));
    MUST(MPI_Isend(out, bytes, MPI_CHAR, other, 3, pair, &requests[1]));
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(odt_mismatch(in, (size_t)bytes, (uint64_t)(i + other)) < 0, "after %s, round %d", after,
          i);
    int sum = 0, one = 1;
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, pair));
    CHECK(sum == 2, "after %s: %d", after, sum);
  }
}

// The calls that go wrong. The library notices:
static void wrong_send(void) {
  char byte = 0;
  MPI_Send(&byte, 1, MPI_CHAR, WRONG_RANK, 1, pair);
}
static void wrong_receive(void) {
  char byte = 0;
  MPI_Recv(&byte, 1, MPI_CHAR, WRONG_RANK, 1, pair, MPI_STATUS_IGNORE);
}
static void wrong_start(void) {
  char byte = 0;
  MPI_Request request;
  MPI_Isend(&byte, 1, MPI_CHAR, WRONG_RANK, 1, pair, &request);
}
static void wrong_probe(void) { MPI_Probe(WRONG_RANK, 1, pair, MPI_STATUS_IGNORE); }
static void wrong_root(void) {
  char byte = 0;
  MPI_Bcast(&byte, 1, MPI_CHAR, WRONG_RANK, pair);
}
static void wrong_count(void) {
  char byte = 0;
  MPI_Send(&byte, -1, MPI_CHAR, other, 1, pair);
}
// Overdrive notices:
static void truncation(void) {
  char bytes[4];
  MPI_Recv(bytes, 4, MPI_CHAR, other, 5, pair, MPI_STATUS_IGNORE);
}
static void go_wrong(void (*call)(void)) {
#ifdef __cplusplus
  try {
    call();
    CHECK(!how_to_leave, "the handler was not called");
  } catch (const Left&) {
  }
#else
  if (setjmp(back) == 0) {
    call();
    CHECK(!how_to_leave, "the handler was not called");
  }
#endif
}

static void each(const char* what, void (*call)(void), int ours) {
  for (how_to_leave = 0; how_to_leave < 2; how_to_leave++) {
    for (int waiting = 0; waiting < 2; waiting++) {
      // With a receive pending a call that may block opens a window for the helper thread.
      char late[100];
      MPI_Request pending = MPI_REQUEST_NULL;
      if (waiting) MUST(MPI_Irecv(late, 100, MPI_CHAR, other, 8, pair, &pending));
      const char longer[8] = "longer";
      if (ours) MUST(MPI_Send(longer, 8, MPI_CHAR, other, 5, pair));
      MUST(MPI_Barrier(pair));
      calls = 0;
      if (odt.rank == 0 || ours) {
        go_wrong(call);
        CHECK(calls == 1, "%s: the handler was called %d times", what, calls);
      }
      traffic(what);
      if (waiting) {
        static const char mine[100] = "late";
        MUST(MPI_Ssend(mine, 100, MPI_CHAR, other, 8, pair));
        MUST(MPI_Wait(&pending, MPI_STATUS_IGNORE));
        CHECK(strcmp(late, "late") == 0, "%s: %s", what, late);
      }
    }
  }
}

int main(int argc, char** argv) {
  odt_start("handlers", &argc, &argv);
  other = 1 - odt.rank;
  MPI_Comm_dup(MPI_COMM_WORLD, &pair);
  MPI_Errhandler errhandler, telling;
  MUST(MPI_Comm_create_errhandler(handler, &errhandler));
  MUST(MPI_Comm_create_errhandler(telling_handler, &telling));
  MUST(MPI_Comm_set_errhandler(pair, errhandler));
  traffic("nothing");
  each("a send to nobody", wrong_send, 0);
  each("a receive from nobody", wrong_receive, 0);
  each("a started send to nobody", wrong_start, 0);
  each("a probe of nobody", wrong_probe, 0);
  each("a root that is nobody", wrong_root, 0);
  each("a negative count", wrong_count, 0);
  each("a truncated message", truncation, 1);
  how_to_leave = 0;
  MUST(MPI_Comm_set_errhandler(pair, telling));
  for (int i = 0; i < 3; i++) {
    if (odt.rank == 0) {
      (i == 0 ? wrong_send : i == 1 ? wrong_root : wrong_probe)();
    } else {
      int token = 0;
      MUST(MPI_Recv(&token, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      CHECK(token == 4711, "%d", token);
    }
    traffic("a handler that communicates");
  }
  MPI_Errhandler_free(&errhandler);
  MPI_Errhandler_free(&telling);
  MPI_Comm_free(&pair);
  return odt_finish();
}
