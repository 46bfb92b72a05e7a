// Collectives that send from and receive into the same memory, which is forbidden: a host refuses
// it or does something, and so it must stay. Rank 0 prints what was refused.
#include "odtest.h"

enum { kMostWords = 3, kMostRanks = 16 };

static int words[kMostWords * kMostRanks];
static int counts[kMostRanks], places[kMostRanks], bytes[kMostRanks];
static MPI_Datatype types[kMostRanks];

// All ranks of a communicator hear the same.
static void judge(MPI_Comm comm, const char* name, int count, int error) {
  const int refused = error != MPI_SUCCESS;
  int all = -1, size;
  MUST(MPI_Comm_size(comm, &size));
  MUST(MPI_Allreduce(&refused, &all, 1, MPI_INT, MPI_SUM, comm));
  CHECK(all == 0 || all == size, "%s was refused by %d of %d ranks", name, all, size);
  if (odt.rank == 0) printf("%s of %d: %s\n", name, count, refused ? "refused" : "accepted");
}

static int waited(int error, MPI_Request* request) {
  return error == MPI_SUCCESS ? MPI_Wait(request, MPI_STATUS_IGNORE) : error;
}

// The call that blocks, and the one that does not; a communicator and the arguments before it.
#define TRY(Name, IName, comm, ...)                                                     \
  do {                                                                                  \
    MPI_Request request = MPI_REQUEST_NULL;                                             \
    judge(comm, #Name, n, MPI_##Name(__VA_ARGS__, comm));                               \
    judge(comm, #IName, n, waited(MPI_##IName(__VA_ARGS__, comm, &request), &request)); \
  } while (0)
#define AT_ROOT(...) __VA_ARGS__, 0

// With blocks of `n` words. `alone`: where a root alone refuses the others would wait for it.
static void try_all(MPI_Comm all, MPI_Comm alone, int n) {
  int* const mine = words + n * odt.rank;
  for (int i = 0; i < kMostRanks; i++) {
    counts[i] = n;
    places[i] = n * i;
    bytes[i] = (int)sizeof(int) * n * i;
    types[i] = MPI_INT;
  }
  TRY(Allgather, Iallgather, all, mine, n, MPI_INT, words, n, MPI_INT);
  TRY(Allgatherv, Iallgatherv, all, mine, n, MPI_INT, words, counts, places, MPI_INT);
  TRY(Allreduce, Iallreduce, all, words, words, n, MPI_INT, MPI_SUM);
  TRY(Alltoall, Ialltoall, all, words, n, MPI_INT, words, n, MPI_INT);
  TRY(Alltoallv, Ialltoallv, all, words, counts, places, MPI_INT, words, counts, places, MPI_INT);
  TRY(Alltoallw, Ialltoallw, all, words, counts, bytes, types, words, counts, bytes, types);
  TRY(Reduce_scatter, Ireduce_scatter, all, words, words, counts, MPI_INT, MPI_SUM);
  TRY(Reduce_scatter_block, Ireduce_scatter_block, all, words, words, n, MPI_INT, MPI_SUM);
  TRY(Scan, Iscan, all, words, words, n, MPI_INT, MPI_SUM);
  TRY(Exscan, Iexscan, all, words, words, n, MPI_INT, MPI_SUM);
  TRY(Gather, Igather, alone, AT_ROOT(words, n, MPI_INT, words, n, MPI_INT));
  TRY(Gatherv, Igatherv, alone, AT_ROOT(words, n, MPI_INT, words, counts, places, MPI_INT));
  TRY(Scatter, Iscatter, alone, AT_ROOT(words, n, MPI_INT, words, n, MPI_INT));
  TRY(Scatterv, Iscatterv, alone, AT_ROOT(words, counts, places, MPI_INT, words, n, MPI_INT));
  TRY(Reduce, Ireduce, alone, AT_ROOT(words, words, n, MPI_INT, MPI_SUM));
}

int main(int argc, char** argv) {
  odt_start("aliased", &argc, &argv);
  MPI_Comm all, alone;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &all));
  MUST(MPI_Comm_dup(MPI_COMM_SELF, &alone));
  // Open MPI raises some of these errors on the world.
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  MUST(MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN));
  MUST(MPI_Comm_set_errhandler(alone, MPI_ERRORS_RETURN));
  try_all(all, alone, 1);
  try_all(all, alone, kMostWords);
  MUST(MPI_Comm_free(&alone));
  MUST(MPI_Comm_free(&all));
  return odt_finish();
}
