// Isolation of communicators: the same tag at the same time on many communicators made in every
// way; each message must arrive on its own. Then thousands of communicators, one after another and
// many at once, and communicators freed while messages are on their way.
#include "odtest.h"

enum { kMost = 40 };

static MPI_Comm comms[kMost];
static int made;

static void add(MPI_Comm comm) {
  if (comm != MPI_COMM_NULL) comms[made++] = comm;
}

// Ranks may belong to different communicators; a message names its communicator by the order of
// creation, which is the same on its members because subsets are made last.
static void make_all(void) {
  MPI_Comm comm, base;
  MPI_Group world_group, group;
  MPI_Request request;
  made = 0;
  add(MPI_COMM_WORLD);
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  add(comm);
  base = comm;
  MUST(MPI_Comm_dup(base, &comm));
  add(comm);
  MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, odt.size - odt.rank, &comm));  // reversed
  add(comm);
  MUST(MPI_Comm_split(base, 0, odt.rank, &comm));
  add(comm);
  MUST(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm));
  add(comm);
  MUST(MPI_Comm_group(MPI_COMM_WORLD, &world_group));
  MUST(MPI_Comm_create(MPI_COMM_WORLD, world_group, &comm));
  add(comm);
  MUST(MPI_Comm_create(base, world_group, &comm));
  add(comm);
  MUST(MPI_Comm_create_group(MPI_COMM_WORLD, world_group, 17, &comm));
  add(comm);
  MUST(MPI_Comm_create_group(MPI_COMM_WORLD, world_group, 17, &comm));
  add(comm);
  MUST(MPI_Comm_create_group(MPI_COMM_WORLD, world_group, 18, &comm));
  add(comm);
  MUST(MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  add(comm);
  // Two at once, completed in the other order.
  MPI_Comm first, second;
  MPI_Request requests[2];
  MUST(MPI_Comm_idup(base, &first, &requests[0]));
  MUST(MPI_Comm_idup(MPI_COMM_WORLD, &second, &requests[1]));
  MUST(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
  MUST(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
  add(second);
  add(first);
  int dims[1] = {odt.size}, periods[1] = {1};
  MUST(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 1, &comm));
  add(comm);
  int keep[1] = {1};
  MUST(MPI_Cart_sub(comm, keep, &comm));
  add(comm);
  int* index = odt_memory((size_t)odt.size * sizeof *index);
  int* edges = odt_memory((size_t)odt.size * sizeof *edges);
  for (int i = 0; i < odt.size; i++) {
    index[i] = i + 1;
    edges[i] = (i + 1) % odt.size;
  }
  MUST(MPI_Graph_create(MPI_COMM_WORLD, odt.size, index, edges, 0, &comm));
  add(comm);
  int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  MUST(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, MPI_UNWEIGHTED, 1, &right,
                                      MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm));
  add(comm);
  MPI_Info info;
  MUST(MPI_Info_create(&info));
  MUST(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
  add(comm);
  MUST(MPI_Info_free(&info));
  // Subsets: the first two ranks; everybody else gets MPI_COMM_NULL or another colour.
  int two[2] = {1, 0};
  MUST(MPI_Group_incl(world_group, 2, two, &group));
  MUST(MPI_Comm_create(MPI_COMM_WORLD, group, &comm));
  add(comm);
  MUST(MPI_Comm_split(MPI_COMM_WORLD, odt.rank < 2 ? 4 : MPI_UNDEFINED, 0, &comm));
  add(comm);
  if (odt.rank < 2) {
    MUST(MPI_Comm_create_group(MPI_COMM_WORLD, group, 3, &comm));
    add(comm);
    MUST(MPI_Comm_dup(comm, &comm));
    add(comm);
  }
  MUST(MPI_Group_free(&group));
  MUST(MPI_Group_free(&world_group));
  free(edges);
  free(index);
}

typedef struct {
  int32_t comm;
  int32_t from;
  int32_t round;
} Stamp;

// Everybody sends one message to its right neighbour on each communicator, in one order, and
// receives them in another, all with the same tag.
static void isolated(int round) {
  OdtRandom random = odt_random((uint64_t)round);
  MPI_Request requests[kMost];
  Stamp out[kMost], in[kMost];
  int order[kMost];
  for (int i = 0; i < made; i++) order[i] = i;
  for (int i = made - 1; i > 0; i--) {
    int j = (int)odt_below(&random, i + 1), t = order[i];
    order[i] = order[j];
    order[j] = t;
  }
  for (int k = 0; k < made; k++) {
    int i = (k + round) % made, rank, size;
    MUST(MPI_Comm_rank(comms[i], &rank));
    MUST(MPI_Comm_size(comms[i], &size));
    out[i] = (Stamp){i, rank, round};
    MUST(MPI_Isend(&out[i], sizeof out[i], MPI_BYTE, (rank + 1) % size, 5, comms[i], &requests[i]));
  }
  for (int k = 0; k < made; k++) {
    int i = order[k], rank, size, flag = 1;
    MPI_Status status;
    MUST(MPI_Comm_rank(comms[i], &rank));
    MUST(MPI_Comm_size(comms[i], &size));
    int left = (rank + size - 1) % size;
    MUST(MPI_Recv(&in[i], sizeof in[i], MPI_BYTE, k % 2 ? left : MPI_ANY_SOURCE,
                  k % 3 ? 5 : MPI_ANY_TAG, comms[i], &status));
    CHECK(in[i].comm == i && in[i].from == left && in[i].round == round,
          "communicator %d got the message of communicator %d rank %d round %d", i, in[i].comm,
          in[i].from, in[i].round);
    CHECK(status.MPI_SOURCE == left, "source %d, not %d", status.MPI_SOURCE, left);
    (void)flag;
  }
  MUST(MPI_Waitall(made, requests, MPI_STATUSES_IGNORE));
}

static void neighbour(MPI_Comm comm, int value) {
  int rank, size, got = -1;
  MUST(MPI_Comm_rank(comm, &rank));
  MUST(MPI_Comm_size(comm, &size));
  MUST(MPI_Sendrecv(&value, 1, MPI_INT, (rank + 1) % size, 1, &got, 1, MPI_INT,
                    (rank + size - 1) % size, 1, comm, MPI_STATUS_IGNORE));
  CHECK(got == value, "got %d, not %d", got, value);
}

static void thousands(long count) {
  for (long i = 0; i < count; i++) {
    MPI_Comm comm;
    if (i % 3 == 0) {
      MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    } else if (i % 3 == 1) {
      MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, odt.rank, &comm));
    } else {
      MUST(MPI_Comm_split(MPI_COMM_WORLD, odt.rank % 2, odt.rank, &comm));
    }
    if (i % 7 == 0 || i % 3 == 2) neighbour(comm, (int)i);
    MUST(MPI_Comm_free(&comm));
  }
  // MPICH has 2048 contexts, of which a communicator takes one or more.
  enum { kAtOnce = 600 };
  MPI_Comm* many = odt_memory(kAtOnce * sizeof *many);
  for (int i = 0; i < kAtOnce; i++) MUST(MPI_Comm_dup(MPI_COMM_WORLD, &many[i]));
  for (int i = 0; i < kAtOnce; i += 3) neighbour(many[i], i);
  for (int i = kAtOnce - 1; i >= 0; i -= 7) neighbour(many[i], i);
  for (int i = 0; i < kAtOnce; i++) MUST(MPI_Comm_free(&many[i]));
  free(many);
}

// Freed with receives and sends pending: they complete all the same.
static void freed_early(void) {
  for (int i = 0; i < 50; i++) {
    MPI_Comm comm;
    MPI_Request requests[2];
    enum { kBytes = 100000 };
    char* out = odt_memory(kBytes);
    char* in = odt_memory(kBytes);
    int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
    odt_fill(out, kBytes, odt_key(odt.rank, right, 80, i));
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MUST(MPI_Irecv(in, kBytes, MPI_BYTE, i % 2 ? left : MPI_ANY_SOURCE, 2, comm, &requests[0]));
    MUST(MPI_Isend(out, kBytes, MPI_BYTE, right, 2, comm, &requests[1]));
    MUST(MPI_Comm_free(&comm));
    MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK_DATA(in, kBytes, odt_key(left, odt.rank, 80, i));
    free(in);
    free(out);
  }
}

int main(int argc, char** argv) {
  odt_start("comms", &argc, &argv);
  if (odt.size >= 2) {
    make_all();
    for (int round = 0; round < 40; round++) isolated(round);
    for (int i = 1; i < made; i++) MUST(MPI_Comm_free(&comms[i]));
    thousands(odt_number("thousands", 3000));
    freed_early();
  }
  return odt_finish();
}
