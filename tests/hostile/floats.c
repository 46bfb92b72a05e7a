// Floating-point flags: a call that computes nothing of the program's raises none, a reduction only
// those of its own arithmetic; signalling NaNs arrive as they were sent. With --trap=1 every
// exception ends the program.
#include <fenv.h>
#include <math.h>

#include "odtest.h"

enum { kMost = 1 << 21 };

static unsigned char* out;
static unsigned char* in;

static void check_flags(const char* what, long bytes, int allowed) {
  const int raised = fetestexcept(FE_ALL_EXCEPT) & ~allowed;
  CHECK(raised == 0, "%s of %ld bytes raises flags 0x%x", what, bytes, (unsigned)raised);
  feclearexcept(FE_ALL_EXCEPT);
}

#define QUIET(what, bytes, call) \
  do {                           \
    MUST(call);                  \
    check_flags(what, bytes, 0); \
  } while (0)

// Signalling NaNs of both precisions, with a payload that tells where each belongs.
static void fill(long bytes, unsigned key) {
  for (long i = 0; i < bytes / 8; i++) {
    const uint64_t value =
        i % 2 ? 0x7ff0000000000000u | (key + (uint64_t)i + 1) : 0x7f8000017f800001u + key;
    memcpy(out + 8 * i, &value, 8);
  }
}

static void messages(long bytes) {
  const int peer = odt.rank ^ 1, n = (int)bytes, doubles = n / 8;
  const int idle = peer >= odt.size;
  if (idle) return;
  for (int round = 0; round < 12; round++) {
    MPI_Request requests[2];
    MPI_Status status;
    int flag = 0;
    fill(bytes, (unsigned)round);
    memset(in, 0, (size_t)bytes);
    switch (round % 4) {
      case 0:
        QUIET("Irecv", bytes,
              MPI_Irecv(in, doubles, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD, requests));
        QUIET("Isend", bytes,
              MPI_Isend(out, doubles, MPI_DOUBLE, peer, 0, MPI_COMM_WORLD, requests + 1));
        QUIET("Waitall", bytes, MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        break;
      case 1:
        QUIET("Sendrecv", bytes,
              MPI_Sendrecv(out, 2 * doubles, MPI_FLOAT, peer, 1, in, 2 * doubles, MPI_FLOAT, peer,
                           1, MPI_COMM_WORLD, &status));
        QUIET("Get_count", bytes, MPI_Get_count(&status, MPI_FLOAT, &flag));
        break;
      case 2:
        if (odt.rank < peer) {
          QUIET("Send", bytes, MPI_Send(out, n, MPI_BYTE, peer, 2, MPI_COMM_WORLD));
          QUIET("Recv", bytes, MPI_Recv(in, n, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &status));
        } else {
          QUIET("Probe", bytes, MPI_Probe(peer, 2, MPI_COMM_WORLD, &status));
          QUIET("Recv", bytes,
                MPI_Recv(in, n, MPI_BYTE, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status));
          QUIET("Ssend", bytes, MPI_Ssend(out, n, MPI_BYTE, peer, 3, MPI_COMM_WORLD));
        }
        break;
      default:
        QUIET("Irecv", bytes, MPI_Irecv(in, n, MPI_BYTE, odt.rank, 4, MPI_COMM_WORLD, requests));
        QUIET("Send to self", bytes, MPI_Send(out, n, MPI_BYTE, odt.rank, 4, MPI_COMM_WORLD));
        while (!flag) QUIET("Test", bytes, MPI_Test(requests, &flag, &status));
    }
    CHECK(memcmp(in, out, (size_t)bytes / 8 * 8) == 0, "%ld bytes, round %d", bytes, round);
    check_flags("the comparison", bytes, FE_ALL_EXCEPT);
  }
}

static void collectives(MPI_Comm comm, long bytes) {
  const int n = (int)(bytes / 8 / odt.size);
  const int all = n * odt.size;
  MPI_Request request;
  double* values = (double*)in;
  fill(bytes, 77);
  for (int round = 0; round < 3; round++) {
    QUIET("Barrier", bytes, MPI_Barrier(comm));
    QUIET("Bcast", bytes, MPI_Bcast(out, all, MPI_DOUBLE, round % odt.size, comm));
    QUIET("Gather", bytes, MPI_Gather(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, 0, comm));
    QUIET("Scatter", bytes, MPI_Scatter(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, 0, comm));
    QUIET("Allgather", bytes, MPI_Allgather(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, comm));
    QUIET("Alltoall", bytes, MPI_Alltoall(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, comm));
    QUIET("Allreduce of integers", bytes, MPI_Allreduce(out, in, all, MPI_LONG, MPI_BXOR, comm));
    QUIET("Ibarrier", bytes, MPI_Ibarrier(comm, &request));
    QUIET("Wait", bytes, MPI_Wait(&request, MPI_STATUS_IGNORE));
    // Numbers whose sums are exact.
    double* mine = odt_memory((size_t)all * sizeof *mine + 8);
    float* floats = odt_memory((size_t)all * sizeof *floats + 8);
    for (int i = 0; i < all; i++) {
      mine[i] = i % 100;
      floats[i] = (float)(i % 10);
    }
    feclearexcept(FE_ALL_EXCEPT);
    QUIET("Allreduce", bytes, MPI_Allreduce(mine, values, all, MPI_DOUBLE, MPI_SUM, comm));
    QUIET("Reduce", bytes, MPI_Reduce(mine, values, all, MPI_DOUBLE, MPI_MAX, 0, comm));
    QUIET("Reduce of floats", bytes, MPI_Reduce(floats, in, all, MPI_FLOAT, MPI_SUM, 0, comm));
    QUIET("Scan", bytes, MPI_Scan(mine, values, all, MPI_DOUBLE, MPI_SUM, comm));
    QUIET("Reduce_scatter_block", bytes,
          MPI_Reduce_scatter_block(mine, values, n, MPI_DOUBLE, MPI_PROD, comm));
    QUIET("Iallreduce", bytes, MPI_Iallreduce(floats, in, all, MPI_FLOAT, MPI_MIN, comm, &request));
    QUIET("Wait", bytes, MPI_Wait(&request, MPI_STATUS_IGNORE));
    free(mine);
    free(floats);
  }
}

// Handles that come and go: tables of every size.
static void handles(void) {
  enum { kTypes = 300, kComms = 40 };
  static MPI_Datatype types[kTypes];
  MPI_Comm comms[kComms];
  for (int i = 0; i < kTypes; i++) {
    QUIET("Type_vector", i, MPI_Type_vector(3, 1, 2 + i, MPI_DOUBLE, types + i));
    QUIET("Type_commit", i, MPI_Type_commit(types + i));
    QUIET("Sendrecv of a type", i,
          MPI_Sendrecv(out, 1, types[i], odt.rank, 0, in, 1, types[i], odt.rank, 0, MPI_COMM_WORLD,
                       MPI_STATUS_IGNORE));
  }
  for (int i = 0; i < kTypes; i++) QUIET("Type_free", i, MPI_Type_free(types + i));
  for (int i = 0; i < kComms; i++) {
    QUIET("Comm_split", i, MPI_Comm_split(MPI_COMM_WORLD, 0, odt.rank, comms + i));
    QUIET("Barrier", i, MPI_Barrier(comms[i]));
  }
  for (int i = 0; i < kComms; i++) QUIET("Comm_free", i, MPI_Comm_free(comms + i));
}

int main(int argc, char** argv) {
  odt_start("floats", &argc, &argv);
  // Hosts compute while they start, and when two ranks meet for the first time.
  int meet = odt.rank, met;
  MUST(MPI_Sendrecv(&meet, 1, MPI_INT, odt.rank ^ 1, 0, &met, 1, MPI_INT, odt.rank ^ 1, 0,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  feclearexcept(FE_ALL_EXCEPT);
  if (odt_number("trap", 0)) feenableexcept(FE_ALL_EXCEPT);
  out = odt_memory(kMost);
  in = odt_memory(kMost);
  for (long bytes = 8; bytes <= kMost; bytes *= 4) messages(bytes);
  for (long bytes = 64; bytes <= kMost; bytes *= 8) collectives(MPI_COMM_WORLD, bytes);
  handles();
  CHECK(fegetround() == FE_TONEAREST, "rounding");
  if (odt_number("trap", 0)) CHECK(fegetexcept() == FE_ALL_EXCEPT, "the mask is another one");
  free(out);
  free(in);
  return odt_finish();
}
