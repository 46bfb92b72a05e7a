// Collectives of the same sizes over and over, so that Overdrive and the host serve them in turn,
// on several communicators, with errors and with receives that are pending meanwhile.
#include "odtest.h"

enum { kRounds = 320, kWords = 500 };

// The first operand where it is not zero: associative, not commutative.
static void first_set(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; i++) {
    const long left = ((long*)in)[i];
    if (left != 0) ((long*)inout)[i] = left;
  }
}

static long word(int round, int rank, int i) { return 1 + round * 1009L + rank * 31L + i; }

static void one_round(MPI_Comm comm, MPI_Op first, int round, int count) {
  static long in[kWords * 8], out[kWords * 8];
  int rank, size;
  MUST(MPI_Comm_rank(comm, &rank));
  MUST(MPI_Comm_size(comm, &size));
  const int root = round % size;

  for (int i = 0; i < count; i++) in[i] = word(round, rank, i);
  MUST(MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, comm));
  for (int i = 0; i < count; i++) {
    const long sum = size * word(round, 0, i) + 31L * size * (size - 1) / 2;
    CHECK(out[i] == sum, "round %d: sum %d of %d is %ld", round, i, count, out[i]);
  }
  MUST(MPI_Allreduce(in, out, count, MPI_LONG, first, comm));
  CHECK(out[count - 1] == word(round, 0, count - 1), "round %d: first is %ld", round, out[0]);
  MUST(MPI_Reduce(in, out, count, MPI_LONG, MPI_MAX, root, comm));
  if (rank == root) {
    CHECK(out[0] == word(round, size - 1, 0), "round %d: maximum is %ld", round, out[0]);
  }

  if (rank == root) in[0] = -round;
  MUST(MPI_Bcast(in, count, MPI_LONG, root, comm));
  CHECK(in[0] == -round, "round %d: %ld was broadcast", round, in[0]);

  for (int i = 0; i < count; i++) in[i] = word(round, rank, i);
  MUST(MPI_Allgather(in, count, MPI_LONG, out, count, MPI_LONG, comm));
  for (int peer = 0; peer < size; peer++) {
    CHECK(out[peer * count] == word(round, peer, 0), "round %d: block %d is %ld", round, peer,
          out[peer * count]);
  }
  MUST(MPI_Gather(in, count, MPI_LONG, out, count, MPI_LONG, root, comm));
  MUST(MPI_Scatter(out, count, MPI_LONG, in, count, MPI_LONG, root, comm));
  CHECK(in[count - 1] == word(round, rank, count - 1), "round %d: %ld came back", round, in[0]);

  for (int i = 0; i < size * count; i++) in[i] = word(round, rank, i);
  MUST(MPI_Alltoall(in, count, MPI_LONG, out, count, MPI_LONG, comm));
  for (int peer = 0; peer < size; peer++) {
    CHECK(out[peer * count] == word(round, peer, rank * count), "round %d: from %d came %ld", round,
          peer, out[peer * count]);
  }
  MUST(MPI_Barrier(comm));
}

// Among the neighbours of a line of ranks: who is where there is nobody keeps what it has.
static void among_neighbours(MPI_Comm line, int round, int count) {
  static long in[kWords * 2], out[kWords * 2];
  int counts[2] = {count, count}, displs[2] = {count, 0};
  int around[2];
  MUST(MPI_Cart_shift(line, 0, 1, &around[0], &around[1]));
  for (int form = 0; form < 3; form++) {
    for (int i = 0; i < 2 * count; i++) in[i] = word(round, odt.rank, i), out[i] = -1;
    if (form == 0) {
      MUST(MPI_Neighbor_alltoall(in, count, MPI_LONG, out, count, MPI_LONG, line));
    } else if (form == 1) {
      MUST(MPI_Neighbor_allgather(in, count, MPI_LONG, out, count, MPI_LONG, line));
    } else {
      MUST(MPI_Neighbor_alltoallv(in, counts, displs, MPI_LONG, out, counts, displs, MPI_LONG,
                                  line));
    }
    for (int side = 0; side < 2; side++) {
      const int place = form == 2 ? displs[side] : side * count;
      // What comes from one side was sent to the other one.
      const int sent = form == 0 ? (1 - side) * count : form == 1 ? 0 : displs[1 - side];
      for (int i = 0; i < count; i++) {
        const long expected =
            around[side] == MPI_PROC_NULL ? -1 : word(round, around[side], sent + i);
        CHECK(out[place + i] == expected, "round %d, form %d: side %d, word %d is %ld", round, form,
              side, i, out[place + i]);
      }
    }
  }
}

int main(int argc, char** argv) {
  odt_start("learning", &argc, &argv);
  MPI_Comm reversed, even, line;
  const int open_ends = 0;
  MPI_Op first;
  MUST(MPI_Op_create(first_set, 0, &first));
  MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, odt.size - odt.rank, &reversed));
  MUST(MPI_Comm_split(MPI_COMM_WORLD, odt.rank % 2, 0, &even));
  MUST(MPI_Comm_set_errhandler(reversed, MPI_ERRORS_RETURN));
  MUST(MPI_Cart_create(MPI_COMM_WORLD, 1, &odt.size, &open_ends, 0, &line));
  for (int round = 0; round < kRounds; round++) {
    long token = round, got = -1;
    MPI_Request pending = MPI_REQUEST_NULL;
    // A wildcard receive that nobody has sent to yet, while any of the two serves.
    if (round % 2 == 0) {
      MUST(MPI_Irecv(&got, 1, MPI_LONG, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &pending));
    }
    // Now and then of another size, too seldom for a verdict.
    one_round(MPI_COMM_WORLD, first, round, round % 8 == 7 ? 1 : kWords);
    one_round(reversed, first, round, 3);
    one_round(even, first, round, kWords / 2);
    among_neighbours(line, round, round % 8 == 7 ? 1 : kWords);
    if (round % 8 == 5) {
      CHECK(MPI_Bcast(&token, 1, MPI_DATATYPE_NULL, 0, reversed) != MPI_SUCCESS, "not refused");
    }
    if (round % 2 == 0) {
      MUST(MPI_Send(&token, 1, MPI_LONG, (odt.rank + 1) % odt.size, 5, MPI_COMM_WORLD));
      MUST(MPI_Wait(&pending, MPI_STATUS_IGNORE));
      CHECK(got == round, "round %d: the message was %ld", round, got);
    }
    if (round % 10 == 9) {
      // A new communicator begins anew.
      MUST(MPI_Comm_free(&reversed));
      MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, odt.size - odt.rank, &reversed));
      MUST(MPI_Comm_set_errhandler(reversed, MPI_ERRORS_RETURN));
    }
  }
  MUST(MPI_Comm_free(&line));
  MUST(MPI_Comm_free(&even));
  MUST(MPI_Comm_free(&reversed));
  MUST(MPI_Op_free(&first));
  return odt_finish();
}
