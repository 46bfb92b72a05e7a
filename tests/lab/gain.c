// All-to-alls over slow links. After those of one size nothing touches the data for as long as they
// take; those of another size are looked at once. The first gain by overlap, the others cannot.
//
//   --calls=N  of each size (20)
#include "odtest.h"

enum { kGaining = 192 << 10, kIdle = 128 << 10, kPauseUs = 16000 };

static unsigned char value(int from, int to, long call) {
  return (unsigned char)(from * 31 + to * 57 + call * 13 + 1);
}

static void exchange(char* send, char* receive, int bytes, long call, int pause_us) {
  for (int to = 0; to < odt.size; to++) {
    memset(send + (long)to * bytes, value(odt.rank, to, call), (size_t)bytes);
  }
  MUST(MPI_Alltoall(send, bytes, MPI_BYTE, receive, bytes, MPI_BYTE, MPI_COMM_WORLD));
  if (pause_us != 0) usleep((useconds_t)pause_us);
  for (int from = 0; from < odt.size; from++) {
    const char* block = receive + (long)from * bytes;
    long at = 0;
    while (at < bytes && (unsigned char)block[at] == value(from, odt.rank, call)) at++;
    CHECK(at == bytes, "call %ld, block from %d differs at %ld", call, from, at);
  }
}

int main(int argc, char** argv) {
  odt_start("gain", &argc, &argv);
  const long calls = odt_number("calls", 20);
  char* send = malloc((size_t)odt.size * kGaining);
  char* receive = malloc((size_t)odt.size * kGaining);
  for (long call = 0; call < calls; call++) {
    exchange(send, receive, kGaining, call, kPauseUs);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    exchange(send, receive, kIdle, call, 0);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
  free(send);
  free(receive);
  return odt_finish();
}
