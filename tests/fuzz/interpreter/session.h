// The state of one strand of a program: its requests, what they stand for, and what is to be
// checked when they are complete.
#ifndef SESSION_H_
#define SESSION_H_

#include "memory.h"

typedef enum {
  kFree,
  kSend,
  kRecv,
  kCollective,
  kNewComm,
  kPartSend,
  kPartRecv,
  kAccess,
  kOver
} Kind;

typedef struct {
  MPI_Comm comm;
  int used, is_inter;
  int rank, size, remote_size;
  int place;  // for content: which side of an inter-communicator this rank is on
  int has_neighbours;
  int in_count, out_count;  // neighbours of a topology, -1: beyond the border
  int in[kMostNeighbours], out[kMostNeighbours];
} Comm;

// A message, as the planner has declared it.
typedef struct {
  long comm, source, to, tag, n;
  char base;
  long content;  // whose content it has: its own, or of a message that is sent from the same buffer
} Message;

// A receive that is over, for the check of the order at the end.
typedef struct {
  const Op* op;
  long comm, from, tag, order;
  int actual_source;
  int candidates;
  long candidate[kMostCandidates];
  uint64_t accepted;  // bit i: candidate i would explain what was received
} Received;

struct Call;

typedef struct {
  Kind kind;
  MPI_Request request;
  int active, persistent;
  const Op* op;       // made by
  const Op* started;  // last start of a persistent request
  Layout layout;
  Buffer buffer;
  long elements;
  long message;  // of a send
  uint64_t key;
  Received received;   // of a receive
  int lent, borrowed;  // of a send: its buffer lives until the end; it is another's
  int cancelled;
  struct Call* call;  // of a collective
  int comm;           // that is being made
} Slot;

typedef struct {
  const Program* program;
  int number;
  const Op* volatile current;
  volatile int done;
  Arenas arenas;
  Slot slots[kMostRequests];
  Received* received;
  int received_count;
  long receive_order;
  struct Call* late[kMostLate];  // collectives whose results nobody has looked at yet
  int late_count;
  Buffer lent[kMostRequests];  // of sends whose buffers others send as well, until the end
} Session;

static Comm comms[kMostComms];
static Session sessions[kMostStrands];
static Message* messages;  // of the program, by number

static Comm* comm_of(const Op* op, const char* name) {
  const long id = arg_needed(op, name);
  REQUIRE(op, id >= 0 && id < kMostComms && comms[id].used, "the program is wrong: comm %ld", id);
  return &comms[id];
}

static Slot* slot_of(Session* s, const Op* op, long number) {
  REQUIRE(op, number >= 0 && number < kMostRequests, "the program is wrong: request %ld", number);
  return &s->slots[number];
}

static long slot_number(const Op* op, const char* name) {
  const long number = arg_needed(op, name);
  REQUIRE(op, number >= 0 && number < kMostRequests, "the program is wrong: request %ld", number);
  return number;
}

static Slot* slot_take(Session* s, const Op* op, Kind kind) {
  Slot* slot = slot_of(s, op, arg_needed(op, "q"));
  REQUIRE(op, slot->kind == kFree, "the program is wrong: request used twice");
  memset(slot, 0, sizeof *slot);
  slot->kind = kind;
  slot->op = op;
  slot->request = MPI_REQUEST_NULL;
  return slot;
}

static void read_messages(const Program* program) {
  messages = (Message*)calloc(kMostMessages, sizeof(Message));
  for (int i = 0; i < program->message_count; i++) {
    const Op* op = &program->messages[i];
    const long id = arg_needed(op, "id");
    REQUIRE(op, id >= 0 && id < kMostMessages, "the program is wrong: message %ld", id);
    messages[id] = (Message){arg_needed(op, "c"),   arg_needed(op, "from"), arg_needed(op, "to"),
                             arg_needed(op, "tag"), arg_needed(op, "n"),    *arg_text(op, "base"),
                             arg(op, "as", id)};
  }
}

#endif  // SESSION_H_
