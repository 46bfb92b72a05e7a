// Receives from any source into more room than an int can count in bytes, of messages from a rank
// of the same node (1) and of another one (2). The messages are short, so the room takes no memory.
#include <sys/mman.h>

#include "odtest.h"

enum { kMiB = 1 << 20, kRoomMiB = 3000, kBytes = 5000, kForms = 3, kRounds = 4 };

static MPI_Datatype block;
static char* room;

static void receive(int form, int tag) {
  MPI_Status status;
  MPI_Request request;
  MPI_Message message;
  MPI_Count bytes = -1;
  memset(room, 0, kBytes);
  if (form == 0) {
    MUST(MPI_Recv(room, kRoomMiB, block, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &status));
  } else if (form == 1) {
    MUST(MPI_Irecv(room, kRoomMiB, block, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, &status));
  } else {
    MUST(MPI_Mprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &message, &status));
    MUST(MPI_Mrecv(room, kRoomMiB, block, &message, &status));
  }
  MUST(MPI_Get_elements_x(&status, MPI_BYTE, &bytes));
  CHECK(bytes == kBytes, "form %d: %lld bytes", form, (long long)bytes);
  CHECK_DATA(room, kBytes, odt_key(status.MPI_SOURCE, 0, tag, form));
}

int main(int argc, char** argv) {
  odt_start("wide_receives", &argc, &argv);
  char out[kBytes];
  MPI_Request sent;
  MUST(MPI_Type_contiguous(kMiB, MPI_BYTE, &block));
  MUST(MPI_Type_commit(&block));
  room = mmap(NULL, (size_t)kRoomMiB * kMiB, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(room != MAP_FAILED, "no room of %d MiB", kRoomMiB);
  for (int round = 0; round < kRounds; round++) {
    for (int form = 0; form < kForms; form++) {
      const int tag = round * kForms + form;
      // In every other round messages are there before they are asked for.
      if (odt.rank == 0 && round % 2 == 1) MUST(MPI_Barrier(MPI_COMM_WORLD));
      for (int i = 1; odt.rank == 0 && i < odt.size; i++) receive(form, tag);
      if (odt.rank != 0) {
        odt_fill(out, kBytes, odt_key(odt.rank, 0, tag, form));
        MUST(MPI_Isend(out, kBytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, &sent));
        // The host may carry it only once it is asked for.
        if (round % 2 == 1) MUST(MPI_Barrier(MPI_COMM_WORLD));
        MUST(MPI_Wait(&sent, MPI_STATUS_IGNORE));
      }
      if (round % 2 == 0) MUST(MPI_Barrier(MPI_COMM_WORLD));
    }
  }
  MUST(MPI_Type_free(&block));
  return odt_finish();
}
