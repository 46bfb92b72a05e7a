// Requests that are pending while a rank sits in a call of the host that needs all others: receives
// that a neighbour or another node may serve, persistent receives from other nodes among them,
// collectives that only the host can compute with. Each rank does something legal whatever the
// implementation; nobody may wait for ever, and who gets which message is fixed.
//
// Four ranks, of which the last is on another node (by OVERDRIVE_TEST_REMOTE, or because it is).
// --only=TEXT runs the cases whose name contains it.
#include <signal.h>

#include "odtest.h"

enum { kNear = 1, kFar = 3, kLong = 300000 };

static const char* only;
static const char* path;
static char now_case[200] = "start";

static void too_long(int signal_number) {
  (void)signal_number;
  char text[300];
  const int length =
      snprintf(text, sizeof text, "FAIL host_pending rank %d: stuck in %s\n", odt.rank, now_case);
  if (write(2, text, (size_t)length) < 0) _exit(4);
  abort();
}

static int begins(const char* name, const char* detail) {
  snprintf(now_case, sizeof now_case, "%s %s", name, detail);
  if (only != NULL && strstr(now_case, only) == NULL) return 0;
  alarm((unsigned)odt_number("limit", 30));
  return 1;
}

// A communicator on which nothing has happened yet, so that its first collective does what a first
// collective has to do.
static MPI_Comm fresh(void) {
  MPI_Comm comm;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  return comm;
}

// --- calls that the host blocks in
// -----------------------------------------------------------------

static void call_barrier(MPI_Comm comm) { MUST(MPI_Barrier(comm)); }
static void call_ibarrier(MPI_Comm comm) {
  MPI_Request request;
  MUST(MPI_Ibarrier(comm, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
}
static void call_allreduce(MPI_Comm comm) {
  double in = 1, out = 0;
  MUST(MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, comm));
  CHECK(out == odt.size, "sum %g", out);
}
static void call_dup(MPI_Comm comm) {
  MPI_Comm made;
  MUST(MPI_Comm_dup(comm, &made));
  MUST(MPI_Comm_free(&made));
}
static void call_idup(MPI_Comm comm) {
  MPI_Comm made;
  MPI_Request request;
  MUST(MPI_Comm_idup(comm, &made, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  MUST(MPI_Comm_free(&made));
}
static void call_split(MPI_Comm comm) {
  MPI_Comm made;
  MUST(MPI_Comm_split(comm, odt.rank % 2, odt.rank, &made));
  MUST(MPI_Barrier(made));
  MUST(MPI_Comm_disconnect(&made));
}
static void call_cart(MPI_Comm comm) {
  MPI_Comm made;
  int dims[2] = {2, 2}, periods[2] = {1, 1}, in = odt.rank, out[4];
  MUST(MPI_Cart_create(comm, 2, dims, periods, 0, &made));
  MUST(MPI_Neighbor_allgather(&in, 1, MPI_INT, out, 1, MPI_INT, made));
  MUST(MPI_Comm_free(&made));
}
static void call_intercomm(MPI_Comm comm) {
  MPI_Comm half, inter, merged;
  MUST(MPI_Comm_split(comm, odt.rank / 2, odt.rank, &half));
  MUST(MPI_Intercomm_create(half, 0, comm, odt.rank < 2 ? 2 : 0, 9, &inter));
  MUST(MPI_Barrier(inter));
  MUST(MPI_Intercomm_merge(inter, odt.rank / 2, &merged));
  MUST(MPI_Comm_free(&merged));
  MUST(MPI_Comm_free(&inter));
  MUST(MPI_Comm_free(&half));
}
static void call_window(MPI_Comm comm) {
  MPI_Win window;
  int memory[4] = {0}, value = odt.rank;
  MUST(MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, comm, &window));
  MUST(MPI_Win_fence(0, window));
  MUST(MPI_Put(&value, 1, MPI_INT, (odt.rank + 1) % odt.size, 0, 1, MPI_INT, window));
  MUST(MPI_Win_fence(0, window));
  CHECK(memory[0] == (odt.rank + odt.size - 1) % odt.size, "value %d", memory[0]);
  MUST(MPI_Win_free(&window));
}
static void call_file(MPI_Comm comm) {
  MPI_File file;
  char text[8] = "content";
  MUST(MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  MUST(MPI_File_write_at_all(file, 8 * odt.rank, text, 8, MPI_CHAR, MPI_STATUS_IGNORE));
  MUST(MPI_File_close(&file));
}

typedef struct {
  const char* name;
  void (*body)(MPI_Comm comm);
} Call;

static const Call kCalls[] = {
    {"Barrier", call_barrier},
    {"Ibarrier,Wait", call_ibarrier},
    {"Allreduce", call_allreduce},
    {"Comm_dup", call_dup},
    {"Comm_idup,Wait", call_idup},
    {"Comm_split", call_split},
    {"Cart_create,Neighbor_allgather", call_cart},
    {"Intercomm_create", call_intercomm},
    {"Win_create,fence", call_window},
    {"File_open", call_file},
};
enum { kCallCount = sizeof kCalls / sizeof kCalls[0] };

// --- receives from any source that are pending in such calls
// ---------------------------------------

// How the messages of a case are received and by whom they are sent: synchronously, so that the
// senders come to the call only when all their messages are matched there.
typedef struct {
  const char* name;
  int from_near, from_far;  // messages of each sender, with tags 0, 1, ...
  int vector;               // into memory with gaps
  int bytes;
} Pending;

static const Pending kPending[] = {
    {"far", 0, 1, 0, 40},          {"far long", 0, 1, 0, kLong}, {"near", 1, 0, 0, 40},
    {"near long", 1, 0, 0, kLong}, {"both", 2, 2, 0, kLong},     {"both with gaps", 2, 2, 1, 3000},
};
enum { kPendingCount = sizeof kPending / sizeof kPending[0] };

static void send_all(int from, int count, int bytes, char* buffer, MPI_Comm comm) {
  for (int tag = 0; tag < count; tag++) {
    odt_fill(buffer, (size_t)bytes, odt_key(from, 0, tag, bytes));
    MUST(MPI_Ssend(buffer, bytes, MPI_BYTE, 0, tag, comm));
  }
}

static void wildcards_during(const Pending* pending, const Call* call, char* buffer) {
  if (!begins(pending->name, call->name)) return;
  MPI_Comm comm = fresh();
  const int total = pending->from_near + pending->from_far;
  const int step = pending->bytes / 10;
  if (odt.rank == 0) {
    MPI_Request requests[8];
    MPI_Status statuses[8];
    MPI_Datatype type;
    MUST(MPI_Type_vector(10, step, 2 * step, MPI_BYTE, &type));
    MUST(MPI_Type_commit(&type));
    char* packed = odt_memory(kLong);
    for (int i = 0; i < total; i++) {
      MUST(MPI_Irecv(buffer + 2 * kLong * i, pending->vector ? 1 : pending->bytes,
                     pending->vector ? type : MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm,
                     &requests[i]));
    }
    call->body(comm);
    MUST(MPI_Waitall(total, requests, statuses));
    int next[4] = {0};
    for (int i = 0; i < total; i++) {
      const int source = statuses[i].MPI_SOURCE;
      CHECK(source == kNear || source == kFar, "source %d", source);
      // Messages of one sender come in order.
      CHECK(statuses[i].MPI_TAG == next[source], "tag %d, not %d, from %d", statuses[i].MPI_TAG,
            next[source], source);
      const char* data = buffer + 2 * kLong * i;
      if (pending->vector) {
        for (int k = 0; k < 10; k++) memcpy(packed + k * step, data + 2 * k * step, (size_t)step);
        data = packed;
      }
      CHECK_DATA(data, pending->bytes, odt_key(source, 0, next[source], pending->bytes));
      next[source]++;
    }
    free(packed);
    MUST(MPI_Type_free(&type));
  } else {
    if (odt.rank == kNear) send_all(kNear, pending->from_near, pending->bytes, buffer, comm);
    if (odt.rank == kFar) send_all(kFar, pending->from_far, pending->bytes, buffer, comm);
    call->body(comm);
  }
  MUST(MPI_Comm_free(&comm));
}

// Receives that are older and younger, narrower and wider than each other: each message has one
// receive that it must go to.
static void order_during(const Call* call) {
  if (!begins("order", call->name)) return;
  MPI_Comm comm = fresh();
  int value[6] = {0};
  if (odt.rank == 0) {
    MPI_Request r[6];
    MUST(MPI_Irecv(&value[0], 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &r[0]));
    MUST(MPI_Irecv(&value[1], 1, MPI_INT, kFar, MPI_ANY_TAG, comm, &r[1]));
    MUST(MPI_Irecv(&value[2], 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, &r[2]));
    MUST(MPI_Irecv(&value[3], 1, MPI_INT, kNear, MPI_ANY_TAG, comm, &r[3]));
    MUST(MPI_Irecv(&value[4], 1, MPI_INT, MPI_ANY_SOURCE, 3, comm, &r[4]));
    call->body(comm);
    // The last sends nothing with tag 3 yet.
    MUST(MPI_Waitall(4, r, MPI_STATUSES_IGNORE));
    int flag = 1;
    MUST(MPI_Test(&r[4], &flag, MPI_STATUS_IGNORE));
    CHECK(!flag, "the receive got %d", value[4]);
    MUST(MPI_Irecv(&value[5], 1, MPI_INT, MPI_ANY_SOURCE, 3, comm, &r[5]));
    MUST(MPI_Barrier(comm));
    MUST(MPI_Waitall(2, r + 4, MPI_STATUSES_IGNORE));
    // kFar sent 32, 31, 33 with tags 2, 1, 3; kNear 11, 12 with tags 1, 2 and 13 with tag 3.
    CHECK(value[1] == 32, "from the other node: %d", value[1]);
    CHECK((value[0] == 31 && value[2] == 11) || (value[0] == 11 && value[2] == 31),
          "by tag: %d and %d", value[0], value[2]);
    CHECK(value[3] == 12, "from the neighbour: %d", value[3]);
    CHECK(value[4] + value[5] == 46, "at the end: %d and %d", value[4], value[5]);
  } else if (odt.rank == kFar) {
    const int first[3] = {32, 31, 33};
    MUST(MPI_Ssend(&first[0], 1, MPI_INT, 0, 2, comm));
    MUST(MPI_Ssend(&first[1], 1, MPI_INT, 0, 1, comm));
    call->body(comm);
    MUST(MPI_Barrier(comm));
    MUST(MPI_Ssend(&first[2], 1, MPI_INT, 0, 3, comm));
  } else if (odt.rank == kNear) {
    const int first[3] = {11, 12, 13};
    MUST(MPI_Ssend(&first[0], 1, MPI_INT, 0, 1, comm));
    MUST(MPI_Ssend(&first[1], 1, MPI_INT, 0, 2, comm));
    call->body(comm);
    MUST(MPI_Barrier(comm));
    MUST(MPI_Ssend(&first[2], 1, MPI_INT, 0, 3, comm));
  } else {
    call->body(comm);
    MUST(MPI_Barrier(comm));
  }
  MUST(MPI_Comm_free(&comm));
}

// A receive that gets nothing during the call can be cancelled, matched, or probed past afterwards.
static void unmatched_during(const Call* call) {
  if (!begins("unmatched", call->name)) return;
  MPI_Comm comm = fresh();
  int value[3] = {0, 0, 0};
  const int mine = 10 * odt.rank;
  MPI_Status status;
  if (odt.rank == 0) {
    MPI_Request r[3];
    int cancelled = 0;
    for (int i = 0; i < 3; i++) {
      MUST(MPI_Irecv(&value[i], 1, MPI_INT, MPI_ANY_SOURCE, i, comm, &r[i]));
    }
    call->body(comm);
    MUST(MPI_Cancel(&r[0]));
    MUST(MPI_Wait(&r[0], &status));
    MUST(MPI_Test_cancelled(&status, &cancelled));
    CHECK(cancelled, "the receive was not cancelled, it got %d", value[0]);
    MUST(MPI_Barrier(comm));
    MUST(MPI_Waitall(2, r + 1, MPI_STATUSES_IGNORE));
    CHECK(value[1] == 10 && value[2] == 30, "values %d %d", value[1], value[2]);
    MUST(MPI_Probe(MPI_ANY_SOURCE, 0, comm, &status));
    MUST(MPI_Recv(&value[0], 1, MPI_INT, status.MPI_SOURCE, 0, comm, MPI_STATUS_IGNORE));
    CHECK(value[0] == 30, "value %d", value[0]);
  } else {
    call->body(comm);
    MUST(MPI_Barrier(comm));
    if (odt.rank == kNear) MUST(MPI_Send(&mine, 1, MPI_INT, 0, 1, comm));
    if (odt.rank == kFar) {
      MUST(MPI_Send(&mine, 1, MPI_INT, 0, 2, comm));
      MUST(MPI_Send(&mine, 1, MPI_INT, 0, 0, comm));
    }
  }
  MUST(MPI_Comm_free(&comm));
}

// More synchronous messages than receives: the last one waits until it is asked for.
static void surplus_during(const Call* call) {
  if (!begins("surplus", call->name)) return;
  MPI_Comm comm = fresh();
  int value[3] = {0};
  const int mine = odt.rank;
  MPI_Request r = MPI_REQUEST_NULL;
  int flag = 1;
  if (odt.rank == 0) {
    MUST(MPI_Irecv(&value[0], 1, MPI_INT, MPI_ANY_SOURCE, 0, comm, &r));
    call->body(comm);
    MUST(MPI_Wait(&r, MPI_STATUS_IGNORE));
    MUST(MPI_Recv(&value[1], 1, MPI_INT, MPI_ANY_SOURCE, 0, comm, MPI_STATUS_IGNORE));
    MUST(MPI_Recv(&value[2], 1, MPI_INT, MPI_ANY_SOURCE, 0, comm, MPI_STATUS_IGNORE));
    CHECK(value[0] + value[1] + value[2] == 6, "values %d %d %d", value[0], value[1], value[2]);
  } else {
    MUST(MPI_Issend(&mine, 1, MPI_INT, 0, 0, comm, &r));
    call->body(comm);
    MUST(MPI_Test(&r, &flag, MPI_STATUS_IGNORE));
    if (!flag) MUST(MPI_Wait(&r, MPI_STATUS_IGNORE));
  }
  MUST(MPI_Comm_free(&comm));
}

// --- persistent receives from another node, between receives from any source
// -----------------------

static void persistent_order(void) {
  if (!begins("persistent", "order")) return;
  MPI_Comm comm = fresh();
  for (int round = 0; round < 3; round++) {
    if (odt.rank == 0) {
      int value[3] = {0};
      MPI_Request r[3];
      MPI_Status statuses[3];
      MUST(MPI_Recv_init(&value[1], 1, MPI_INT, kFar, 4, comm, &r[1]));
      MUST(MPI_Recv_init(&value[2], 1, MPI_INT, kFar, MPI_ANY_TAG, comm, &r[2]));
      if (round != 1) MUST(MPI_Irecv(&value[0], 1, MPI_INT, MPI_ANY_SOURCE, 4, comm, &r[0]));
      if (round == 1) MUST(MPI_Recv_init(&value[0], 1, MPI_INT, MPI_ANY_SOURCE, 4, comm, &r[0]));
      MUST(round == 1 ? MPI_Startall(3, r) : MPI_Startall(2, r + 1));
      MUST(MPI_Barrier(comm));
      int index, outcount, indices[3];
      if (round == 0) {
        MUST(MPI_Waitall(3, r, statuses));
      } else if (round == 1) {
        for (int i = 0; i < 3; i++) MUST(MPI_Waitany(3, r, &index, &statuses[i]));
      } else {
        for (int done = 0; done < 3; done += outcount) {
          MUST(MPI_Waitsome(3, r, &outcount, indices, statuses));
        }
      }
      for (int i = 0; i < 3; i++) {
        CHECK(value[i] == 100 * round + i, "receive %d got %d in round %d", i, value[i], round);
        if (r[i] != MPI_REQUEST_NULL) MUST(MPI_Request_free(&r[i]));
      }
    } else {
      MUST(MPI_Barrier(comm));
      for (int i = 0; odt.rank == kFar && i < 3; i++) {
        const int value = 100 * round + i;
        MUST(MPI_Send(&value, 1, MPI_INT, 0, 4, comm));
      }
    }
  }
  MUST(MPI_Comm_free(&comm));
}

// A probe has taken the message out of the host before the receive is started.
static void persistent_probe(void) {
  if (!begins("persistent", "probe")) return;
  MPI_Comm comm = fresh();
  if (odt.rank == 0) {
    int value[3] = {0}, flag = 0;
    MPI_Request r, other;
    MPI_Status status;
    MUST(MPI_Recv_init(&value[0], 1, MPI_INT, kFar, 4, comm, &r));
    while (!flag) MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
    CHECK(status.MPI_SOURCE == kFar && status.MPI_TAG == 4, "from %d", status.MPI_SOURCE);
    MUST(MPI_Start(&r));
    MUST(MPI_Irecv(&value[1], 1, MPI_INT, kFar, 4, comm, &other));
    MUST(MPI_Wait(&r, &status));
    CHECK(status.MPI_SOURCE == kFar && value[0] == 1, "value %d", value[0]);
    MUST(MPI_Wait(&other, MPI_STATUS_IGNORE));
    CHECK(value[1] == 2, "value %d", value[1]);
    // Inactive, active in the host, complete, cancelled: everything a request can be.
    MUST(MPI_Wait(&r, &status));
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE, "an inactive request has source %d",
          status.MPI_SOURCE);
    MUST(MPI_Start(&r));
    MUST(MPI_Test(&r, &flag, &status));
    CHECK(!flag, "complete without a message");
    MUST(MPI_Request_get_status(r, &flag, &status));
    CHECK(!flag, "complete without a message");
    MUST(MPI_Send(&flag, 1, MPI_INT, kFar, 5, comm));
    MUST(MPI_Wait(&r, &status));
    CHECK(value[0] == 3, "value %d", value[0]);
    MUST(MPI_Start(&r));
    MUST(MPI_Cancel(&r));
    MUST(MPI_Wait(&r, &status));
    MUST(MPI_Test_cancelled(&status, &flag));
    CHECK(flag, "not cancelled");
    MUST(MPI_Start(&r));
    MUST(MPI_Request_free(&r));
    CHECK(r == MPI_REQUEST_NULL, "a handle is left");
    MUST(MPI_Send(&flag, 1, MPI_INT, kFar, 5, comm));
    MUST(MPI_Recv(&value[2], 1, MPI_INT, kFar, 6, comm, MPI_STATUS_IGNORE));
    CHECK(value[0] == 4 && value[2] == 5, "values %d %d", value[0], value[2]);
  } else if (odt.rank == kFar) {
    int flag;
    for (int value = 1; value <= 5; value++) {
      if (value == 3 || value == 4) {
        MUST(MPI_Recv(&flag, 1, MPI_INT, 0, 5, comm, MPI_STATUS_IGNORE));
      }
      MUST(MPI_Ssend(&value, 1, MPI_INT, 0, value == 5 ? 6 : 4, comm));
    }
  }
  MUST(MPI_Comm_free(&comm));
}

// --- collectives that do not block
// -----------------------------------------------------------------

static void add(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((int*)inout)[i] += ((int*)in)[i];
}

// Ints in an order that fits no simple description, never two side by side.
static int place(int i) { return 3 * i + (int)(odt_mix((uint64_t)i) % 2); }
static MPI_Datatype scattered(int ints) {
  int* places = odt_memory(sizeof(int) * (size_t)ints);
  MPI_Datatype type;
  for (int i = 0; i < ints; i++) places[i] = place(i);
  MUST(MPI_Type_create_indexed_block(ints, 1, places, MPI_INT, &type));
  MUST(MPI_Type_commit(&type));
  free(places);
  return type;
}

enum { kScattered = 70000 };

static void started_collectives(const char* name) {
  if (!begins("collective", name)) return;
  MPI_Comm near, made;
  MUST(MPI_Comm_split(MPI_COMM_WORLD, odt.rank == kFar, odt.rank, &near));
  const int type_case = strcmp(name, "datatype") == 0;
  const int persistent = strcmp(name, "persistent operation") == 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Op op;
  int in[100], out[100], size;
  MPI_Datatype type = scattered(kScattered);
  int* data = calloc(3 * kScattered, sizeof(int));
  MUST(MPI_Comm_size(near, &size));
  MUST(MPI_Op_create(add, 1, &op));
  for (int i = 0; i < 100; i++) in[i] = i;
  for (int i = 0; i < 3 * kScattered; i++) data[i] = odt.rank == 1 ? i : -1;
  if (type_case) {
    MUST(MPI_Ibcast(data, 1, type, size > 1 ? 1 : 0, near, &request));
#if MPI_VERSION >= 4
  } else if (persistent) {
    MUST(MPI_Allreduce_init(in, out, 100, MPI_INT, op, near, MPI_INFO_NULL, &request));
    MUST(MPI_Start(&request));
#endif
  } else {
    MUST(MPI_Iallreduce(in, out, 100, MPI_INT, op, near, &request));
  }
  (void)persistent;
  if (odt.rank == 0) MUST(MPI_Comm_dup(near, &made));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  if (odt.rank != 0) MUST(MPI_Comm_dup(near, &made));
  if (request != MPI_REQUEST_NULL) MUST(MPI_Request_free(&request));
  for (int i = 0; i < 100 && !type_case; i++) CHECK(out[i] == size * i, "%d at %d", out[i], i);
  for (int i = 0; i < kScattered && type_case && odt.rank < kFar; i++) {
    const int at = place(i);
    CHECK(data[at] == at, "%d at %d", data[at], at);
  }
  free(data);
  MUST(MPI_Op_free(&op));
  MUST(MPI_Type_free(&type));
  MUST(MPI_Comm_free(&made));
  MUST(MPI_Comm_free(&near));
}

// A receive that only the host can unpack, and its sender waits for the match.
static void scattered_receive(void) {
  if (!begins("receive", "datatype")) return;
  MPI_Comm comm = fresh();
  MPI_Datatype type = scattered(kScattered);
  int* data = calloc(3 * kScattered, sizeof(int));
  for (int i = 0; i < 3 * kScattered; i++) data[i] = odt.rank == 1 ? i : -1;
  if (odt.rank == 0) {
    MPI_Request request;
    MUST(MPI_Irecv(data, 1, type, kNear, 0, comm, &request));
    call_dup(comm);
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < kScattered; i++) {
      const int at = place(i);
      CHECK(data[at] == at, "%d at %d", data[at], at);
    }
  } else {
    if (odt.rank == kNear) MUST(MPI_Ssend(data, 1, type, 0, 0, comm));
    call_dup(comm);
  }
  free(data);
  MUST(MPI_Type_free(&type));
  MUST(MPI_Comm_free(&comm));
}

// --- errors
// ----------------------------------------------------------------------------------------

static int handler_calls, handler_class;
static void count_calls(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  handler_calls++;
  handler_class = odt_class(*code);
}

// A message that is too long for its receive is one error of one receive.
static void truncated(const char* name) {
  if (!begins("truncated", name)) return;
  MPI_Comm comm = fresh();
  MPI_Errhandler handler;
  MPI_Request request;
  MPI_Status status;
  char text[400];
  MUST(MPI_Comm_create_errhandler(count_calls, &handler));
  MPI_Errhandler found;
  if (odt.rank == 0) {
    MUST(MPI_Comm_set_errhandler(comm, handler));
    // Where a request has failed MPICH calls that of the world.
    MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
    handler_calls = 0;
    memset(text, 'x', sizeof text);
    MUST(MPI_Irecv(text, 100, MPI_BYTE, MPI_ANY_SOURCE, 0, comm, &request));
    if (strcmp(name, "in a call") == 0) call_dup(comm);
    const int code = MPI_Wait(&request, &status);
    CHECK(odt_class(code) == MPI_ERR_TRUNCATE, "returned %s", odt_class_name(code));
    CHECK(handler_calls == 1, "the error handler was called %d times", handler_calls);
    CHECK(handler_class == MPI_ERR_TRUNCATE, "with class %d", handler_class);
    CHECK(text[100] == 'x', "data %c", text[100]);
    MUST(MPI_Comm_get_errhandler(comm, &found));
    CHECK(found == handler, "another error handler");
    MUST(MPI_Errhandler_free(&found));
    MUST(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
  } else {
    memset(text, 'a', sizeof text);
    if (odt.rank == kFar) MUST(MPI_Ssend(text, 200, MPI_BYTE, 0, 0, comm));
    if (strcmp(name, "in a call") == 0) call_dup(comm);
  }
  MUST(MPI_Errhandler_free(&handler));
  MUST(MPI_Comm_free(&comm));
}

// --- the end
// -------------------------------------------------------------------------------------------------

// A receive that nobody waits for any more gets its message in MPI_Finalize.
static int finish(void) {
  static char last[kLong];
  long mine[2] = {odt.checks + 1, odt.failures}, all[2] = {0, 0};
  MPI_Request request;
  const int pending = odt_number("finalize", 1) != 0 && begins("freed receive", "Finalize");
  if (pending && odt.rank == 0) {
    MUST(MPI_Irecv(last, kLong, MPI_BYTE, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request));
    MUST(MPI_Request_free(&request));
  }
  MUST(MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
  if (pending && odt.rank == kFar) MUST(MPI_Ssend(last, kLong, MPI_BYTE, 0, 77, MPI_COMM_WORLD));
  MPI_Finalize();
  alarm(0);
  if (odt.rank == 0 && all[1] == 0) printf("PASS host_pending: %ld checks\n", all[0]);
  return all[1] == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
  odt_start("host_pending", &argc, &argv);
  signal(SIGALRM, too_long);
  only = odt_option("only", NULL);
  path = odt_option("file", "/tmp/overdrive-test-file");
  if (odt.size != 4) {
    fprintf(stderr, "FAIL host_pending: four ranks are needed\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  char* buffer = odt_memory(8 * kLong);
  for (int p = 0; p < kPendingCount; p++) {
    for (int c = 0; c < kCallCount; c++) wildcards_during(&kPending[p], &kCalls[c], buffer);
  }
  for (int c = 0; c < 4; c++) {
    order_during(&kCalls[c]);
    unmatched_during(&kCalls[c]);
    surplus_during(&kCalls[c]);
  }
  persistent_order();
  persistent_probe();
  started_collectives("operation");
#if MPI_VERSION >= 4
  started_collectives("persistent operation");
#endif
  started_collectives("datatype");
  scattered_receive();
  truncated("outside");
  truncated("in a call");
  free(buffer);
  return finish();
}
