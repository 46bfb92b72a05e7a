// Collectives on inter-communicators, which are the host's: made from communicators that Overdrive
// serves, of duplicates and parts of them, after the communicator that they were made of has been
// freed; and on what they merge into, which Overdrive serves.
//   --blocking=1   only the blocking forms: MPICH 4 and 5 get others wrong
#include "odtest.h"

enum { kMostRanks = 16, kSizes = 3 };
static const int kCounts[kSizes] = {1, 40, 3000};

typedef struct {
  MPI_Comm comm;
  int rank, size, others;
  int side;
} Inter;

static MPI_Op sum;
static long *in, *out;

static void add(void* from, void* into, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((long*)into)[i] += ((long*)from)[i];
}

static long content(int call, int side, int rank, int i) {
  return call * 1000003L + side * 50021L + rank * 997L + i;
}

static Inter look_at(MPI_Comm comm, int side) {
  Inter inter = {.comm = comm, .side = side};
  MUST(MPI_Comm_rank(comm, &inter.rank));
  MUST(MPI_Comm_size(comm, &inter.size));
  MUST(MPI_Comm_remote_size(comm, &inter.others));
  return inter;
}

static void fill(const Inter* inter, int call, int count) {
  for (int i = 0; i < count * kMostRanks; i++) {
    in[i] = content(call, inter->side, inter->rank, i);
    out[i] = -1;
  }
}

// Block `block` of `out` is the `part`-th block of a rank on the other side.
static void expect(const Inter* inter, int call, int count, int block, int rank, int part,
                   const char* what) {
  for (int i = 0; i < count; i++) {
    const long expected = content(call, 1 - inter->side, rank, part * count + i);
    const long found = out[block * count + i];
    CHECK(found == expected, "%s, call %d, of %d: number %d of rank %d is %ld, not %ld", what, call,
          count, i, rank, found, expected);
    if (found != expected) return;
  }
}

static void expect_sums(const Inter* inter, int call, int count, const char* what) {
  for (int i = 0; i < count; i++) {
    long expected = 0;
    for (int rank = 0; rank < inter->others; rank++) {
      expected += content(call, 1 - inter->side, rank, i);
    }
    CHECK(out[i] == expected, "%s, call %d, of %d: sum %d is %ld, not %ld", what, call, count, i,
          out[i], expected);
    if (out[i] != expected) return;
  }
}

// Blocking, or started and waited for.
#define CALL(started, name, ...)                   \
  do {                                             \
    if (started) {                                 \
      MPI_Request request;                         \
      MUST(MPI_I##name(__VA_ARGS__, &request));    \
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE)); \
    } else {                                       \
      MUST(MPI_BLOCKING_##name(__VA_ARGS__));      \
    }                                              \
  } while (0)
#define MPI_BLOCKING_bcast MPI_Bcast
#define MPI_BLOCKING_gather MPI_Gather
#define MPI_BLOCKING_scatter MPI_Scatter
#define MPI_BLOCKING_reduce MPI_Reduce
#define MPI_BLOCKING_allgather MPI_Allgather
#define MPI_BLOCKING_alltoall MPI_Alltoall
#define MPI_BLOCKING_alltoallv MPI_Alltoallv
#define MPI_BLOCKING_allreduce MPI_Allreduce

// From or to a root in one of the groups.
static void rooted(const Inter* inter, int started, int call, int count, int side_of_root) {
  const int with_root = inter->side == side_of_root;
  const int root_rank = call % (with_root ? inter->size : inter->others);
  const int at_root = with_root && inter->rank == root_rank;
  const int root = !with_root ? root_rank : (at_root ? MPI_ROOT : MPI_PROC_NULL);
  const MPI_Comm comm = inter->comm;
  fill(inter, call, count);
  CALL(started, bcast, with_root ? in : out, count, MPI_LONG, root, comm);
  if (!with_root) expect(inter, call, count, 0, root_rank, 0, "bcast");
  fill(inter, call, count);
  CALL(started, gather, in, count, MPI_LONG, out, count, MPI_LONG, root, comm);
  for (int rank = 0; rank < inter->others && at_root; rank++) {
    expect(inter, call, count, rank, rank, 0, "gather");
  }
  fill(inter, call, count);
  CALL(started, scatter, in, count, MPI_LONG, out, count, MPI_LONG, root, comm);
  if (!with_root) expect(inter, call, count, 0, root_rank, inter->rank, "scatter");
  fill(inter, call, count);
  CALL(started, reduce, in, out, count, MPI_LONG, sum, root, comm);
  if (at_root) expect_sums(inter, call, count, "reduce");
}

static void among_all(const Inter* inter, int started, int call, int count) {
  const MPI_Comm comm = inter->comm;
  int counts[kMostRanks], displs[kMostRanks];
  for (int i = 0; i < kMostRanks; i++) counts[i] = count, displs[i] = i * count;
  fill(inter, call, count);
  CALL(started, allgather, in, count, MPI_LONG, out, count, MPI_LONG, comm);
  for (int rank = 0; rank < inter->others; rank++) {
    expect(inter, call, count, rank, rank, 0, "allgather");
  }
  fill(inter, call, count);
  CALL(started, alltoall, in, count, MPI_LONG, out, count, MPI_LONG, comm);
  for (int rank = 0; rank < inter->others; rank++) {
    expect(inter, call, count, rank, rank, inter->rank, "alltoall");
  }
  fill(inter, call, count);
  CALL(started, alltoallv, in, counts, displs, MPI_LONG, out, counts, displs, MPI_LONG, comm);
  for (int rank = 0; rank < inter->others; rank++) {
    expect(inter, call, count, rank, rank, inter->rank, "alltoallv");
  }
  fill(inter, call, count);
  CALL(started, allreduce, in, out, count, MPI_LONG, sum, comm);
  expect_sums(inter, call, count, "allreduce");
}

// Calls are numbered from `call` on, alike on all ranks of the communicator.
static void everything(MPI_Comm comm, int side, int call) {
  const Inter inter = look_at(comm, side);
  for (int started = 0; started < (odt_number("blocking", 0) ? 1 : 2); started++) {
    for (int size = 0; size < kSizes; size++) {
      call++;
      MUST(MPI_Barrier(comm));
      rooted(&inter, started, call, kCounts[size], 0);
      rooted(&inter, started, call, kCounts[size], 1);
      among_all(&inter, started, call, kCounts[size]);
    }
  }
}

// With either group first; often enough for ways to be measured.
static void merged(MPI_Comm inter, int side) {
  for (int second = 0; second < 2; second++) {
    MPI_Comm whole;
    int rank, size;
    MUST(MPI_Intercomm_merge(inter, side == second, &whole));
    MUST(MPI_Comm_rank(whole, &rank));
    MUST(MPI_Comm_size(whole, &size));
    for (int k = 0; k < 40; k++) {
      long mine = k + rank, total = 0;
      MUST(MPI_Allreduce(&mine, &total, 1, MPI_LONG, MPI_SUM, whole));
      CHECK(total == (long)size * k + size * (size - 1) / 2, "merged: sum %d is %ld", k, total);
    }
    MUST(MPI_Comm_free(&whole));
  }
}

// `side` of this rank; `first` is the other side's first rank of MPI_COMM_WORLD.
static void between(int side, int first) {
  MPI_Comm half, inter, copy, part;
  MPI_Group group, leader;
  const int zero = 0;
  int rank, size, others;
  MUST(MPI_Comm_split(MPI_COMM_WORLD, side, odt.rank, &half));
  MUST(MPI_Barrier(half));
  MUST(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, first, 7, &inter));
  everything(inter, side, 10);
  MUST(MPI_Comm_dup(inter, &copy));
  everything(copy, side, 20);
  merged(copy, side);
  MUST(MPI_Comm_free(&copy));

  MUST(MPI_Comm_rank(inter, &rank));
  MUST(MPI_Comm_size(inter, &size));
  MUST(MPI_Comm_remote_size(inter, &others));
  // What only one side has any of is no communicator.
  MUST(MPI_Comm_split(inter, rank % 2, 0, &part));
  CHECK((part != MPI_COMM_NULL) == (rank % 2 == 0 || (size > 1 && others > 1)), "split");
  if (part != MPI_COMM_NULL) {
    everything(part, side, 30);
    merged(part, side);
    MUST(MPI_Comm_free(&part));
  }
  MUST(MPI_Comm_group(inter, &group));
  MUST(MPI_Group_incl(group, 1, &zero, &leader));
  MUST(MPI_Comm_create(inter, leader, &part));
  CHECK((part != MPI_COMM_NULL) == (rank == 0), "create");
  if (part != MPI_COMM_NULL) {
    everything(part, side, 40);
    MUST(MPI_Comm_free(&part));
  }
  MUST(MPI_Group_free(&leader));
  MUST(MPI_Group_free(&group));

  MUST(MPI_Comm_free(&half));
  everything(inter, side, 50);
  MUST(MPI_Comm_free(&inter));
}

int main(int argc, char** argv) {
  odt_start("two groups", &argc, &argv);
  in = odt_memory(sizeof(long) * kMostRanks * (size_t)kCounts[kSizes - 1]);
  out = odt_memory(sizeof(long) * kMostRanks * (size_t)kCounts[kSizes - 1]);
  MUST(MPI_Op_create(add, 1, &sum));
  // One rank and all others; every other one.
  between(odt.rank > 0, odt.rank > 0 ? 0 : 1);
  between(odt.rank % 2, 1 - odt.rank % 2);
  MUST(MPI_Op_free(&sum));
  free(out);
  free(in);
  return odt_finish();
}
