// Ranks of a node that do not agree how long the blocks of a collective are: whoever is shown
// another length than it expects is told MPI_ERR_TRUNCATE, nothing is written behind what it
// expects, nobody waits for ever or ends the job, and the next call is right. So is the root of a
// reduction that expects less.
//   --reduction=NAME,BYTES   instead: a reduction that ends the job, since nothing right could come
//                            of it: the last rank has half as much as all others
#include "odtest.h"

typedef enum {
  kBcast,
  kScatter,
  kScatterv,
  kGather,
  kGatherv,
  kAllgather,
  kAllgatherv,
  kAlltoall,
  kAlltoallv,
  kCollectives
} Collective;
static const char* const kNames[kCollectives] = {"bcast",      "scatter",  "scatterv",
                                                 "gather",     "gatherv",  "allgather",
                                                 "allgatherv", "alltoall", "alltoallv"};
enum { kMostRanks = 16, kGuard = 4096, kUntouched = 0x5a, kMostBytes = 1200000 };

static char *in, *out;

// Every block of this rank has `bytes`; *used is how much of `out` it may write to.
static int call(Collective which, int bytes, int root, long* used) {
  int counts[kMostRanks], displs[kMostRanks];
  const int at_root = odt.rank == root;
  const MPI_Comm comm = MPI_COMM_WORLD;
  for (int i = 0; i < odt.size; i++) counts[i] = bytes, displs[i] = i * bytes;
  *used = (long)bytes * odt.size;
  switch (which) {
    case kBcast:
      *used = bytes;
      return MPI_Bcast(at_root ? in : out, bytes, MPI_BYTE, root, comm);
    case kScatter:
      *used = bytes;
      return MPI_Scatter(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, root, comm);
    case kScatterv:
      *used = bytes;
      return MPI_Scatterv(in, counts, displs, MPI_BYTE, out, bytes, MPI_BYTE, root, comm);
    case kGather:
      if (!at_root) *used = 0;
      return MPI_Gather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, root, comm);
    case kGatherv:
      if (!at_root) *used = 0;
      return MPI_Gatherv(in, bytes, MPI_BYTE, out, counts, displs, MPI_BYTE, root, comm);
    case kAllgather:
      return MPI_Allgather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm);
    case kAllgatherv:
      return MPI_Allgatherv(in, bytes, MPI_BYTE, out, counts, displs, MPI_BYTE, comm);
    case kAlltoall:
      return MPI_Alltoall(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, comm);
    default:
      return MPI_Alltoallv(in, counts, displs, MPI_BYTE, out, counts, displs, MPI_BYTE, comm);
  }
}

// Whether this rank is shown another length than it expects if only rank `odd` has its own.
static int notices(Collective which, int root, int odd) {
  switch (which) {
    case kBcast:
    case kScatter:
    case kScatterv:
      return odt.rank != root && (odd == root || odd == odt.rank);
    case kGather:
    case kGatherv:
      return odt.rank == root;
    default:
      return 1;
  }
}

static char content(int rank, int number) { return (char)(1 + (rank * 31 + number) % 80); }

// `mine`: the bytes of this rank's blocks.
static long turn(Collective which, int mine, int root, int number, int* error) {
  long used = 0;
  memset(in, content(odt.rank, number), (size_t)mine * (size_t)odt.size);
  memset(out, kUntouched, (size_t)kMostBytes * (size_t)odt.size + kGuard);
  *error = call(which, mine, root, &used);
  for (int i = 0; i < kGuard; i++) {
    CHECK(out[used + i] == kUntouched, "%s of %d: byte %d behind the buffer is written",
          kNames[which], mine, i);
    if (out[used + i] != kUntouched) break;
  }
  return used;
}

static void good_turn(Collective which, int bytes, int root, int number) {
  int error;
  const long used = turn(which, bytes, root, number, &error);
  CHECK(error == MPI_SUCCESS, "%s of %d returned %d", kNames[which], bytes, error);
  if (which == kBcast && odt.rank == root) return;
  for (long i = 0; i < used; i++) {
    const int from = which <= kScatterv ? root : (int)(i / bytes);
    CHECK(out[i] == content(from, number), "%s of %d: byte %ld is %d", kNames[which], bytes, i,
          out[i]);
    if (out[i] != content(from, number)) break;
  }
}

// All ranks but the root have more.
static void short_root(int count, int root) {
  int* const input = (int*)in;
  int* const output = (int*)out;
  int class = MPI_SUCCESS;
  for (int i = 0; i < count; i++) input[i] = 1, output[i] = -1;
  const int mine = odt.rank == root ? count / 2 : count;
  const int error = MPI_Reduce(input, output, mine, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
  if (error != MPI_SUCCESS) MUST(MPI_Error_class(error, &class));
  CHECK(class == (odt.rank == root ? MPI_ERR_TRUNCATE : MPI_SUCCESS), "reduce of %d: class %d",
        count, class);
  if (odt.rank == root) CHECK(output[mine] == -1, "reduce of %d: written too far", count);
  MUST(MPI_Reduce(input, output, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD));
  if (odt.rank == root) CHECK(output[count - 1] == odt.size, "reduce of %d is wrong", count);
}

// Returns if nobody notices.
static void end_the_job(const char* name, int bytes) {
  const int all = bytes / (int)sizeof(int);
  const int mine = odt.rank == odt.size - 1 ? all / 2 : all;
  const MPI_Comm comm = MPI_COMM_WORLD;
  for (int turn = 0; turn < 3; turn++) {
    const int count = turn == 0 ? mine : all;
    if (strncmp(name, "allreduce", 9) == 0) {
      MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
    } else {
      MPI_Reduce_scatter_block(in, out, count, MPI_INT, MPI_SUM, comm);
    }
  }
}

int main(int argc, char** argv) {
  static const int sizes[] = {8, 1000, 40000, kMostBytes};
  odt_start("lengths", &argc, &argv);
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  in = odt_memory((size_t)kMostBytes * (size_t)odt.size);
  out = odt_memory((size_t)kMostBytes * (size_t)odt.size + kGuard);
  const char* const reduction = odt_option("reduction", NULL);
  if (reduction != NULL) {
    end_the_job(reduction, atoi(strchr(reduction, ',') + 1));
    CHECK(0, "nobody has noticed");
    return odt_finish();
  }
  for (int root = 0; root < odt.size; root++) {
    short_root(2, root);
    short_root(200, root);
  }
  int number = 0;
  for (Collective which = 0; which < kCollectives; which++) {
    for (int s = 0; s < 4; s++) {
      // The root and another rank, by a little and by half.
      for (int k = 0; k < 4; k++, number++) {
        const int root = number % odt.size;
        const int odd = k % 2 == 0 ? root : (root + 1) % odt.size;
        const int less = k < 2 ? sizes[s] / 2 : sizes[s] - 1;
        int error, class = MPI_SUCCESS;
        turn(which, odt.rank == odd ? less : sizes[s], root, number, &error);
        if (error != MPI_SUCCESS) MUST(MPI_Error_class(error, &class));
        const int expected = notices(which, root, odd) ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
        CHECK(class == expected, "%s of %d, at rank %d (root %d) %d: class %d", kNames[which],
              sizes[s], odd, root, less, class);
        good_turn(which, sizes[s], root, number);
      }
    }
  }
  free(out);
  free(in);
  return odt_finish();
}
