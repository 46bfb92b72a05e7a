// Non-overtaking order: each rank sends every other rank a list of messages that both sides derive
// from the seed; the receiver works out which message each of its receives must get and checks that
// exactly this one arrives, whatever the sizes, modes and kinds of receive.
#include "odtest.h"

enum { kTags = 4, kWindow = 24 };

typedef struct {
  int tag;
  long bytes;
  int mode;  // how it is sent
} Message;

static long messages;
static long largest;

static void plan(int from, int to, Message* list) {
  OdtRandom random = odt_random((uint64_t)(from * 1000 + to));
  for (long i = 0; i < messages; i++) {
    list[i].tag = (int)odt_below(&random, kTags);
    list[i].bytes = odt_size(&random, odt_below(&random, 8) == 0 ? largest : 20000);
    list[i].mode = (int)odt_below(&random, 3);
  }
}

// Sends one list with at most kWindow sends in flight.
static void send_all(int to) {
  Message* list = odt_memory((size_t)messages * sizeof *list);
  MPI_Request requests[kWindow];
  char* buffers[kWindow] = {0};
  plan(odt.rank, to, list);
  for (int i = 0; i < kWindow; i++) requests[i] = MPI_REQUEST_NULL;
  for (long i = 0; i < messages; i++) {
    int slot = (int)(i % kWindow);
    MUST(MPI_Wait(&requests[slot], MPI_STATUS_IGNORE));
    free(buffers[slot]);
    buffers[slot] = odt_memory((size_t)list[i].bytes);
    odt_fill(buffers[slot], (size_t)list[i].bytes, odt_key(odt.rank, to, list[i].tag, i));
    if (list[i].mode == 0) {
      MUST(MPI_Send(buffers[slot], (int)list[i].bytes, MPI_BYTE, to, list[i].tag, MPI_COMM_WORLD));
    } else if (list[i].mode == 1) {
      MUST(MPI_Isend(buffers[slot], (int)list[i].bytes, MPI_BYTE, to, list[i].tag, MPI_COMM_WORLD,
                     &requests[slot]));
    } else {
      MUST(MPI_Issend(buffers[slot], (int)list[i].bytes, MPI_BYTE, to, list[i].tag, MPI_COMM_WORLD,
                      &requests[slot]));
    }
  }
  MUST(MPI_Waitall(kWindow, requests, MPI_STATUSES_IGNORE));
  for (int i = 0; i < kWindow; i++) free(buffers[i]);
  free(list);
}

typedef struct {
  long number;  // of the message that must arrive here
  char* buffer;
  MPI_Request request;
} Receive;

static void check_arrived(int from, const Message* list, Receive* receive, MPI_Status* status) {
  const Message* message = &list[receive->number];
  int count = -1;
  MPI_Get_count(status, MPI_BYTE, &count);
  CHECK(status->MPI_SOURCE == from, "source %d, expected %d", status->MPI_SOURCE, from);
  CHECK(status->MPI_TAG == message->tag, "message %ld: tag %d, expected %d", receive->number,
        status->MPI_TAG, message->tag);
  CHECK(count == message->bytes, "message %ld: %d bytes, expected %ld", receive->number, count,
        message->bytes);
  CHECK_DATA(receive->buffer, message->bytes,
             odt_key(from, odt.rank, message->tag, receive->number));
  free(receive->buffer);
  receive->buffer = NULL;
}

static void receive_all(int from) {
  Message* list = odt_memory((size_t)messages * sizeof *list);
  char* taken = calloc((size_t)messages, 1);
  Receive pending[kWindow];
  int in_flight = 0;
  long first = 0;  // every message before is taken
  OdtRandom random = odt_random((uint64_t)(odt.rank * 31 + from + 500000));
  plan(from, odt.rank, list);
  for (long received = 0; received < messages; received++) {
    while (first < messages && taken[first]) first++;
    // Which message this receive gets: the earliest that is left and matches. Looking at most a
    // window ahead keeps the sender, which waits for old sends, from waiting for ever.
    long number = first;
    int tag = MPI_ANY_TAG;
    if (odt_below(&random, 3) != 0) {
      long ahead = first + odt_below(&random, 8);
      number = ahead < messages && !taken[ahead] ? ahead : first;
      tag = list[number].tag;
      for (long i = first; i < number; i++) {
        if (!taken[i] && list[i].tag == tag) {
          number = i;
          break;
        }
      }
      // Blocking sends in between must not depend on a receive that is never posted.
      for (long i = first; i < number; i++) {
        if (!taken[i] && list[i].mode != 1) {
          number = first;
          tag = list[first].tag;
          break;
        }
      }
    }
    taken[number] = 1;
    Receive* receive = &pending[in_flight];
    receive->number = number;
    receive->buffer = odt_memory((size_t)largest);
    MPI_Status status;
    switch (odt_below(&random, 4)) {
      case 0: {
        MPI_Message handle;
        if (in_flight > 0) {  // a probe must not take what an earlier receive waits for
          MPI_Status statuses[kWindow];
          MPI_Request requests[kWindow];
          for (int i = 0; i < in_flight; i++) requests[i] = pending[i].request;
          MUST(MPI_Waitall(in_flight, requests, statuses));
          for (int i = 0; i < in_flight; i++) check_arrived(from, list, &pending[i], &statuses[i]);
          pending[0] = *receive;
          receive = &pending[0];
          in_flight = 0;
        }
        MUST(MPI_Mprobe(from, tag, MPI_COMM_WORLD, &handle, &status));
        CHECK(status.MPI_TAG == list[number].tag, "Mprobe: message %ld: tag %d, expected %d",
              number, status.MPI_TAG, list[number].tag);
        MUST(MPI_Mrecv(receive->buffer, (int)largest, MPI_BYTE, &handle, &status));
        check_arrived(from, list, receive, &status);
        break;
      }
      case 1:
        MUST(MPI_Recv(receive->buffer, (int)largest, MPI_BYTE, from, tag, MPI_COMM_WORLD, &status));
        check_arrived(from, list, receive, &status);
        break;
      default:
        MUST(MPI_Irecv(receive->buffer, (int)largest, MPI_BYTE, from, tag, MPI_COMM_WORLD,
                       &receive->request));
        in_flight++;
    }
    if (in_flight == kWindow || received == messages - 1) {
      // Completed one by one in posting order or all at once.
      for (int i = 0; i < in_flight; i++) {
        MUST(MPI_Wait(&pending[i].request, &status));
        check_arrived(from, list, &pending[i], &status);
      }
      in_flight = 0;
    }
  }
  free(taken);
  free(list);
}

int main(int argc, char** argv) {
  odt_start("order", &argc, &argv);
  messages = odt_number("messages", 400);
  largest = odt_number("largest", 8 << 20) + 2;
  for (int from = 0; from < odt.size; from++) {
    for (int to = 0; to < odt.size; to++) {
      if (from == to) continue;
      if (odt.rank == from) send_all(to);
      if (odt.rank == to) receive_all(from);
    }
  }
  return odt_finish();
}
