// The large-count forms of all point-to-point functions, with small data: they must behave as the
// ordinary ones do, also mixed with them on the two sides of one message.
#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("large_count", &argc, &argv);
#if MPI_VERSION >= 4
  enum { kBytes = 30000, kForms = 9 };
  const int peer = odt.rank ^ 1;
  char* out = odt_memory(kBytes);
  char* in = odt_memory(kBytes);
  char* space = odt_memory(2 * kBytes + MPI_BSEND_OVERHEAD);
  MUST(MPI_Buffer_attach(space, 2 * kBytes + MPI_BSEND_OVERHEAD));
  for (int form = 0; peer < odt.size && form < kForms; form++) {
    MPI_Request request = MPI_REQUEST_NULL, other;
    MPI_Status status;
    MPI_Message message;
    MPI_Count count = -1;
    odt_fill(out, kBytes, odt_key(odt.rank, peer, 1, form));
    memset(in, 0, kBytes);
    MUST(MPI_Irecv_c(in, kBytes, MPI_BYTE, form % 2 ? peer : MPI_ANY_SOURCE, form, MPI_COMM_WORLD,
                     &other));
    MUST(MPI_Sendrecv_c(NULL, 0, MPI_BYTE, peer, 99, NULL, 0, MPI_BYTE, peer, 99, MPI_COMM_WORLD,
                        &status));
    switch (form) {
      case 0:
        MUST(MPI_Send_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD));
        break;
      case 1:
        MUST(MPI_Isend_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD, &request));
        break;
      case 2:
        MUST(MPI_Ssend_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD));
        break;
      case 3:
        MUST(MPI_Issend_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD, &request));
        break;
      case 4:
        MUST(MPI_Rsend_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD));
        break;
      case 5:
        MUST(MPI_Irsend_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD, &request));
        break;
      case 6:
        MUST(MPI_Bsend_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD));
        break;
      case 7:
        MUST(MPI_Ibsend_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD, &request));
        break;
      default:
        MUST(MPI_Send_init_c(out, kBytes, MPI_BYTE, peer, form, MPI_COMM_WORLD, &request));
        MUST(MPI_Start(&request));
    }
    MUST(MPI_Wait(&other, &status));
    MUST(MPI_Get_count_c(&status, MPI_BYTE, &count));
    CHECK(count == kBytes && status.MPI_SOURCE == peer && status.MPI_TAG == form,
          "form %d: %lld bytes from %d tag %d", form, (long long)count, status.MPI_SOURCE,
          status.MPI_TAG);
    CHECK_DATA(in, kBytes, odt_key(peer, odt.rank, 1, form));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (form == 8) MUST(MPI_Request_free(&request));
    // An ordinary send meets a matched receive of the large-count kind.
    MUST(MPI_Isend(out, kBytes, MPI_BYTE, peer, 50, MPI_COMM_WORLD, &request));
    MUST(MPI_Mprobe(peer, 50, MPI_COMM_WORLD, &message, &status));
    memset(in, 0, kBytes);
    if (form % 2) {
      MUST(MPI_Mrecv_c(in, kBytes, MPI_BYTE, &message, &status));
    } else {
      MUST(MPI_Imrecv_c(in, kBytes, MPI_BYTE, &message, &other));
      MUST(MPI_Wait(&other, &status));
    }
    CHECK_DATA(in, kBytes, odt_key(peer, odt.rank, 1, form));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MUST(MPI_Recv_init_c(in, kBytes, MPI_BYTE, peer, 52, MPI_COMM_WORLD, &other));
    MUST(MPI_Start(&other));
    MUST(MPI_Send(out, kBytes, MPI_BYTE, peer, 52, MPI_COMM_WORLD));
    MUST(MPI_Wait(&other, &status));
    CHECK_DATA(in, kBytes, odt_key(peer, odt.rank, 1, form));
    MUST(MPI_Request_free(&other));
    MUST(
        MPI_Sendrecv_replace_c(out, kBytes, MPI_BYTE, peer, 51, peer, 51, MPI_COMM_WORLD, &status));
    CHECK_DATA(out, kBytes, odt_key(peer, odt.rank, 1, form));
  }
  void* returned;
  int bytes;
  MUST(MPI_Buffer_detach(&returned, &bytes));
  free(space);
  free(in);
  free(out);
#else
  CHECK(1, "this MPI has no large-count functions");
  if (odt.rank == 0) printf("SKIP this host has no large-count functions\n");
#endif
  return odt_finish();
}
