// Broadcasts that are too long for the last rank, whose error handler jumps away from them: it has
// made as many calls as the others, and all go on alike. Sums around them are compared; not what
// ranks get from the broadcasts, since some algorithms hand it on by way of the last rank.
//
// --rounds=N --jumps=N (at least so many)
#include <setjmp.h>

#include "odtest.h"

enum { kWords = 16, kMost = 4 };

static jmp_buf g_back;
static volatile int g_calls;  // of the handler

static void leave(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  (void)code;
  g_calls++;
  longjmp(g_back, 1);
}

static void broadcast(int round) {
  double words[kWords];
  const int last = odt.rank == odt.size - 1;
  for (int i = 0; i < kWords; i++) words[i] = odt.rank == 0 ? round + i : -1;
  if (setjmp(g_back) == 0) {
    MPI_Bcast(words, last ? kWords - 1 : kWords, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
}

static void check_sum(const char* what, int round, double sum) {
  const double wanted = odt.size * (double)round + odt.size * (odt.size - 1) / 2.0;
  CHECK(sum == wanted, "%s of round %d is %g, not %g", what, round, sum, wanted);
}

int main(int argc, char** argv) {
  odt_start("leaving", &argc, &argv);
  const int rounds = (int)odt_number("rounds", 200);
  const int jumps = (int)odt_number("jumps", rounds / 2);
  MPI_Errhandler handler;
  MUST(MPI_Comm_create_errhandler(leave, &handler));
  for (int round = 0; round < rounds; round++) {
    const double mine = round + odt.rank;
    double sum = 0;
    MUST(MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    check_sum("allreduce", round, sum);
    MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
    for (int i = 0; i < 1 + round % kMost; i++) broadcast(round);
    MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    sum = 0;
    MUST(MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD));
    if (odt.rank == 0) check_sum("reduce", round, sum);
  }
  MUST(MPI_Errhandler_free(&handler));
  if (odt.rank == odt.size - 1) CHECK(g_calls >= jumps, "the handler was called %d times", g_calls);
  return odt_finish();
}
