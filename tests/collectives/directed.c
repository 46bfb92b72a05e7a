// Collectives in situations that random calls do not meet: wrong arguments, absolute addresses,
// communicators that come and go, messages between the start and the end of a collective, and what
// may be done with its request.
#include "odtest.h"

// Everything below must still work after an error.
static void still_works(const char* after) {
  int in = odt.rank + 1, out = 0;
  MUST(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK(out == odt.size * (odt.size + 1) / 2, "after %s the sum is %d", after, out);
}

#define REFUSED(call)                                          \
  do {                                                         \
    const int refused_code = (call);                           \
    CHECK(refused_code != MPI_SUCCESS, "%s succeeded", #call); \
    still_works(#call);                                        \
  } while (0)

static void wrong_arguments(MPI_Datatype raw) {
  int in[16] = {0}, out[16] = {0};
  MPI_Request request;
  REFUSED(MPI_Bcast(in, 1, MPI_INT, odt.size, MPI_COMM_WORLD));
  REFUSED(MPI_Bcast(in, 1, MPI_INT, -1, MPI_COMM_WORLD));
  REFUSED(MPI_Bcast(in, -1, MPI_INT, 0, MPI_COMM_WORLD));
  REFUSED(MPI_Bcast(in, 1, raw, 0, MPI_COMM_WORLD));
  REFUSED(MPI_Bcast(in, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD));
  REFUSED(MPI_Ibcast(in, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD, &request));
  REFUSED(MPI_Barrier(MPI_COMM_NULL));
  REFUSED(MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD));
  REFUSED(MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_BXOR, MPI_COMM_WORLD));
  REFUSED(MPI_Iallreduce(in, out, 1, MPI_DOUBLE, MPI_BXOR, MPI_COMM_WORLD, &request));
  REFUSED(MPI_Allreduce(in, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  REFUSED(MPI_Reduce(in, out, 1, MPI_INT, MPI_SUM, odt.size, MPI_COMM_WORLD));
}

// Input and output in the same memory: refused by the host, or as if in place.
static void aliases(void) {
  int both = odt.rank + 1;
  const int sum = odt.size * (odt.size + 1) / 2;
  int code = MPI_Allreduce(&both, &both, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (code == MPI_SUCCESS) CHECK(both == sum, "the sum in the same memory is %d", both);
  still_works("aliases in allreduce");
  int* all = odt_memory((size_t)odt.size * sizeof *all);
  all[odt.rank] = 100 + odt.rank;
  code = MPI_Allgather(&all[odt.rank], 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
  for (int i = 0; code == MPI_SUCCESS && i < odt.size; i++) {
    CHECK(all[i] == 100 + i, "block %d in the same memory is %d", i, all[i]);
  }
  still_works("aliases in allgather");
  free(all);
}

static void absolute_addresses(void) {
  long value = odt.rank == odt.size - 1 ? 4711 : 0;
  long* gathered = odt_memory((size_t)odt.size * sizeof *gathered);
  const int one = 1;
  MPI_Aint address;
  MPI_Datatype here;
  MUST(MPI_Get_address(&value, &address));
  MUST(MPI_Type_create_hindexed(1, &one, &address, MPI_LONG, &here));
  MUST(MPI_Type_commit(&here));
  MUST(MPI_Bcast(MPI_BOTTOM, 1, here, odt.size - 1, MPI_COMM_WORLD));
  CHECK(value == 4711, "broadcast to an absolute address: %ld", value);
  value += odt.rank;
  MPI_Request request;
  MUST(MPI_Igather(MPI_BOTTOM, 1, here, gathered, 1, MPI_LONG, 0, MPI_COMM_WORLD, &request));
  MUST(MPI_Type_free(&here));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  for (int i = 0; odt.rank == 0 && i < odt.size; i++) {
    CHECK(gathered[i] == 4711 + i, "gathered from an absolute address: %ld", gathered[i]);
  }
  free(gathered);
}

// Most blocks are empty, and their addresses mean nothing.
static void empty_blocks(void) {
  const int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  int counts[2][64] = {{0}}, places[2][64] = {{0}};
  MPI_Datatype types[64];
  double out = odt.rank, in = -1;
  for (int i = 0; i < odt.size; i++) {
    types[i] = i % 2 == 0 ? MPI_DOUBLE : MPI_INT;
    places[0][i] = 1 << 30;
    places[1][i] = -(1 << 30);
  }
  types[right] = types[left] = MPI_DOUBLE;
  counts[0][right] = counts[1][left] = 1;
  places[0][right] = places[1][left] = 0;
  MUST(MPI_Alltoallw(&out, counts[0], places[0], types, &in, counts[1], places[1], types,
                     MPI_COMM_WORLD));
  CHECK(in == left, "from the left: %g", in);
  memset(counts, 0, sizeof counts);
  MUST(MPI_Alltoallw(NULL, counts[0], places[0], types, NULL, counts[1], places[1], types,
                     MPI_COMM_WORLD));
  MUST(MPI_Allgatherv(NULL, 0, MPI_INT, NULL, counts[1], places[1], MPI_INT, MPI_COMM_WORLD));
  MUST(MPI_Bcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD));
  MUST(MPI_Reduce(NULL, NULL, 0, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
  still_works("empty blocks");
}

static void many_communicators(long count) {
  enum { kKept = 40 };
  MPI_Comm kept[kKept];
  for (long i = 0; i < count; i++) {
    MPI_Comm comm;
    int rank, size, out = 0, sent;
    if (i % 3 == 0) {
      MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    } else {
      MUST(MPI_Comm_split(MPI_COMM_WORLD, i % 3 == 1 ? odt.rank % 2 : 0, -odt.rank, &comm));
    }
    MUST(MPI_Comm_rank(comm, &rank));
    MUST(MPI_Comm_size(comm, &size));
    MUST(MPI_Allreduce(&rank, &out, 1, MPI_INT, MPI_SUM, comm));
    CHECK(out == size * (size - 1) / 2, "communicator %ld: sum %d of %d ranks", i, out, size);
    sent = rank == size - 1 ? (int)i : -1;
    MUST(MPI_Bcast(&sent, 1, MPI_INT, size - 1, comm));
    CHECK(sent == i, "communicator %ld: broadcast of %d", i, sent);
    MUST(MPI_Barrier(comm));
    if (i < kKept) {
      kept[i] = comm;  // these live as long as all others
    } else {
      MUST(MPI_Comm_free(&comm));
    }
  }
  for (long i = 0; i < kKept && i < count; i++) {
    int in = 1, out = 0, size;
    MUST(MPI_Comm_size(kept[i], &size));
    MUST(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, kept[i]));
    CHECK(out == size, "communicator %ld at the end: sum %d", i, out);
    MUST(MPI_Comm_free(&kept[i]));
  }
}

// A communicator may be freed while a collective on it is under way.
static void freed_communicator(void) {
  MPI_Comm comm;
  MPI_Request request;
  long in = odt.rank, out = -1;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MUST(MPI_Iallreduce(&in, &out, 1, MPI_LONG, MPI_SUM, comm, &request));
  MUST(MPI_Comm_free(&comm));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(out == (long)odt.size * (odt.size - 1) / 2, "sum %ld", out);
}

// Calls `number` and following of a communicator: whoever only gives is far ahead of a rank that
// comes late, then others give, some calls do not block, and all of it goes round many times.
static void give(MPI_Comm comm, int root, int kind, long number) {
  enum { kMost = 64 };
  const int size = odt.size, root_has = odt.rank == root;
  long in[kMost], out[kMost];
  int counts[kMost] = {0};
  MPI_Request request = MPI_REQUEST_NULL;
  for (int i = 0; i < size; i++) in[i] = number + 1000 * odt.rank + i, out[i] = -1;
  const long ranks = (long)size * (size - 1) / 2 * 1000 + size * number;
  switch (kind) {
    case 0:
      if (root_has) out[0] = number;
      MUST(MPI_Bcast(out, 1, MPI_LONG, root, comm));
      CHECK(out[0] == number, "call %ld: %ld from root %d", number, out[0], root);
      break;
    case 1:
      // All that there is goes to one rank.
      counts[root] = 2;
      MUST(MPI_Reduce_scatter(in, out, counts, MPI_LONG, MPI_SUM, comm));
      CHECK(out[0] == (root_has ? ranks : -1), "call %ld: a sum of %ld", number, out[0]);
      CHECK(out[1] == (root_has ? ranks + size : -1), "call %ld: %ld", number, out[1]);
      break;
    case 2:
      MUST(MPI_Scatter(in, 1, MPI_LONG, out, 1, MPI_LONG, root, comm));
      CHECK(out[0] == number + 1000 * root + odt.rank, "call %ld: a block %ld", number, out[0]);
      break;
    case 3:
      MUST(MPI_Gather(in, 1, MPI_LONG, out, 1, MPI_LONG, root, comm));
      for (int i = 0; root_has && i < size; i++) {
        CHECK(out[i] == number + 1000 * i, "call %ld: block %d is %ld", number, i, out[i]);
      }
      break;
    case 4:
      if (root_has) out[0] = number;
      MUST(MPI_Ibcast(out, 1, MPI_LONG, root, comm, &request));
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
      CHECK(out[0] == number, "call %ld: %ld from root %d", number, out[0], root);
      break;
    case 5:
      MUST(MPI_Reduce_scatter_block(in, out, 1, MPI_LONG, MPI_SUM, comm));
      CHECK(out[0] == ranks + (long)size * odt.rank, "call %ld: a sum of %ld", number, out[0]);
      break;
    default:
      MUST(MPI_Alltoall(in, 1, MPI_LONG, out, 1, MPI_LONG, comm));
      for (int i = 0; i < size; i++) {
        CHECK(out[i] == number + 1000 * i + odt.rank, "call %ld: block %d is %ld", number, i,
              out[i]);
      }
      break;
  }
}

static void far_ahead(void) {
  if (odt.size > 64) return;
  for (int round = 0; round < 8; round++) {
    MPI_Comm comm;
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    long number = 0;
    for (int part = 0; part < 6; part++) {
      const int root = (round + part) % odt.size;
      if (odt.rank == (root + 1) % odt.size) odt_sleep_ms(3);
      const int calls = 10 + 47 * ((round + part) % 5);
      for (int i = 0; i < calls; i++) give(comm, root, (round + part) % 5, number++);
      if (part % 2 == 1) {
        for (int i = 0; i < 3; i++) give(comm, root, 5 + i % 2, number++);
      }
    }
    MUST(MPI_Comm_free(&comm));  // while some are behind
  }
}

// The collective completes only after a message that one rank waits for before it takes part.
static void message_between(long bytes) {
  char* data = odt_memory((size_t)bytes);
  char* message = odt_memory((size_t)bytes);
  const uint64_t key = odt_key(0, 0, 1, bytes);
  MPI_Request request;
  if (odt.rank == 0) odt_fill(data, (size_t)bytes, key);
  if (odt.rank == 1) {
    MUST(MPI_Recv(message, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_DATA(message, bytes, key);
  }
  MUST(MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request));
  if (odt.rank == 0) MUST(MPI_Ssend(data, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_DATA(data, bytes, key);
  free(data);
  free(message);
}

// `strict`: what not all hosts do.
static void requests(int strict) {
  MPI_Request request;
  MPI_Status status;
  int in = odt.rank, out = -1, flag = 0;
  MUST(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request));
#if MPI_VERSION >= 5
  const MPI_Request same = MPI_Request_fromint(MPI_Request_toint(request));
#else
  const MPI_Request same = MPI_Request_f2c(MPI_Request_c2f(request));
#endif
  CHECK(same == request, "a request changes on its way to Fortran and back");
  if (strict) {
    CHECK(MPI_Cancel(&request) != MPI_SUCCESS, "a collective can be cancelled");
    CHECK(MPI_Request_free(&request) != MPI_SUCCESS, "a collective's request can be freed");
    CHECK(request == same, "the request is gone after an error");
  }
  while (!flag) MUST(MPI_Request_get_status(request, &flag, &status));
  CHECK(out == odt.size - 1, "maximum %d", out);
  MUST(MPI_Test(&request, &flag, &status));
  CHECK(flag && request == MPI_REQUEST_NULL, "complete, but the test says no");
  int count = -1, cancelled = -1;
  MUST(MPI_Get_count(&status, MPI_BYTE, &count));
  MUST(MPI_Test_cancelled(&status, &cancelled));
  CHECK(!strict || (count == 0 && !cancelled), "the status has %d bytes, cancelled %d", count,
        cancelled);
}

int main(int argc, char** argv) {
  odt_start("directed", &argc, &argv);
  // Never committed; made first, because the handle of a freed one would count as committed.
  MPI_Datatype raw;
  MUST(MPI_Type_contiguous(2, MPI_INT, &raw));
  absolute_addresses();
  empty_blocks();
  many_communicators(odt_number("communicators", 300));
  freed_communicator();
  far_ahead();
  for (long bytes = 1; odt.size > 1 && bytes <= 1 << 20; bytes *= 32) message_between(bytes);
  MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  MUST(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  requests(odt_number("strict", 0) != 0);
  if (odt_number("errors", 1) != 0) wrong_arguments(raw);
  aliases();
  MUST(MPI_Type_free(&raw));
  return odt_finish();
}
