// Status fields of every kind of completion: source, tag, counts, elements, cancelled, the
// untouched MPI_ERROR of single completions, empty statuses, statuses of MPI_PROC_NULL,
// MPI_STATUS_IGNORE.
#include "odtest.h"

enum { kSentinel = 0x5eed };

// Whether the host's own blunders count as failures; given in runs with Overdrive.
static int strict;

static MPI_Status fresh(void) {
  MPI_Status status;
  memset(&status, 0x5a, sizeof status);
  status.MPI_ERROR = kSentinel;
  return status;
}

static void check_message(const char* what, MPI_Status* status, int source, int tag, int bytes) {
  int count = -1, cancelled = -1, elements = -1;
  MPI_Count elements_x = -1;
  CHECK(status->MPI_SOURCE == source, "%s: source %d, not %d", what, status->MPI_SOURCE, source);
  CHECK(status->MPI_TAG == tag, "%s: tag %d, not %d", what, status->MPI_TAG, tag);
  MUST(MPI_Get_count(status, MPI_BYTE, &count));
  CHECK(count == bytes, "%s: count %d, not %d", what, count, bytes);
  MUST(MPI_Get_elements(status, MPI_BYTE, &elements));
  CHECK(elements == bytes, "%s: %d elements, not %d", what, elements, bytes);
  MUST(MPI_Get_elements_x(status, MPI_BYTE, &elements_x));
  CHECK(elements_x == bytes, "%s: %lld elements, not %d", what, (long long)elements_x, bytes);
  MUST(MPI_Get_count(status, MPI_INT, &count));
  CHECK(count == (bytes % 4 == 0 ? bytes / 4 : MPI_UNDEFINED), "%s: %d ints in %d bytes", what,
        count, bytes);
  MUST(MPI_Test_cancelled(status, &cancelled));
  CHECK(cancelled == 0, "%s: cancelled", what);
}

static void check_empty(const char* what, MPI_Status* status) {
  int count = -1, cancelled = -1;
  CHECK(status->MPI_SOURCE == MPI_ANY_SOURCE, "%s: source %d", what, status->MPI_SOURCE);
  CHECK(status->MPI_TAG == MPI_ANY_TAG, "%s: tag %d", what, status->MPI_TAG);
  MUST(MPI_Get_count(status, MPI_BYTE, &count));
  CHECK(count == 0, "%s: count %d", what, count);
  MUST(MPI_Test_cancelled(status, &cancelled));
  CHECK(cancelled == 0, "%s: cancelled", what);
}

static void receives(int bytes) {
  char* buffer = odt_memory((size_t)bytes + 16);
  const int peer = 1;
  if (odt.rank == 0) {
    for (int i = 0; i < 9; i++) {
      MUST(MPI_Send(buffer, bytes, MPI_BYTE, peer, 40 + i, MPI_COMM_WORLD));
    }
    free(buffer);
    return;
  }
  MPI_Status status = fresh();
  MPI_Request request;
  int flag = 0;
  MUST(MPI_Recv(buffer, bytes + 16, MPI_BYTE, 0, 40, MPI_COMM_WORLD, &status));
  check_message("Recv", &status, 0, 40, bytes);
  CHECK(status.MPI_ERROR == kSentinel, "Recv: MPI_ERROR is %d now", status.MPI_ERROR);

  status = fresh();
  MUST(MPI_Probe(MPI_ANY_SOURCE, 41, MPI_COMM_WORLD, &status));
  check_message("Probe", &status, 0, 41, bytes);
  // MPICH itself clears the field here.
  CHECK(!strict || status.MPI_ERROR == kSentinel, "Probe: MPI_ERROR is %d now", status.MPI_ERROR);
  status = fresh();
  MUST(MPI_Irecv(buffer, bytes + 16, MPI_BYTE, MPI_ANY_SOURCE, 41, MPI_COMM_WORLD, &request));
  MUST(MPI_Wait(&request, &status));
  check_message("Wait", &status, 0, 41, bytes);
  CHECK(status.MPI_ERROR == kSentinel, "Wait: MPI_ERROR is %d now", status.MPI_ERROR);

  MUST(MPI_Irecv(buffer, bytes + 16, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
  status = fresh();
  while (!flag) MUST(MPI_Request_get_status(request, &flag, &status));
  check_message("Request_get_status", &status, 0, 42, bytes);
  CHECK(request != MPI_REQUEST_NULL, "Request_get_status freed the request");
  status = fresh();
  flag = 0;
  MUST(MPI_Test(&request, &flag, &status));
  CHECK(flag, "Test after Request_get_status: not complete");
  check_message("Test", &status, 0, 42, bytes);
  CHECK(status.MPI_ERROR == kSentinel, "Test: MPI_ERROR is %d now", status.MPI_ERROR);

  MPI_Request many[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int index = -1;
  MUST(MPI_Irecv(buffer, bytes + 16, MPI_BYTE, 0, 43, MPI_COMM_WORLD, &many[1]));
  status = fresh();
  MUST(MPI_Waitany(2, many, &index, &status));
  CHECK(index == 1, "Waitany: index %d", index);
  check_message("Waitany", &status, 0, 43, bytes);
  CHECK(status.MPI_ERROR == kSentinel, "Waitany: MPI_ERROR is %d now", status.MPI_ERROR);

  MPI_Status statuses[2];
  statuses[0] = fresh();
  statuses[1] = fresh();
  MUST(MPI_Irecv(buffer, bytes + 16, MPI_BYTE, 0, 44, MPI_COMM_WORLD, &many[1]));
  MUST(MPI_Waitall(2, many, statuses));
  check_empty("Waitall null", &statuses[0]);
  check_message("Waitall", &statuses[1], 0, 44, bytes);

  MPI_Message message;
  status = fresh();
  MUST(MPI_Mprobe(0, 45, MPI_COMM_WORLD, &message, &status));
  check_message("Mprobe", &status, 0, 45, bytes);
  status = fresh();
  MUST(MPI_Mrecv(buffer, bytes + 16, MPI_BYTE, &message, &status));
  check_message("Mrecv", &status, 0, 45, bytes);
  CHECK(message == MPI_MESSAGE_NULL, "Mrecv leaves the message handle");

  flag = 0;
  while (!flag) MUST(MPI_Improbe(0, 46, MPI_COMM_WORLD, &flag, &message, &status));
  MUST(MPI_Imrecv(buffer, bytes + 16, MPI_BYTE, &message, &request));
  CHECK(message == MPI_MESSAGE_NULL, "Imrecv leaves the message handle");
  status = fresh();
  MUST(MPI_Wait(&request, &status));
  check_message("Imrecv", &status, 0, 46, bytes);

  // Everything may be ignored.
  MUST(MPI_Recv(buffer, bytes + 16, MPI_BYTE, 0, 47, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  MUST(MPI_Irecv(buffer, bytes + 16, MPI_BYTE, 0, 48, MPI_COMM_WORLD, &many[0]));
  MUST(MPI_Waitall(1, many, MPI_STATUSES_IGNORE));
  free(buffer);
}

// Counts of a derived type: whole elements, a partial element, none.
static void elements(void) {
  MPI_Datatype pair;
  int lengths[2] = {1, 3};
  MPI_Aint places[2] = {0, 8};
  MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT};
  MUST(MPI_Type_create_struct(2, lengths, places, types, &pair));
  MUST(MPI_Type_commit(&pair));
  char buffer[240];
  memset(buffer, 0, sizeof buffer);
  for (int ints = 0; ints <= 8; ints++) {
    // 2 whole elements and then a double and some ints of the third
    int bytes = 0;
    if (odt.rank == 0) {
      int position = 0;
      char packed[240];
      MUST(MPI_Pack(buffer, 2, pair, packed, sizeof packed, &position, MPI_COMM_WORLD));
      MUST(MPI_Pack(buffer, 1, MPI_DOUBLE, packed, sizeof packed, &position, MPI_COMM_WORLD));
      MUST(MPI_Pack(buffer, ints % 4, MPI_INT, packed, sizeof packed, &position, MPI_COMM_WORLD));
      MUST(MPI_Send(packed, position, MPI_PACKED, 1, ints, MPI_COMM_WORLD));
      bytes = position;
    } else {
      MPI_Status status;
      int count = -1, whole = -1;
      MUST(MPI_Recv(buffer, 5, pair, 0, ints, MPI_COMM_WORLD, &status));
      MUST(MPI_Get_count(&status, pair, &count));
      MUST(MPI_Get_elements(&status, pair, &whole));
      int expected = ints % 4 == 3 ? 3 : MPI_UNDEFINED;
      CHECK(count == expected, "%d ints: count %d, not %d", ints % 4, count, expected);
      CHECK(whole == 9 + ints % 4, "%d ints: %d elements", ints % 4, whole);
      (void)bytes;
    }
  }
  MUST(MPI_Type_free(&pair));
}

static void nothing_there(void) {
  MPI_Request null = MPI_REQUEST_NULL;
  MPI_Status status = fresh();
  int flag = 0, index = 0;
  MUST(MPI_Wait(&null, &status));
  check_empty("Wait null", &status);
  status = fresh();
  MUST(MPI_Test(&null, &flag, &status));
  CHECK(flag, "Test of a null request: not complete");
  check_empty("Test null", &status);
  MPI_Request nulls[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  status = fresh();
  MUST(MPI_Waitany(3, nulls, &index, &status));
  CHECK(index == MPI_UNDEFINED, "Waitany of nulls: index %d", index);
  check_empty("Waitany nulls", &status);
  status = fresh();
  MUST(MPI_Testany(3, nulls, &index, &flag, &status));
  CHECK(flag && index == MPI_UNDEFINED, "Testany of nulls: flag %d index %d", flag, index);
  check_empty("Testany nulls", &status);
  int done = 0, indices[3];
  MPI_Status statuses[3];
  MUST(MPI_Waitsome(3, nulls, &done, indices, statuses));
  CHECK(done == MPI_UNDEFINED, "Waitsome of nulls: %d", done);
  MUST(MPI_Testsome(3, nulls, &done, indices, statuses));
  CHECK(done == MPI_UNDEFINED, "Testsome of nulls: %d", done);
  MUST(MPI_Waitall(3, nulls, statuses));
  for (int i = 0; i < 3; i++) check_empty("Waitall nulls", &statuses[i]);
  MUST(MPI_Testall(3, nulls, &flag, statuses));
  CHECK(flag, "Testall of nulls: not complete");
  MUST(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
  status = fresh();
  MUST(MPI_Request_get_status(MPI_REQUEST_NULL, &flag, &status));
  CHECK(flag, "Request_get_status of null: not complete");
  check_empty("Request_get_status null", &status);
}

static void proc_null(void) {
  char byte = 7;
  MPI_Status status = fresh();
  int count = -1, flag = 0;
  MUST(MPI_Recv(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL, "Recv: source %d", status.MPI_SOURCE);
  CHECK(status.MPI_TAG == MPI_ANY_TAG, "Recv: tag %d", status.MPI_TAG);
  MUST(MPI_Get_count(&status, MPI_BYTE, &count));
  CHECK(count == 0 && byte == 7, "count %d, byte %d", count, byte);
  MPI_Request request;
  MUST(MPI_Irecv(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &request));
  status = fresh();
  MUST(MPI_Wait(&request, &status));
  MUST(MPI_Get_count(&status, MPI_BYTE, &count));
  CHECK(count == 0, "Irecv: count %d", count);  // MPICH leaves source and tag alone here
  MUST(MPI_Send(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD));
  MUST(MPI_Ssend(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD));
  MUST(MPI_Isend(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &request));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  status = fresh();
  MUST(MPI_Probe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG, "Probe: %d %d",
        status.MPI_SOURCE, status.MPI_TAG);
  MUST(MPI_Iprobe(MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
  CHECK(flag, "Iprobe of MPI_PROC_NULL: no message");
  MPI_Message message = MPI_MESSAGE_NULL;
  MUST(MPI_Mprobe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &message, &status));
  CHECK(message == MPI_MESSAGE_NO_PROC, "Mprobe of MPI_PROC_NULL: another handle");
  status = fresh();
  MUST(MPI_Mrecv(&byte, 1, MPI_BYTE, &message, &status));
  CHECK(message == MPI_MESSAGE_NULL, "Mrecv of MPI_MESSAGE_NO_PROC leaves the handle");
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL, "Mrecv: source %d", status.MPI_SOURCE);
  MUST(MPI_Improbe(MPI_PROC_NULL, 3, MPI_COMM_WORLD, &flag, &message, &status));
  CHECK(flag && message == MPI_MESSAGE_NO_PROC, "Improbe of MPI_PROC_NULL");
  MUST(MPI_Imrecv(&byte, 1, MPI_BYTE, &message, &request));
  MUST(MPI_Wait(&request, &status));
  MUST(MPI_Sendrecv(&byte, 1, MPI_BYTE, MPI_PROC_NULL, 1, &byte, 1, MPI_BYTE, MPI_PROC_NULL, 1,
                    MPI_COMM_WORLD, &status));
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL, "Sendrecv: source %d", status.MPI_SOURCE);
}

// Statuses survive the trip to Fortran's form and back; those the program makes itself work.
static void conversions(void) {
  char byte = 1;
  const int peer = 1 - odt.rank;
  MPI_Status status, back;
  MUST(MPI_Sendrecv(&byte, 1, MPI_BYTE, peer, 12, &byte, 1, MPI_BYTE, peer, 12, MPI_COMM_WORLD,
                    &status));
#ifdef MPI_F_STATUS_SIZE
  MPI_Fint fortran[MPI_F_STATUS_SIZE];
  MUST(MPI_Status_c2f(&status, fortran));
  MUST(MPI_Status_f2c(fortran, &back));
#else
  back = status;
#endif
  check_message("c2f f2c", &back, peer, 12, 1);
  MPI_Request request;
  MUST(MPI_Irecv(&byte, 1, MPI_BYTE, peer, 13, MPI_COMM_WORLD, &request));
#ifndef MPI_ABI
  MPI_Request same = MPI_Request_f2c(MPI_Request_c2f(request));
  CHECK(same == request, "Request_f2c(Request_c2f()) is another request");
#else
  MPI_Request same = request;
#endif
  MUST(MPI_Send(&byte, 1, MPI_BYTE, peer, 13, MPI_COMM_WORLD));
  MUST(MPI_Wait(&same, &status));
  check_message("converted request", &status, peer, 13, 1);
  int count = 0, flag = 0;
  MUST(MPI_Status_set_elements(&status, MPI_INT, 5));
  MUST(MPI_Get_count(&status, MPI_INT, &count));
  CHECK(count == 5, "Status_set_elements: %d", count);
  MUST(MPI_Status_set_cancelled(&status, 1));
  MUST(MPI_Test_cancelled(&status, &flag));
  CHECK(flag, "Status_set_cancelled has no effect");
}

// A status of a completed send has a defined cancelled flag and an untouched error field.
static void sends(void) {
  char byte = 1;
  int flag = -1;
  if (odt.rank == 0) {
    MPI_Request request;
    MPI_Status status = fresh();
    MUST(MPI_Isend(&byte, 1, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, &status));
    MUST(MPI_Test_cancelled(&status, &flag));
    CHECK(flag == 0, "a send counts as cancelled");
    CHECK(status.MPI_ERROR == kSentinel, "MPI_ERROR is %d now", status.MPI_ERROR);
  } else {
    MUST(MPI_Recv(&byte, 1, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  }
}

int main(int argc, char** argv) {
  odt_start("status", &argc, &argv);
  strict = (int)odt_number("strict", 0);
  static const int kSizes[] = {0, 1, 4, 7, 56, 1000, 16384, 65536, 65540, 300001};
  if (odt.rank < 2) {
    for (int i = 0; i < (int)(sizeof kSizes / sizeof kSizes[0]); i++) receives(kSizes[i]);
    elements();
    sends();
    conversions();
  }
  nothing_there();
  proc_null();
  return odt_finish();
}
