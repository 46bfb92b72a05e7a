// Collectives of more than 2 GiB: a vector of so many bytes, blocks that are so many only together,
// and blocks whose places are further apart than an int tells in bytes. Two ranks with --bytes
// (default a little over 2 GiB) for the whole of a vector, of which each has two. Where the host
// has large-count functions, vectors of more elements than an int counts as well.
#include "odtest.h"

enum { kBlock = 4096, kRanks = 2 };

static size_t total;  // bytes of a vector
static uint64_t *mine, *theirs;

static uint64_t word(uint64_t owner, uint64_t i) { return i * 0x9e3779b97f4a7c15u + owner + 1; }

static void fill(uint64_t* data, size_t bytes, uint64_t owner) {
  for (size_t i = 0; i < bytes / 8; i++) data[i] = word(owner, i);
}

// `first`: the number that the first word has at its owner.
static void verify(const char* what, const void* data, size_t bytes, uint64_t owner, size_t first) {
  const uint64_t* words = data;
  for (size_t i = 0; i < bytes / 8; i++) {
    if (words[i] == word(owner, first + i)) continue;
    CHECK(0, "%s: word %zu of %zu is %llx, not %llx", what, i, bytes / 8,
          (unsigned long long)words[i], (unsigned long long)word(owner, first + i));
    return;
  }
}

static void verify_sum(const char* what, const void* data, size_t bytes, size_t first) {
  const uint64_t* words = data;
  for (size_t i = 0; i < bytes / 8; i++) {
    if (words[i] == word(0, first + i) + word(1, first + i)) continue;
    CHECK(0, "%s: word %zu of %zu is not the sum", what, i, bytes / 8);
    return;
  }
}

static void clear(void) { memset(theirs, 0, total); }

// A vector of more than 2 GiB, of blocks or words.
static void vectors(MPI_Datatype block, int blocks) {
  const int words = (int)(total / 8);
  for (int root = 0; root < kRanks; root++) {
    clear();
    if (odt.rank == root) fill(theirs, total, 7);
    MUST(MPI_Bcast(theirs, blocks, block, root, MPI_COMM_WORLD));
    verify("Bcast", theirs, total, 7, 0);
  }
  fill(mine, total, (uint64_t)odt.rank);
  clear();
  MUST(MPI_Allreduce(mine, theirs, words, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
  verify_sum("Allreduce", theirs, total, 0);
  clear();
  MUST(MPI_Reduce(mine, theirs, words, MPI_UINT64_T, MPI_SUM, 1, MPI_COMM_WORLD));
  if (odt.rank == 1) verify_sum("Reduce", theirs, total, 0);
  clear();
  MUST(MPI_Reduce_scatter_block(mine, theirs, words / kRanks, MPI_UINT64_T, MPI_SUM,
                                MPI_COMM_WORLD));
  verify_sum("Reduce_scatter_block", theirs, total / kRanks,
             (size_t)odt.rank * (size_t)(words / kRanks));
}

// Blocks that are more than 2 GiB together only.
static void blocks_together(void) {
  const size_t half = total / kRanks;
  const int bytes = (int)half;
  char* const out = (char*)theirs;
  fill(mine, total, (uint64_t)odt.rank);
  for (int i = 0; i < 2; i++) {
    clear();
    const char* const name = i == 0 ? "Allgather" : "Allgather in place";
    if (i == 1) memcpy(out + (size_t)odt.rank * half, mine, half);
    MUST(MPI_Allgather(i == 0 ? (const void*)mine : MPI_IN_PLACE, bytes, MPI_BYTE, out, bytes,
                       MPI_BYTE, MPI_COMM_WORLD));
    for (int r = 0; r < kRanks; r++) {
      verify(name, out + (size_t)r * half, half, (uint64_t)r, 0);
    }
  }
  clear();
  MUST(MPI_Gather(mine, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 1, MPI_COMM_WORLD));
  for (int r = 0; odt.rank == 1 && r < kRanks; r++) {
    verify("Gather", out + (size_t)r * half, half, (uint64_t)r, 0);
  }
  if (strcmp(odt_option("leave-out", ""), "scatter") != 0) {
    clear();
    MUST(MPI_Scatter(mine, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 1, MPI_COMM_WORLD));
    verify("Scatter", out, half, 1, (size_t)odt.rank * half / 8);
  }
  clear();
  MUST(MPI_Alltoall(mine, bytes, MPI_BYTE, out, bytes, MPI_BYTE, MPI_COMM_WORLD));
  for (int r = 0; r < kRanks; r++) {
    verify("Alltoall", out + (size_t)r * half, half, (uint64_t)r, (size_t)odt.rank * half / 8);
  }
}

// Short blocks whose places, counted in blocks, lie more than 2 GiB apart.
static void far_places(MPI_Datatype block, int blocks) {
  const int counts[kRanks] = {3, 5};
  const int places[kRanks] = {0, blocks - 5};
  char* const out = (char*)theirs;
  clear();
  fill(mine, total, (uint64_t)odt.rank);
  MUST(MPI_Allgatherv(mine, counts[odt.rank], block, out, counts, places, block, MPI_COMM_WORLD));
  for (int r = 0; r < kRanks; r++) {
    verify("Allgatherv", out + (size_t)places[r] * kBlock, (size_t)counts[r] * kBlock, (uint64_t)r,
           0);
  }
  clear();
  MUST(MPI_Gatherv(mine, counts[odt.rank], block, out, counts, places, block, 0, MPI_COMM_WORLD));
  for (int r = 0; odt.rank == 0 && r < kRanks; r++) {
    verify("Gatherv", out + (size_t)places[r] * kBlock, (size_t)counts[r] * kBlock, (uint64_t)r, 0);
  }
  clear();
  MUST(MPI_Scatterv(mine, counts, places, block, out, counts[odt.rank], block, 0, MPI_COMM_WORLD));
  verify("Scatterv", out, (size_t)counts[odt.rank] * kBlock, 0,
         (size_t)places[odt.rank] * kBlock / 8);
  clear();
  const int same[kRanks] = {3, 3};
  MUST(MPI_Alltoallv(mine, same, places, block, out, same, places, block, MPI_COMM_WORLD));
  for (int r = 0; r < kRanks; r++) {
    verify("Alltoallv", out + (size_t)places[r] * kBlock, 3 * kBlock, (uint64_t)r,
           (size_t)places[odt.rank] * kBlock / 8);
  }
}

static void large_counts(void) {
#if MPI_VERSION >= 4
  MPI_Request request;
  const MPI_Count bytes = (MPI_Count)total;
  clear();
  if (odt.rank == 0) fill(theirs, total, 7);
  MUST(MPI_Bcast_c(theirs, bytes, MPI_BYTE, 0, MPI_COMM_WORLD));
  verify("Bcast_c", theirs, total, 7, 0);
  if (strcmp(odt_option("leave-out", ""), "ibcast") != 0) {
    clear();
    if (odt.rank == 1) fill(theirs, total, 8);
    MUST(MPI_Ibcast_c(theirs, bytes, MPI_BYTE, 1, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    verify("Ibcast_c", theirs, total, 8, 0);
  }
  clear();
  fill(mine, total, (uint64_t)odt.rank);
  const MPI_Count counts[kRanks] = {16, bytes - 16};
  const MPI_Aint places[kRanks] = {0, 16};
  MUST(MPI_Allgatherv_c(mine, counts[odt.rank], MPI_BYTE, theirs, counts, places, MPI_BYTE,
                        MPI_COMM_WORLD));
  verify("Allgatherv_c", theirs, 16, 0, 0);
  verify("Allgatherv_c", (char*)theirs + 16, total - 16, 1, 0);
#endif
}

int main(int argc, char** argv) {
  odt_start("large", &argc, &argv);
  CHECK(odt.size == kRanks, "needs %d ranks", kRanks);
  total = (size_t)atoll(odt_option("bytes", "2148532224"));  // 2 GiB + 1 MiB
  total -= total % (kBlock * kRanks);
  mine = (uint64_t*)odt_memory(total);
  theirs = (uint64_t*)odt_memory(total);
  MPI_Datatype block;
  MUST(MPI_Type_contiguous(kBlock, MPI_BYTE, &block));
  MUST(MPI_Type_commit(&block));
  const int blocks = (int)(total / kBlock);
  vectors(block, blocks);
  blocks_together();
  far_places(block, blocks);
  if (strcmp(odt_option("counts", "int"), "large") == 0) large_counts();
  MUST(MPI_Type_free(&block));
  free(mine);
  free(theirs);
  return odt_finish();
}
