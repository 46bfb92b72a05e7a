// A datatype too irregular to be flattened (more runs than Overdrive keeps): messages that fill it,
// that are shorter and end inside an element, or longer; from a peer, from a wildcard and to self.
#include "odtest.h"

enum { kRuns = 70000, kElements = 2, kUntouched = 0x6b6b6b6b };

static MPI_Datatype type;
static int places[kRuns];  // of the ints of one element
static MPI_Aint extent;    // in ints
static int* in;
static int* out;

static int value_at(int number, int i) { return number * 1000003 + i; }

static void make_type(void) {
  int place = 0;
  OdtRandom random = odt_random(7);
  for (int i = 0; i < kRuns; i++) {
    places[i] = place;
    place += 2 + (int)odt_below(&random, 5);
  }
  extent = place;
  MUST(MPI_Type_create_indexed_block(kRuns, 1, places, MPI_INT, &type));
  MPI_Datatype sized;
  MUST(MPI_Type_create_resized(type, 0, extent * (MPI_Aint)sizeof(int), &sized));
  MUST(MPI_Type_free(&type));
  type = sized;
  MUST(MPI_Type_commit(&type));
}

static void check_received(const char* what, int number, int count, int elements,
                           const MPI_Status* status) {
  int got = -1, whole = -1, wrong = 0;
  const int most = kRuns * elements;
  const int valid = count < most ? count : most;
  MPI_Get_elements(status, type, &got);
  MPI_Get_count(status, type, &whole);
  CHECK(got == valid, "%s: %d ints of %d arrived", what, got, valid);
  CHECK(whole == (valid % kRuns == 0 ? valid / kRuns : MPI_UNDEFINED), "%s: count %d of %d ints",
        what, whole, valid);
  for (int e = 0, i = 0; e < elements; e++) {
    int* element = in + e * extent;
    for (int r = 0; r < kRuns; r++, i++) {
      const int wanted = i < valid ? value_at(number, i) : kUntouched;
      wrong += element[places[r]] != wanted;
      element[places[r]] = kUntouched;
    }
  }
  for (MPI_Aint i = 0; i < extent * kElements; i++) wrong += in[i] != kUntouched;
  CHECK(wrong == 0, "%s, %d ints: %d are wrong", what, count, wrong);
}

// One message of `count` ints from `from` to `to`.
static void message(const char* what, int number, int count, int elements, int from, int to,
                    int wildcard) {
  MPI_Request request;
  MPI_Status status;
  const int receive = odt.rank == to;
  if (receive && number % 2 == 0) {  // posted before or after
    MUST(MPI_Irecv(in, elements, type, wildcard ? MPI_ANY_SOURCE : from, number, MPI_COMM_WORLD,
                   &request));
  }
  if (number % 2 == 0 && from != to) MUST(MPI_Barrier(MPI_COMM_WORLD));
  if (odt.rank == from) {
    MPI_Request sent;
    for (int i = 0; i < count; i++) out[i] = value_at(number, i);
    MUST(MPI_Isend(out, count, MPI_INT, to, number, MPI_COMM_WORLD, &sent));
    if (!receive) MUST(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    if (receive && number % 2 == 0) {
      MUST(MPI_Wait(&request, &status));
      check_received(what, number, count, elements, &status);
      MUST(MPI_Wait(&sent, MPI_STATUS_IGNORE));
      return;
    }
    if (receive) {
      MUST(MPI_Recv(in, elements, type, from, number, MPI_COMM_WORLD, &status));
      check_received(what, number, count, elements, &status);
      MUST(MPI_Wait(&sent, MPI_STATUS_IGNORE));
      return;
    }
  }
  if (receive) {
    if (number % 2 == 0) {
      MUST(MPI_Wait(&request, &status));
    } else {
      MUST(MPI_Recv(in, elements, type, wildcard ? MPI_ANY_SOURCE : from, number, MPI_COMM_WORLD,
                    &status));
    }
    check_received(what, number, count, elements, &status);
  }
}

// The type on the sender's side, ints on the other.
static void send_type(int number) {
  const int ints = kRuns * kElements;
  if (odt.rank == 0) {
    for (int i = 0; i < ints; i++)
      in[(i / kRuns) * extent + places[i % kRuns]] = value_at(number, i);
    MUST(MPI_Send(in, kElements, type, 1, number, MPI_COMM_WORLD));
    memset(in, 0x6b, (size_t)(extent * kElements) * sizeof *in);
  } else if (odt.rank == 1) {
    int wrong = 0;
    MUST(MPI_Recv(out, ints, MPI_INT, 0, number, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < ints; i++) wrong += out[i] != value_at(number, i);
    CHECK(wrong == 0, "%d of %d ints are wrong", wrong, ints);
  }
}

int main(int argc, char** argv) {
  static const int kCounts[] = {
      0, 1, 5, 600, kRuns / 2, kRuns - 1, kRuns, kRuns + 1, kRuns + 5000, 2 * kRuns - 1, 2 * kRuns};
  int number = 1;
  odt_start("opaque", &argc, &argv);
  make_type();
  in = odt_memory((size_t)(extent * kElements) * sizeof *in);
  out = odt_memory((size_t)kRuns * kElements * sizeof *out);
  memset(in, 0x6b, (size_t)(extent * kElements) * sizeof *in);
  for (int c = 0; c < (int)(sizeof kCounts / sizeof *kCounts); c++) {
    for (int late = 0; late < 2; late++) {
      message("peer", number++, kCounts[c], kElements, 0, 1, 0);
      message("any", number++, kCounts[c], kElements, 0, 1, 1);
      message("any", number++, kCounts[c], kElements, 0, 1, 1);
    }
    message("self", number++, kCounts[c], kElements, 1, 1, 0);
    message("self", number++, kCounts[c], kElements, 1, 1, 0);
    if (odt.size > 2) {
      message("other", number++, kCounts[c], kElements, 2, 1, 1);
      message("other", number++, kCounts[c], kElements, 2, 1, 0);
    }
  }
  send_type(number++);
  // One element more than there is room for.
  if (odt.rank < 2) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (odt.rank == 0) {
      MPI_Send(out, kRuns + 1, MPI_INT, 1, number, MPI_COMM_WORLD);
    } else {
      int class = -1;
      MPI_Error_class(MPI_Recv(in, 1, type, 0, number, MPI_COMM_WORLD, MPI_STATUS_IGNORE), &class);
      CHECK(class == MPI_ERR_TRUNCATE, "a message too long: class %d", class);
    }
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  MUST(MPI_Type_free(&type));
  free(in);
  free(out);
  return odt_finish();
}
