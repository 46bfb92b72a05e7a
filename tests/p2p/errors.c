// Errors as the host gives them: each case prints the class of its return code and of its statuses;
// the suite compares the lines of a run with Overdrive with those of a run without. What the
// standard fixes (truncation, MPI_ERR_IN_STATUS) is checked here as well.
#include "odtest.h"

// Whether the host's own blunders count as failures; given in runs with Overdrive.
static int strict;
static int handler_calls;
static int handler_class;
static int handler_comm_right;
static MPI_Comm handler_expected;

static void handler(MPI_Comm* comm, int* code, ...) {
  handler_calls++;
  handler_class = odt_class(*code);
  handler_comm_right = *comm == handler_expected;
}

static void say(const char* what, int code) { printf("case %s: %s\n", what, odt_class_name(code)); }

// A sender for the truncation cases: `count` messages of `bytes` each with tags 0...
static void send_some(int count, int bytes) {
  char* data = odt_memory((size_t)bytes);
  for (int i = 0; i < count; i++) {
    odt_fill(data, (size_t)bytes, odt_key(0, 1, bytes, i));
    MUST(MPI_Send(data, bytes, MPI_BYTE, 1, i, MPI_COMM_WORLD));
  }
  free(data);
}

static void truncation(int bytes, int room) {
  char* buffer = odt_memory((size_t)bytes + 64);
  char name[64];
  MPI_Request requests[3];
  MPI_Status statuses[3];
  MPI_Status status;
  int flag = 0;
  if (odt.rank == 0) {
    for (int i = 0; i < 6; i++) {
      send_some(i == 2 || i == 3 ? 3 : 1, bytes);
      MUST(MPI_Recv(NULL, 0, MPI_BYTE, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    free(buffer);
    return;
  }
  memset(buffer, 0x33, (size_t)bytes + 64);
  // 1: blocking
  int code = MPI_Recv(buffer, room, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &status);
  CHECK(odt_class(code) == MPI_ERR_TRUNCATE, "Recv %d into %d: %s", bytes, room,
        odt_class_name(code));
  CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 0, "source %d tag %d", status.MPI_SOURCE,
        status.MPI_TAG);
  // Open MPI itself writes behind the buffer of a message that is too long.
  for (int i = 0; strict && i < 64; i++) {
    CHECK(buffer[room + i] == 0x33, "%d into %d: byte %d behind the buffer changed", bytes, room,
          i);
  }
  snprintf(name, sizeof name, "recv %d into %d", bytes, room);
  say(name, code);
  MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 99, MPI_COMM_WORLD));
  // 2: non-blocking and Wait
  MUST(MPI_Irecv(buffer, room, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[0]));
  code = MPI_Wait(&requests[0], &status);
  CHECK(odt_class(code) == MPI_ERR_TRUNCATE, "Wait: %s", odt_class_name(code));
  CHECK(requests[0] == MPI_REQUEST_NULL, "the request of a failed receive is not null");
  snprintf(name, sizeof name, "irecv wait %d into %d", bytes, room);
  say(name, code);
  MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 99, MPI_COMM_WORLD));
  // 3: Waitall, the middle one is too small
  for (int i = 0; i < 3; i++) {
    MUST(MPI_Irecv(buffer, i == 1 ? room : bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]));
  }
  // (the three receives share a buffer: only the codes are looked at)
  code = MPI_Waitall(3, requests, statuses);
  CHECK(odt_class(code) == MPI_ERR_IN_STATUS, "Waitall: %s", odt_class_name(code));
  for (int i = 0; i < 3; i++) {
    int expected = i == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    int got = odt_class(statuses[i].MPI_ERROR);
    // Requests that are not done yet when the error is found may be reported as pending.
    CHECK(got == expected || (i != 1 && got == MPI_ERR_PENDING), "Waitall status %d: %s", i,
          odt_class_name(statuses[i].MPI_ERROR));
    if (got == MPI_ERR_PENDING) MUST(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
  }
  MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 99, MPI_COMM_WORLD));
  // 4: Testsome until the one that is too small is reported
  for (int i = 0; i < 3; i++) {
    MUST(MPI_Irecv(buffer, i == 1 ? room : bytes, MPI_BYTE, 0, i, MPI_COMM_WORLD, &requests[i]));
  }
  int left = 3, truncated = 0;
  while (left > 0) {
    int indices[3], done = 0;
    code = MPI_Waitsome(3, requests, &done, indices, statuses);
    if (done == MPI_UNDEFINED) break;
    for (int i = 0; i < done; i++) {
      if (indices[i] == 1) {
        truncated = 1;
        CHECK(odt_class(code) == MPI_ERR_IN_STATUS, "Waitsome: %s", odt_class_name(code));
        CHECK(odt_class(statuses[i].MPI_ERROR) == MPI_ERR_TRUNCATE, "Waitsome status: %s",
              odt_class_name(statuses[i].MPI_ERROR));
      } else if (code != MPI_SUCCESS) {
        CHECK(statuses[i].MPI_ERROR == MPI_SUCCESS, "Waitsome: good request %d: %s", indices[i],
              odt_class_name(statuses[i].MPI_ERROR));
      }
    }
    left -= done;
  }
  CHECK(truncated && left == 0, "Waitsome: truncated %d, left %d", truncated, left);
  MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 99, MPI_COMM_WORLD));
  // 5: Test
  MUST(
      MPI_Irecv(buffer, room, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]));
  code = MPI_SUCCESS;
  while (!flag && code == MPI_SUCCESS) code = MPI_Test(&requests[0], &flag, &status);
  CHECK(odt_class(code) == MPI_ERR_TRUNCATE, "Test: %s", odt_class_name(code));
  snprintf(name, sizeof name, "test %d into %d", bytes, room);
  say(name, code);
  MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 99, MPI_COMM_WORLD));
  // 6: matched receive
  MPI_Message message;
  MUST(MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, &status));
  code = MPI_Mrecv(buffer, room, MPI_BYTE, &message, &status);
  CHECK(odt_class(code) == MPI_ERR_TRUNCATE, "Mrecv: %s", odt_class_name(code));
  snprintf(name, sizeof name, "mrecv %d into %d", bytes, room);
  say(name, code);
  MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 99, MPI_COMM_WORLD));
  free(buffer);
}

// Messages that end inside an element of the receive type: some hosts refuse them if the type has
// gaps. Such programs are wrong, so nothing but the class is looked at.
static void split_elements(void) {
  static const int kSizes[] = {3, 4, 5, 8, 11, 4001, 4002 * 4, 200000};
  MPI_Datatype gaps, list;
  int lengths[3] = {1, 2, 1}, places[3] = {4, 8, 16};
  MUST(MPI_Type_vector(30000, 1, 2, MPI_INT, &gaps));
  MUST(MPI_Type_indexed(3, lengths, places, MPI_INT, &list));
  MUST(MPI_Type_commit(&gaps));
  MUST(MPI_Type_commit(&list));
  const struct {
    const char* name;
    MPI_Datatype type;
    int count;
  } kinds[] = {{"gaps", gaps, 2}, {"list", list, 15000}};
  char* buffer = odt_memory(15000 * 17 * 4 + 30000 * 16);
  for (int i = 0; i < (int)(sizeof kSizes / sizeof kSizes[0]); i++) {
    for (int k = 0; k < 2; k++) {
      if (odt.rank == 0) {
        MUST(MPI_Send(buffer, kSizes[i], MPI_BYTE, 1, 0, MPI_COMM_WORLD));
        MUST(MPI_Recv(NULL, 0, MPI_BYTE, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        continue;
      }
      char name[64];
      snprintf(name, sizeof name, "%d bytes into %s", kSizes[i], kinds[k].name);
      say(name,
          MPI_Recv(buffer, kinds[k].count, kinds[k].type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 99, MPI_COMM_WORLD));
    }
  }
  MUST(MPI_Type_free(&gaps));
  MUST(MPI_Type_free(&list));
  free(buffer);
}

// Wrong arguments; they must be refused before anything is sent. Only the class is compared.
static void arguments(void) {
  char buffer[16] = {0};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  int flag;
  const int peer = 1 - odt.rank;
  int* tag_limit = NULL;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_limit, &flag);
  say("send rank size", MPI_Send(buffer, 1, MPI_CHAR, odt.size, 0, MPI_COMM_WORLD));
  say("send rank -7", MPI_Send(buffer, 1, MPI_CHAR, -7, 0, MPI_COMM_WORLD));
  say("send any source", MPI_Send(buffer, 1, MPI_CHAR, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD));
  say("send tag -5", MPI_Send(buffer, 1, MPI_CHAR, peer, -5, MPI_COMM_WORLD));
  say("send any tag", MPI_Send(buffer, 1, MPI_CHAR, peer, MPI_ANY_TAG, MPI_COMM_WORLD));
  if (*tag_limit < 0x7fffffff) {
    say("send tag limit", MPI_Send(buffer, 1, MPI_CHAR, peer, *tag_limit + 1, MPI_COMM_WORLD));
  }
  say("send count -1", MPI_Send(buffer, -1, MPI_CHAR, peer, 0, MPI_COMM_WORLD));
  say("send null type", MPI_Send(buffer, 1, MPI_DATATYPE_NULL, peer, 0, MPI_COMM_WORLD));
  say("send null comm", MPI_Send(buffer, 1, MPI_CHAR, peer, 0, MPI_COMM_NULL));
  say("isend rank size", MPI_Isend(buffer, 1, MPI_CHAR, odt.size, 0, MPI_COMM_WORLD, &request));
  say("issend tag -5", MPI_Issend(buffer, 1, MPI_CHAR, peer, -5, MPI_COMM_WORLD, &request));
  say("recv rank size", MPI_Recv(buffer, 1, MPI_CHAR, odt.size, 0, MPI_COMM_WORLD, &status));
  say("recv rank -7", MPI_Recv(buffer, 1, MPI_CHAR, -7, 0, MPI_COMM_WORLD, &status));
  say("recv tag -5", MPI_Recv(buffer, 1, MPI_CHAR, peer, -5, MPI_COMM_WORLD, &status));
  say("recv count -1", MPI_Recv(buffer, -1, MPI_CHAR, peer, 0, MPI_COMM_WORLD, &status));
  say("recv null type", MPI_Recv(buffer, 1, MPI_DATATYPE_NULL, peer, 0, MPI_COMM_WORLD, &status));
  say("irecv rank size", MPI_Irecv(buffer, 1, MPI_CHAR, odt.size, 0, MPI_COMM_WORLD, &request));
  say("irecv null comm", MPI_Irecv(buffer, 1, MPI_CHAR, peer, 0, MPI_COMM_NULL, &request));
  say("probe rank size", MPI_Probe(odt.size, 0, MPI_COMM_WORLD, &status));
  say("iprobe tag -5", MPI_Iprobe(peer, -5, MPI_COMM_WORLD, &flag, &status));
  say("send_init rank size",
      MPI_Send_init(buffer, 1, MPI_CHAR, odt.size, 0, MPI_COMM_WORLD, &request));
  say("recv_init count -1", MPI_Recv_init(buffer, -1, MPI_CHAR, peer, 0, MPI_COMM_WORLD, &request));
  say("sendrecv rank size", MPI_Sendrecv(buffer, 1, MPI_CHAR, odt.size, 0, buffer + 8, 1, MPI_CHAR,
                                         MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status));
  MPI_Datatype uncommitted;
  MPI_Type_contiguous(2, MPI_INT, &uncommitted);
  say("send uncommitted type", MPI_Send(buffer, 1, uncommitted, peer, 0, MPI_COMM_WORLD));
  MPI_Type_free(&uncommitted);
  request = MPI_REQUEST_NULL;
  say("start null", MPI_Start(&request));
  say("request_free null", MPI_Request_free(&request));
  say("cancel null", MPI_Cancel(&request));
  say("waitall count -1", MPI_Waitall(-1, &request, &status));
}

// User handlers get the communicator and the code, once per error.
static void handlers(void) {
  MPI_Errhandler mine;
  MPI_Comm other;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &other));
  MUST(MPI_Comm_create_errhandler(handler, &mine));
  MUST(MPI_Comm_set_errhandler(other, mine));
  handler_expected = other;
  char buffer[64] = {0};
  int code = MPI_Send(buffer, 1, MPI_CHAR, odt.size, 0, other);
  say("handler send rank size", code);  // MPICH 5 gives success after a handler has returned
  CHECK(handler_calls == 1, "the handler was called %d times", handler_calls);
  CHECK(handler_class == MPI_ERR_RANK, "the handler got %s", odt_class_name(handler_class));
  CHECK(handler_comm_right, "the handler got another communicator");
  handler_calls = 0;
  if (odt.rank == 0) {
    for (int i = 0; i < 3; i++) {
      MUST(MPI_Send(buffer, 64, MPI_CHAR, 1, i, other));
    }
  } else {
    code = MPI_Recv(buffer, 4, MPI_CHAR, 0, 0, other, MPI_STATUS_IGNORE);
    say("handler recv", code);
    CHECK(handler_calls == 1 && handler_class == MPI_ERR_TRUNCATE && handler_comm_right,
          "Recv: %d calls, class %s, communicator %d", handler_calls, odt_class_name(handler_class),
          handler_comm_right);
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    handler_calls = 0;
    MUST(MPI_Irecv(buffer, 4, MPI_CHAR, 0, 1, other, &requests[0]));
    code = MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    say("handler wait", code);
    // MPICH itself calls the handler of MPI_COMM_WORLD here.
    CHECK(!strict || (handler_calls == 1 && handler_class == MPI_ERR_TRUNCATE),
          "Wait: %d calls, class %s", handler_calls, odt_class_name(handler_class));
    handler_calls = 0;
    MPI_Status statuses[2];
    MUST(MPI_Irecv(buffer, 4, MPI_CHAR, 0, 2, other, &requests[1]));
    requests[0] = MPI_REQUEST_NULL;
    code = MPI_Waitall(2, requests, statuses);
    say("handler waitall", code);
  }
  MUST(MPI_Comm_free(&other));
  MUST(MPI_Errhandler_free(&mine));
}

int main(int argc, char** argv) {
  odt_start("errors", &argc, &argv);
  strict = (int)odt_number("strict", 0);
  const char* fatal = odt_option("fatal", NULL);
  if (fatal != NULL) {
    // Default handler: the job must end, and the suite checks that it does.
    char buffer[4096] = {0};
    if (odt.rank == 0) {
      MPI_Send(buffer, 4096, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    } else {
      MPI_Recv(buffer, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      printf("survived\n");
    }
    return odt_finish();
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (odt.rank < 2) {
    // Intel MPI itself does not report truncation to nothing.
    static const int kSizes[][2] = {{8, 1},
                                    {9, 8},
                                    {64, 63},
                                    {2000, 100},
                                    {16384, 16383},
                                    {65536, 40000},
                                    {70000, 10},
                                    {300000, 1},
                                    {300000, 65536},
                                    {1 << 20, 1000},
                                    {1 << 20, (1 << 20) - 1}};
    for (int i = 0; i < (int)(sizeof kSizes / sizeof kSizes[0]); i++) {
      truncation(kSizes[i][0], kSizes[i][1]);
    }
    arguments();
    handlers();
    if (odt_number("split", 1) != 0) split_elements();
  }
  fflush(stdout);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
  return odt_finish();
}
