// Functions of the program that the library calls: those of attributes, also in MPI_Finalize, and
// of generalized requests. What they send reaches receives that were posted outside of them, and
// the other way round; libraries take down in them what they have built.
#include "odtest.h"

static MPI_Comm library;  // communicator of the program's library
static int next, before;
static int calls;

// One message to the next rank; what comes from the rank before may have been asked for already.
static void tell(int tag) {
  int word = 100 * tag + odt.rank;
  MUST(MPI_Send(&word, 1, MPI_INT, next, tag, library));
}
static void listen(int tag) {
  int word = -1;
  MUST(MPI_Recv(&word, 1, MPI_INT, before, tag, library, MPI_STATUS_IGNORE));
  CHECK(word == 100 * tag + before, "%d came", word);
}
typedef struct {
  int tag;
  int word;
  MPI_Request request;
} Asked;
static void ask(Asked* asked, int tag) {
  asked->tag = tag;
  asked->word = -1;
  MUST(MPI_Irecv(&asked->word, 1, MPI_INT, before, tag, library, &asked->request));
}
static void get(Asked* asked) {
  MUST(MPI_Wait(&asked->request, MPI_STATUS_IGNORE));
  CHECK(asked->word == 100 * asked->tag + before, "%d came", asked->word);
}

// --- attributes ----------------------------------------------------------------------------------

// Both send what is received outside, and receive what is sent outside.
static int copied(MPI_Comm comm, int keyval, void* extra, void* value, void* copy, int* flag) {
  (void)comm;
  (void)keyval;
  CHECK(extra == &calls, "other extra state");
  calls++;
  tell(1);
  listen(2);
  *(void**)copy = value;
  *flag = 1;
  return MPI_SUCCESS;
}
static int deleted(MPI_Comm comm, int keyval, void* value, void* extra) {
  (void)comm;
  (void)keyval;
  CHECK(extra == &calls && value == &library, "other values");
  calls++;
  tell(3);
  listen(4);
  return MPI_SUCCESS;
}

static void of_communicators(void) {
  int keyval, found = 0;
  void* value = NULL;
  MPI_Comm first, second;
  Asked asked;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &first));
  MUST(MPI_Comm_create_keyval(copied, deleted, &keyval, &calls));
  MUST(MPI_Comm_set_attr(first, keyval, &library));
  calls = 0;
  ask(&asked, 1);
  tell(2);
  MUST(MPI_Comm_dup(first, &second));
  get(&asked);
  CHECK(calls == 1, "%d calls", calls);
  MUST(MPI_Comm_get_attr(second, keyval, &value, &found));
  CHECK(found && value == &library, "the copy has no attribute");
  for (int i = 0; i < 2; i++) {
    ask(&asked, 3);
    tell(4);
    MUST(MPI_Comm_free(i == 0 ? &first : &second));
    get(&asked);
    CHECK(calls == 2 + i, "%d calls", calls);
  }
  // The predefined functions are what they were.
  int known = 7;
  MUST(MPI_Comm_free_keyval(&keyval));
  MUST(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL));
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &first));
  MUST(MPI_Comm_set_attr(first, keyval, &known));
  MUST(MPI_Comm_dup(first, &second));
  MUST(MPI_Comm_get_attr(second, keyval, &value, &found));
  CHECK(found && value == &known, "MPI_COMM_DUP_FN has not copied");
  MUST(MPI_Comm_free(&first));
  MUST(MPI_Comm_free(&second));
  MUST(MPI_Comm_free_keyval(&keyval));
}

static int type_deleted(MPI_Datatype type, int keyval, void* value, void* extra) {
  (void)type;
  (void)keyval;
  (void)value;
  (void)extra;
  calls++;
  tell(5);
  return MPI_SUCCESS;
}
static int window_deleted(MPI_Win window, int keyval, void* value, void* extra) {
  (void)window;
  (void)keyval;
  (void)value;
  (void)extra;
  calls++;
  tell(6);
  return MPI_SUCCESS;
}

static void of_others(void) {
  int keyval, memory = 0;
  MPI_Datatype type;
  MPI_Win window;
  Asked asked;
  calls = 0;
  MUST(MPI_Type_contiguous(3, MPI_INT, &type));
  MUST(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, type_deleted, &keyval, NULL));
  MUST(MPI_Type_set_attr(type, keyval, NULL));
  ask(&asked, 5);
  MUST(MPI_Type_free(&type));
  get(&asked);
  MUST(MPI_Type_free_keyval(&keyval));
  MUST(MPI_Win_create(&memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  MUST(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, window_deleted, &keyval, NULL));
  MUST(MPI_Win_set_attr(window, keyval, NULL));
  ask(&asked, 6);
  MUST(MPI_Win_free(&window));
  get(&asked);
  MUST(MPI_Win_free_keyval(&keyval));
  CHECK(calls == 2, "%d calls", calls);
}

// --- generalized requests ------------------------------------------------------------------------

static int query(void* extra, MPI_Status* status) {
  get(extra);
  tell(8);
  listen(8);
  MUST(MPI_Status_set_elements(status, MPI_INT, 5));
  MUST(MPI_Status_set_cancelled(status, 0));
  status->MPI_SOURCE = 3;
  status->MPI_TAG = 4;
  return MPI_SUCCESS;
}
static int let_go(void* extra) {
  (void)extra;
  calls++;
  tell(9);
  return MPI_SUCCESS;
}
static int cancel(void* extra, int complete) {
  (void)extra;
  (void)complete;
  calls++;
  tell(10);
  return MPI_SUCCESS;
}

static void of_requests(void) {
  for (int how = 0; how < 3; how++) {
    Asked inner, end, stop;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    int count = 0, done = 0, word = 0;
    calls = 0;
    ask(&inner, 7);
    ask(&end, 9);
    ask(&stop, 10);
    MUST(MPI_Grequest_start(query, let_go, cancel, &inner, &requests[0]));
    MUST(MPI_Cancel(&requests[0]));
    get(&stop);
    MUST(MPI_Grequest_complete(requests[0]));
    tell(7);
    if (how == 0) {
      MUST(MPI_Wait(&requests[0], &statuses[0]));
    } else if (how == 1) {
      while (!done) MUST(MPI_Test(&requests[0], &done, &statuses[0]));
    } else {
      MUST(MPI_Irecv(&word, 1, MPI_INT, before, 11, library, &requests[1]));
      tell(11);
      MUST(MPI_Waitall(2, requests, statuses));
      CHECK(word == 1100 + before, "%d came", word);
    }
    get(&end);
    MUST(MPI_Get_count(&statuses[0], MPI_INT, &count));
    CHECK(count == 5 && statuses[0].MPI_SOURCE == 3 && statuses[0].MPI_TAG == 4,
          "count %d source %d tag %d", count, statuses[0].MPI_SOURCE, statuses[0].MPI_TAG);
    CHECK(calls == 2, "%d calls", calls);
  }
}

// --- the end -------------------------------------------------------------------------------------

static MPI_Request kept[2];  // persistent
static MPI_Request sent;
static int kept_out, kept_in, sent_word;
static int ended;

// Attributes of MPI_COMM_SELF go first in MPI_Finalize, and everything still works.
static int at_end(MPI_Comm comm, int keyval, void* value, void* extra) {
  int finalized = -1, sum = 0, one = 1;
  (void)comm;
  (void)keyval;
  (void)value;
  MUST(MPI_Finalized(&finalized));
  CHECK(!finalized, "finalized");
  if (extra == NULL) {  // the newer one: others use the library's communicator later
    listen(20);
    MUST(MPI_Wait(&sent, MPI_STATUS_IGNORE));
    MUST(MPI_Startall(2, kept));
    MUST(MPI_Waitall(2, kept, MPI_STATUSES_IGNORE));
    CHECK(kept_in == before, "%d came", kept_in);
    for (int i = 0; i < 2; i++) MUST(MPI_Request_free(&kept[i]));
  } else {
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == odt.size, "sum %d", sum);
  }
  ended++;
  return MPI_SUCCESS;
}

int main(int argc, char** argv) {
  odt_start("callbacks", &argc, &argv);
  next = (odt.rank + 1) % odt.size;
  before = (odt.rank + odt.size - 1) % odt.size;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &library));
  of_communicators();
  of_others();
  of_requests();

  int keyval;
  static int older;
  for (int i = 0; i < 2; i++) {
    MUST(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &keyval, i == 0 ? &older : NULL));
    MUST(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &library));
  }
  kept_out = odt.rank;
  MUST(MPI_Send_init(&kept_out, 1, MPI_INT, next, 21, library, &kept[0]));
  MUST(MPI_Recv_init(&kept_in, 1, MPI_INT, before, 21, library, &kept[1]));
  sent_word = 100 * 20 + odt.rank;
  MUST(MPI_Isend(&sent_word, 1, MPI_INT, next, 20, library, &sent));
  const int code = odt_finish();
  CHECK(ended == 2, "%d of the functions at the end were called", ended);
  return code;
}
