// No send needs its sender, and no receive its receiver, to come back: one rank starts a message
// and goes into a call that the host MPI blocks in, which ends only when the other rank, which
// waits for the message first, has come too. Legal in MPI whatever the size; each case has a time
// limit.
//
// Cases, by who waits where (C is the call):
//   isend        0: Isend, C, Wait        1: Recv, C
//   issend       0: Issend, C, Wait       1: Recv, C
//   irecv        0: Send, C               1: Irecv, C, Wait
//   irecv-ssend  0: Ssend, C              1: Irecv, C, Wait
//   both         0: Isend, C, Wait        1: Irecv, C, Wait
//   bsend        0: Bsend, C              1: Recv, C
//   free         0: Isend, Request_free, C   1: Recv, C
//   start        0: Start of a persistent send, C, Wait   1: Recv, C
#include <signal.h>

#include "odtest.h"

static MPI_Comm extra;
static MPI_Win window;
static int window_memory[16];
static MPI_Group world_group;
static const char* path;

typedef struct {
  const char* name;
  void (*body)(void);
} Call;

static void call_barrier(void) { MUST(MPI_Barrier(MPI_COMM_WORLD)); }
static void call_bcast(void) {
  static int data[1000];
  // Both roots: a root's broadcast alone may end without the others.
  MUST(MPI_Bcast(data, 1000, MPI_INT, 0, MPI_COMM_WORLD));
  MUST(MPI_Bcast(data, 1000, MPI_INT, 1, MPI_COMM_WORLD));
}
static void call_allreduce(void) {
  double in = 1, out = 0;
  MUST(MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
  CHECK(out == odt.size, "sum %g", out);
}
static void call_alltoall(void) {
  int in[64] = {0}, out[64];
  MUST(MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD));
}
static void call_gather_scan(void) {
  int in = 1, out[64];
  MUST(MPI_Allgather(&in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD));
  MUST(MPI_Reduce_scatter_block(out, &in, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
}
static void call_ibarrier(void) {
  MPI_Request request;
  MUST(MPI_Ibarrier(MPI_COMM_WORLD, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
}
static void call_dup(void) {
  MPI_Comm comm;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MUST(MPI_Comm_free(&comm));
}
static void call_split(void) {
  MPI_Comm comm;
  MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, odt.rank, &comm));
  MUST(MPI_Comm_free(&comm));
}
static void call_create(void) {
  MPI_Comm comm;
  MUST(MPI_Comm_create(MPI_COMM_WORLD, world_group, &comm));
  MUST(MPI_Comm_free(&comm));
}
static void call_create_group(void) {
  MPI_Comm comm;
  MUST(MPI_Comm_create_group(MPI_COMM_WORLD, world_group, 5, &comm));
  MUST(MPI_Comm_disconnect(&comm));
}
static void call_cart(void) {
  MPI_Comm comm;
  int dims[1] = {odt.size}, periods[1] = {0};
  MUST(MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &comm));
  MUST(MPI_Comm_free(&comm));
}
static void call_intercomm(void) {
  MPI_Comm inter, merged;
  MUST(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1 - odt.rank, 9, &inter));
  MUST(MPI_Intercomm_merge(inter, odt.rank, &merged));
  MUST(MPI_Comm_free(&merged));
  MUST(MPI_Comm_free(&inter));
}
static void call_win_create(void) {
  MPI_Win other;
  MUST(MPI_Win_create(window_memory, sizeof window_memory, 4, MPI_INFO_NULL, MPI_COMM_WORLD,
                      &other));
  MUST(MPI_Win_free(&other));
}
static void call_fence(void) {
  MUST(MPI_Win_fence(0, window));
  MUST(MPI_Win_fence(0, window));
}
static void call_post_start(void) {
  MPI_Group peer;
  int rank = 1 - odt.rank;
  MUST(MPI_Group_incl(world_group, 1, &rank, &peer));
  MUST(MPI_Win_post(peer, 0, window));
  MUST(MPI_Win_start(peer, 0, window));
  MUST(MPI_Win_complete(window));
  MUST(MPI_Win_wait(window));
  MUST(MPI_Group_free(&peer));
}
static void call_file(void) {
  MPI_File file;
  char text[8] = "content";
  MUST(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  MUST(MPI_File_write_at_all(file, 8 * odt.rank, text, 8, MPI_CHAR, MPI_STATUS_IGNORE));
  MUST(MPI_File_close(&file));
}

static const Call kCalls[] = {
    {"Barrier", call_barrier},
    {"Bcast", call_bcast},
    {"Allreduce", call_allreduce},
    {"Alltoall", call_alltoall},
    {"Allgather,Reduce_scatter_block", call_gather_scan},
    {"Ibarrier,Wait", call_ibarrier},
    {"Comm_dup", call_dup},
    {"Comm_split", call_split},
    {"Comm_create", call_create},
    {"Comm_create_group,Comm_disconnect", call_create_group},
    {"Cart_create", call_cart},
    {"Intercomm_create,Intercomm_merge", call_intercomm},
    {"Win_create,Win_free", call_win_create},
    {"Win_fence", call_fence},
    {"Win_post,start,complete,wait", call_post_start},
    {"File_open,write_at_all,close", call_file},
};
enum { kCalls_count = sizeof kCalls / sizeof kCalls[0] };

static const char* const kCases[] = {"isend", "issend", "irecv", "irecv-ssend",
                                     "both",  "bsend",  "free",  "start"};
enum { kCase_count = sizeof kCases / sizeof kCases[0] };

static const long kSizes[] = {1, 1000, 40000, 65537, 300000, 4 << 20, 16 << 20};

static const char* now_case = "";
static const char* now_call = "";
static long now_bytes;

static void too_long(int signal_number) {
  (void)signal_number;
  char text[256];
  int length =
      snprintf(text, sizeof text, "FAIL host_blocking rank %d: stuck in case %s, %ld bytes, %s\n",
               odt.rank, now_case, now_bytes, now_call);
  if (write(2, text, (size_t)length) < 0) _exit(4);
  abort();
}

static void one(int kind, long bytes, const Call* call, int number, char* buffer) {
  MPI_Request request = MPI_REQUEST_NULL;
  const uint64_t key = odt_key(0, 1, kind, number);
  const int tag = number % 30000;
  static char* space;
  const int room = (16 << 20) + 2 * MPI_BSEND_OVERHEAD;
  now_case = kCases[kind];
  now_call = call->name;
  now_bytes = bytes;
  alarm((unsigned)odt_number("limit", 50));
  if (odt.rank == 0) {
    odt_fill(buffer, (size_t)bytes, key);
    switch (kind) {
      case 0:
      case 4:
        MUST(MPI_Isend(buffer, (int)bytes, MPI_BYTE, 1, tag, extra, &request));
        break;
      case 1:
        MUST(MPI_Issend(buffer, (int)bytes, MPI_BYTE, 1, tag, extra, &request));
        break;
      case 2:
        MUST(MPI_Send(buffer, (int)bytes, MPI_BYTE, 1, tag, extra));
        break;
      case 3:
        MUST(MPI_Ssend(buffer, (int)bytes, MPI_BYTE, 1, tag, extra));
        break;
      case 5:
        if (space == NULL) space = odt_memory((size_t)room);
        MUST(MPI_Buffer_attach(space, room));
        MUST(MPI_Bsend(buffer, (int)bytes, MPI_BYTE, 1, tag, extra));
        break;
      case 6:
        MUST(MPI_Isend(buffer, (int)bytes, MPI_BYTE, 1, tag, extra, &request));
        MUST(MPI_Request_free(&request));
        break;
      default:
        MUST(MPI_Send_init(buffer, (int)bytes, MPI_BYTE, 1, tag, extra, &request));
        MUST(MPI_Start(&request));
    }
    call->body();
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (kind == 5) {
      void* returned;
      int returned_bytes;
      MUST(MPI_Buffer_detach(&returned, &returned_bytes));
    }
    if (kind == 7) MUST(MPI_Request_free(&request));
  } else {
    memset(buffer, 0, (size_t)bytes);
    if (kind == 2 || kind == 3 || kind == 4) {
      MUST(MPI_Irecv(buffer, (int)bytes, MPI_BYTE, number % 2 ? 0 : MPI_ANY_SOURCE, tag, extra,
                     &request));
      // Let the sender be the first in half of the cases.
      if (number % 2) usleep(300);
      call->body();
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      MUST(MPI_Recv(buffer, (int)bytes, MPI_BYTE, number % 2 ? 0 : MPI_ANY_SOURCE, tag, extra,
                    MPI_STATUS_IGNORE));
      call->body();
    }
    CHECK_DATA(buffer, bytes, key);
  }
  alarm(0);
}

// The end of the program is such a call as well.
static int finalize_with_pending(const char* kind, long bytes, char* buffer) {
  MPI_Request request;
  now_case = kind;
  now_call = "Finalize";
  now_bytes = bytes;
  alarm((unsigned)odt_number("limit", 50));
  long wrong = -1;
  if (odt.rank == 0) {
    odt_fill(buffer, (size_t)bytes, odt_key(0, 1, 1, 1));
    if (strcmp(kind, "bsend") == 0) {
      int room = (int)bytes + MPI_BSEND_OVERHEAD;
      MUST(MPI_Buffer_attach(odt_memory((size_t)room), room));
      MUST(MPI_Bsend(buffer, (int)bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD));
    } else {
      MUST(MPI_Isend(buffer, (int)bytes, MPI_BYTE, 1, 3, MPI_COMM_WORLD, &request));
      MUST(MPI_Request_free(&request));
    }
  } else {
    odt_sleep_ms(100);
    MUST(MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    wrong = odt_mismatch(buffer, (size_t)bytes, odt_key(0, 1, 1, 1));
    CHECK(wrong < 0, "wrong data at byte %ld of %ld", wrong, bytes);
  }
  MPI_Finalize();
  alarm(0);
  if (odt.rank == 1 && wrong < 0)
    printf("PASS host_blocking: Finalize after %s of %ld bytes\n", kind, bytes);
  return wrong < 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  odt_start("host_blocking", &argc, &argv);
  char* buffer = odt_memory(16 << 20);
  signal(SIGALRM, too_long);
  path = odt_option("file", "/tmp/overdrive-test-file");
  const char* finalize = odt_option("finalize", NULL);
  if (finalize != NULL) return finalize_with_pending(finalize, odt_number("bytes", 1000), buffer);
  const char* only_case = odt_option("case", NULL);
  const char* only_call = odt_option("call", NULL);
  const long largest = odt_number("largest", 16 << 20);
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &extra));
  MUST(MPI_Comm_group(MPI_COMM_WORLD, &world_group));
  MUST(MPI_Win_create(window_memory, sizeof window_memory, 4, MPI_INFO_NULL, MPI_COMM_WORLD,
                      &window));
  int number = 0;
  for (int kind = 0; kind < kCase_count; kind++) {
    if (only_case != NULL && strcmp(only_case, kCases[kind]) != 0) continue;
    for (int i = 0; i < (int)(sizeof kSizes / sizeof kSizes[0]); i++) {
      if (kSizes[i] > largest) continue;
      for (int call = 0; call < kCalls_count; call++) {
        if (only_call != NULL && strstr(kCalls[call].name, only_call) == NULL) continue;
        one(kind, kSizes[i], &kCalls[call], number++, buffer);
      }
    }
  }
  MUST(MPI_Win_free(&window));
  MUST(MPI_Group_free(&world_group));
  MUST(MPI_Comm_free(&extra));
  free(buffer);
  return odt_finish();
}
