// Wildcards under load from all sides: every rank sends a known number of messages to every other
// rank while it receives from any source by a changing mixture of Recv, Irecv batches, Probe and
// Recv, Iprobe and Recv, Mprobe and Mrecv. Messages carry their number; each source's must come in
// order.
#include "odtest.h"

enum { kWindow = 32, kMaxRanks = 64, kBatch = 6 };

typedef struct {
  int32_t from;
  int32_t number;
  int32_t bytes;
  int32_t tag;
} Header;

static long messages;
static long largest;
static int expected[kMaxRanks];  // number of the next message of each source
static MPI_Comm comm;

static void describe(int from, int to, long number, Header* header) {
  OdtRandom random = odt_random((uint64_t)(from * 100000 + to) * 1000003u + (uint64_t)number);
  header->from = from;
  header->number = (int32_t)number;
  header->bytes =
      (int32_t)(sizeof *header +
                (size_t)odt_size(&random, odt_below(&random, 16) == 0 ? largest : 3000));
  header->tag = (int32_t)odt_below(&random, 5);
}

// Sends in flight: the oldest is completed when its place is needed.
typedef struct {
  MPI_Request requests[kWindow];
  char* buffers[kWindow];
  long sent;
  long left[kMaxRanks];
} Sender;

static void sender_start(Sender* sender) {
  sender->sent = 0;
  for (int i = 0; i < kWindow; i++) {
    sender->requests[i] = MPI_REQUEST_NULL;
    sender->buffers[i] = NULL;
  }
  for (int to = 0; to < odt.size; to++) sender->left[to] = to == odt.rank ? 0 : messages;
}

// Starts one more send if there is a free place; returns whether anything is left to send.
static int sender_step(Sender* sender, OdtRandom* random) {
  int first = (int)odt_below(random, odt.size);
  for (int i = 0; i < odt.size; i++) {
    int to = (first + i) % odt.size;
    if (sender->left[to] == 0) continue;
    int slot = (int)(sender->sent % kWindow);
    int free_place = 0;
    MUST(MPI_Test(&sender->requests[slot], &free_place, MPI_STATUS_IGNORE));
    if (!free_place) return 1;
    free(sender->buffers[slot]);
    Header header;
    describe(odt.rank, to, messages - sender->left[to], &header);
    sender->buffers[slot] = odt_memory((size_t)header.bytes);
    memcpy(sender->buffers[slot], &header, sizeof header);
    odt_fill(sender->buffers[slot] + sizeof header, (size_t)header.bytes - sizeof header,
             odt_key(odt.rank, to, 0, header.number));
    MUST(MPI_Isend(sender->buffers[slot], header.bytes, MPI_BYTE, to, header.tag, comm,
                   &sender->requests[slot]));
    sender->sent++;
    sender->left[to]--;
    return 1;
  }
  return 0;
}

static void check(const char* buffer, MPI_Status* status) {
  Header header, right;
  int count = -1;
  memcpy(&header, buffer, sizeof header);
  MPI_Get_count(status, MPI_BYTE, &count);
  int from = status->MPI_SOURCE;
  if (from < 0 || from >= odt.size) {
    CHECK(0, "source %d", from);
    return;
  }
  describe(from, odt.rank, expected[from], &right);
  CHECK(header.from == from, "message of %d reported from %d", header.from, from);
  CHECK(header.number == expected[from], "source %d: message %d came, %d was next", from,
        header.number, expected[from]);
  CHECK(status->MPI_TAG == right.tag, "source %d message %d: tag %d, not %d", from, header.number,
        status->MPI_TAG, right.tag);
  CHECK(count == right.bytes, "source %d message %d: %d bytes, not %d", from, header.number, count,
        right.bytes);
  if (count == right.bytes) {
    CHECK_DATA(buffer + sizeof header, (size_t)count - sizeof header,
               odt_key(from, odt.rank, 0, header.number));
  }
  expected[from]++;
}

// Receives at least one message if any is there, at most `most`; returns how many.
static long receive_some(OdtRandom* random, char** room, long most, int may_block) {
  MPI_Status status;
  MPI_Message message;
  int flag = 0;
  const int bytes = (int)(largest + (long)sizeof(Header) + 8);
  MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &status));
  switch (odt_below(random, 6)) {
    case 0:
      if (!may_block && !flag) return 0;
      MUST(MPI_Recv(room[0], bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
      check(room[0], &status);
      return 1;
    case 1:
      if (!flag) return 0;
      MUST(MPI_Recv(room[0], bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, comm, &status));
      check(room[0], &status);
      return 1;
    case 2:
      if (!may_block && !flag) return 0;
      MUST(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
      MUST(MPI_Recv(room[0], bytes, MPI_BYTE, status.MPI_SOURCE, MPI_ANY_TAG, comm, &status));
      check(room[0], &status);
      return 1;
    case 3:
      MUST(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &message, &status));
      if (!flag) return 0;
      MUST(MPI_Mrecv(room[0], bytes, MPI_BYTE, &message, &status));
      check(room[0], &status);
      return 1;
    default: {
      // A batch of receives from anywhere; they fill in the order in which they were posted. Only
      // some of them may match at once: all are waited for, so all must be coming.
      long batch = 1 + odt_below(random, kBatch);
      MPI_Request requests[kBatch];
      MPI_Status statuses[kBatch];
      if (batch > most) batch = most;
      if (!may_block && !flag) return 0;
      if (!may_block) batch = 1;
      for (long i = 0; i < batch; i++) {
        MUST(MPI_Irecv(room[i], bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[i]));
      }
      MUST(MPI_Waitall((int)batch, requests, statuses));
      for (long i = 0; i < batch; i++) check(room[i], &statuses[i]);
      return batch;
    }
  }
}

int main(int argc, char** argv) {
  odt_start("wildcards", &argc, &argv);
  messages = odt_number("messages", 600);
  largest = odt_number("largest", 1 << 20);
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  OdtRandom random = odt_random((uint64_t)odt.rank + 12345);
  Sender sender;
  char* room[kBatch];
  for (int i = 0; i < kBatch; i++) room[i] = odt_memory((size_t)largest + sizeof(Header) + 16);
  long to_receive = messages * (odt.size - 1);
  sender_start(&sender);
  int sending = 1;
  while (sending || to_receive > 0) {
    if (sending) sending = sender_step(&sender, &random);
    if (to_receive > 0) to_receive -= receive_some(&random, room, to_receive, !sending);
  }
  MUST(MPI_Waitall(kWindow, sender.requests, MPI_STATUSES_IGNORE));
  for (int from = 0; from < odt.size; from++) {
    CHECK(expected[from] == (from == odt.rank ? 0 : messages), "source %d: %d messages", from,
          expected[from]);
  }
  int flag = 1;
  MUST(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, MPI_STATUS_IGNORE));
  CHECK(!flag, "a message is left over");
  for (int i = 0; i < kBatch; i++) free(room[i]);
  MUST(MPI_Comm_free(&comm));
  return odt_finish();
}
