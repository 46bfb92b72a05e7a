// Rings and chains with Sendrecv and Sendrecv_replace: all sizes, unequal sizes and types on the
// two sides, MPI_PROC_NULL at the ends, to oneself, and many rounds so that late ranks meet early
// ones.
#include "odtest.h"

static const long kSizes[] = {0, 1, 56, 1000, 4096, 16384, 65536, 65537, 300000, 1 << 20, 8 << 20};
enum { kSizeCount = 11 };

static void ring(void) {
  const int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  for (int i = 0; i < kSizeCount; i++) {
    const long bytes = kSizes[i];
    char* out = odt_memory((size_t)bytes);
    char* in = odt_memory((size_t)bytes + 100);
    const int rounds = bytes > 100000 ? 3 : 20;
    for (int round = 0; round < rounds; round++) {
      MPI_Status status;
      int count = -1;
      odt_fill(out, (size_t)bytes, odt_key(odt.rank, right, i, round));
      MUST(MPI_Sendrecv(out, (int)bytes, MPI_BYTE, right, round, in, (int)bytes + 100, MPI_BYTE,
                        round % 3 ? left : MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &status));
      MPI_Get_count(&status, MPI_BYTE, &count);
      CHECK(count == bytes && status.MPI_SOURCE == left && status.MPI_TAG == round,
            "%d bytes of %ld from %d tag %d", count, bytes, status.MPI_SOURCE, status.MPI_TAG);
      CHECK_DATA(in, bytes, odt_key(left, odt.rank, i, round));

      odt_fill(in, (size_t)bytes, odt_key(odt.rank, right, i + 100, round));
      MUST(MPI_Sendrecv_replace(in, (int)bytes, MPI_BYTE, right, round, left, round, MPI_COMM_WORLD,
                                &status));
      CHECK_DATA(in, bytes, odt_key(left, odt.rank, i + 100, round));
    }
    free(in);
    free(out);
  }
}

// A value travels once around by Sendrecv_replace and comes home.
static void travel(void) {
  const int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  double values[500];
  for (int i = 0; i < 500; i++) values[i] = odt.rank * 1000.0 + i;
  MPI_Datatype every_second;
  MUST(MPI_Type_vector(250, 1, 2, MPI_DOUBLE, &every_second));
  MUST(MPI_Type_commit(&every_second));
  for (int step = 0; step < odt.size; step++) {
    MUST(MPI_Sendrecv_replace(values, 1, every_second, right, 4, left, 4, MPI_COMM_WORLD,
                              MPI_STATUS_IGNORE));
    int owner = (odt.rank - step - 1 + odt.size) % odt.size;
    for (int i = 0; i < 499; i++) {
      double expected = (i % 2 ? odt.rank : owner) * 1000.0 + i;
      CHECK(values[i] == expected, "step %d value %d: %g, not %g", step, i, values[i], expected);
      if (values[i] != expected) break;
    }
  }
  MUST(MPI_Type_free(&every_second));
}

static void chain(void) {
  const int right = odt.rank + 1 < odt.size ? odt.rank + 1 : MPI_PROC_NULL;
  const int left = odt.rank > 0 ? odt.rank - 1 : MPI_PROC_NULL;
  int out = odt.rank, in = -5;
  MPI_Status status;
  MUST(MPI_Sendrecv(&out, 1, MPI_INT, right, 6, &in, 1, MPI_INT, left, 6, MPI_COMM_WORLD, &status));
  CHECK(in == (odt.rank > 0 ? odt.rank - 1 : -5), "got %d", in);
  CHECK(status.MPI_SOURCE == left, "source %d, not %d", status.MPI_SOURCE, left);
  in = odt.rank;
  MUST(MPI_Sendrecv_replace(&in, 1, MPI_INT, left, 7, right, 7, MPI_COMM_WORLD, &status));
  CHECK(in == (odt.rank + 1 < odt.size ? odt.rank + 1 : odt.rank), "got %d", in);
}

// Different sizes in the two directions, one much larger than the other.
static void unequal(void) {
  if (odt.size < 2 || odt.rank > 1) return;
  const int peer = 1 - odt.rank;
  for (int i = 0; i < kSizeCount; i++) {
    long mine = odt.rank == 0 ? kSizes[i] : kSizes[kSizeCount - 1 - i];
    long theirs = odt.rank == 1 ? kSizes[i] : kSizes[kSizeCount - 1 - i];
    char* out = odt_memory((size_t)mine);
    char* in = odt_memory((size_t)theirs);
    odt_fill(out, (size_t)mine, odt_key(odt.rank, peer, 900, i));
    MUST(MPI_Sendrecv(out, (int)mine, MPI_BYTE, peer, odt.rank, in, (int)theirs, MPI_BYTE, peer,
                      peer, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK_DATA(in, theirs, odt_key(peer, odt.rank, 900, i));
    free(in);
    free(out);
  }
}

int main(int argc, char** argv) {
  odt_start("rings", &argc, &argv);
  ring();
  travel();
  chain();
  unequal();
  return odt_finish();
}
