// Ranks that do not agree how long a message is: who gets too much or too little is told so, by
// that call or, if it had returned by then, by the next one, which is complete all the same, since
// others take part in it. However many pieces a rank expects, nobody waits for what is never sent
// or received.
#include "odtest.h"

enum { kLongest = 1 << 20, kMostRanks = 16 };

// What is sent and what is expected: as many pieces, fewer, more.
static const int kLengths[][2] = {{18432, 16384},   {32768, 16384},   {16384, 32768},
                                  {1 << 20, 16384}, {16384, 1 << 20}, {20000, 20000}};
enum { kPairs = sizeof kLengths / sizeof kLengths[0] };

static int g_data[kLongest];
static int g_received[kMostRanks * kLongest / 4];

static int class_of(int error) {
  int class = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MUST(MPI_Error_class(error, &class));
  return class;
}

static int broadcast(int sent, int expected) {
  return MPI_Bcast(g_data, odt.rank == 0 ? sent : expected, MPI_INT, 0, MPI_COMM_WORLD);
}

// To oneself as much as is expected.
static int exchange(int sent, int expected) {
  int out[kMostRanks], from[kMostRanks], in[kMostRanks], to[kMostRanks];
  for (int k = 0; k < odt.size; k++) {
    out[k] = k == odt.rank ? expected : sent;
    in[k] = expected;
    from[k] = 0;
    to[k] = k * expected;
  }
  return MPI_Alltoallv(g_data, out, from, MPI_INT, g_received, in, to, MPI_INT, MPI_COMM_WORLD);
}

// Rank 0 has longer or shorter blocks than the others.
static int gather(int sent, int expected) {
  const int mine = odt.rank == 0 ? sent : expected;
  return MPI_Allgather(g_data, mine, MPI_INT, g_received, mine, MPI_INT, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  odt_start("late_error", &argc, &argv);
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  enum { kBroadcast, kExchange, kGather, kWays };
  for (int round = 0; round < 2 * kWays * kPairs; round++) {
    const int sent = kLengths[round % kPairs][0];
    const int expected = kLengths[round % kPairs][1];
    const int longest = sent > expected ? sent : expected;
    int way = round / kPairs % kWays;
    if (longest * odt.size > kMostRanks * kLongest / 4) way = kBroadcast;
    const int first = class_of(way == kBroadcast  ? broadcast(sent, expected)
                               : way == kExchange ? exchange(sent, expected)
                                                  : gather(sent, expected));
    int one = 1, sum = 0;
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == odt.size, "round %d: a sum of %d", round, sum);
    // One that takes the same way.
    for (int i = 0; i < 20000; i++) g_data[i] = odt.rank == 0 ? i + round : -1;
    const int second = class_of(MPI_Bcast(g_data, 20000, MPI_INT, 0, MPI_COMM_WORLD));
    for (int i = 0; i < 20000; i++) {
      if (g_data[i] != i + round) {
        CHECK(0, "round %d: %d at %d after a late error", round, g_data[i], i);
        break;
      }
    }
    const int wrong = sent != expected && (way != kBroadcast || odt.rank != 0);
    const int wanted = wrong ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    // Blocks of an allgather may come by way of somebody who agrees with this rank.
    const int by_others = way == kGather && odt.rank != 0;
    CHECK(by_others || first == wanted || second == wanted, "round %d: classes %d and %d", round,
          first, second);
    CHECK(first == MPI_SUCCESS || second == MPI_SUCCESS, "round %d: %d and then %d", round, first,
          second);
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  }
  return odt_finish();
}
