// Completion of requests of random programs, in every way that MPI has.
//
//   done how=H q=Q,Q,..  until all of them are complete: wait waitall waitany waitsome test testall
//                        testany testsome status (MPI_Request_get_status, then MPI_Wait)
//   poke how=H q=..      once: test testall testany testsome status; what completes, completes
//   start q=Q,.. m=M,..  starts persistent requests (more than one: MPI_Startall)
//   free q=Q             MPI_Request_free of an inactive persistent request, or of an active send
//
// Requests that are complete already stay in the arrays, as programs do it: MPI_REQUEST_NULL or
// inactive, with empty statuses.
#ifndef COMPLETION_H_
#define COMPLETION_H_

#include "collective_calls.h"
#include "communicators.h"
#include "partitioned.h"
#include "windows.h"

// Polls that found nothing before a program gives its core away.
enum { kPollsBeforeYield = 20 };

static void complete(Session* s, const Op* op, Slot* slot, const MPI_Status* status) {
  if (!slot->active) {
    check_empty_status(op, status, MPI_ANY_SOURCE);
    return;
  }
  slot->active = 0;
  if (!slot->persistent) {
    REQUIRE(op, slot->request == MPI_REQUEST_NULL, "a completed request has kept its handle");
  } else {
    REQUIRE(op, slot->request != MPI_REQUEST_NULL, "a persistent request has lost its handle");
  }
  switch (slot->kind) {
    case kSend:
      check_send(slot, op, status);
      break;
    case kRecv:
      check_receive(s, slot, op, status);
      break;
    case kCollective:
      check_call(s, slot->call);
      break;
    case kNewComm:
      comm_register(slot->op, slot->comm);
      break;
    case kPartSend:
    case kPartRecv:
      part_check(slot, op);
      break;
    case kAccess:
      access_complete(slot, op);
      break;
    default:
      break;
  }
  if (slot->persistent) return;
  if (slot->call != NULL) call_free(slot->call);
  // Marked as over, not free: the program may still name it.
  const Op* made = slot->op;
  slot_release(slot);
  slot->kind = kOver;
  slot->op = made;
  slot->request = MPI_REQUEST_NULL;
}

typedef struct {
  int count;
  Slot* slots[kMostRequests];
  MPI_Request requests[kMostRequests];
} Set;

static void set_read(Session* s, const Op* op, Set* set) {
  long numbers[kMostRequests];
  set->count = arg_list(op, "q", numbers, kMostRequests);
  for (int i = 0; i < set->count; i++) {
    set->slots[i] = slot_of(s, op, numbers[i]);
    REQUIRE(op, set->slots[i]->kind != kFree, "the program is wrong: request %ld", numbers[i]);
    set->requests[i] = set->slots[i]->request;
  }
}

static int set_active(const Set* set) {
  int active = 0;
  for (int i = 0; i < set->count; i++) active += set->slots[i]->active;
  return active;
}

static void set_complete(Session* s, const Op* op, Set* set, int i, const MPI_Status* status) {
  set->slots[i]->request = set->requests[i];
  complete(s, op, set->slots[i], status);
}

static void complete_one(Session* s, const Op* op, Set* set, int index, const MPI_Status* status) {
  REQUIRE(op, index >= 0 && index < set->count, "index %d of a set of %d", index, set->count);
  REQUIRE(op, set->slots[index]->active, "index %d names a request that is not active", index);
  set_complete(s, op, set, index, status);
}

static void complete_some(Session* s, const Op* op, Set* set, int outcount, const int* indices,
                          const MPI_Status* statuses) {
  if (outcount == MPI_UNDEFINED) {
    REQUIRE(op, set_active(set) == 0, "nothing is said to be active, but %d are", set_active(set));
    return;
  }
  for (int i = 0; i < outcount; i++) complete_one(s, op, set, indices[i], &statuses[i]);
}

// One call that does not wait; returns nonzero if it has completed something.
static int poll_once(Session* s, const Op* op, const char* how, Set* set) {
  const int before = set_active(set);
  int flag = 0, index = -1;
  MPI_Status* statuses = (MPI_Status*)need_memory(((size_t)set->count + 1) * sizeof(MPI_Status));
  int* indices = (int*)need_memory(((size_t)set->count + 1) * sizeof(int));
  if (strcmp(how, "testall") == 0) {
    MUST(op, MPI_Testall(set->count, set->requests, &flag, statuses));
    for (int i = 0; flag && i < set->count; i++) set_complete(s, op, set, i, &statuses[i]);
  } else if (strcmp(how, "testany") == 0) {
    MUST(op, MPI_Testany(set->count, set->requests, &index, &flag, statuses));
    if (flag && index != MPI_UNDEFINED) complete_one(s, op, set, index, statuses);
    if (flag && index == MPI_UNDEFINED) complete_some(s, op, set, index, NULL, NULL);
  } else if (strcmp(how, "testsome") == 0) {
    MUST(op, MPI_Testsome(set->count, set->requests, &index, indices, statuses));
    complete_some(s, op, set, index, indices, statuses);
  } else if (strcmp(how, "test") == 0) {
    for (int i = 0; i < set->count; i++) {
      MUST(op, MPI_Test(&set->requests[i], &flag, statuses));
      if (flag) set_complete(s, op, set, i, statuses);
    }
  } else {  // status
    for (int i = 0; i < set->count; i++) {
      MUST(op, MPI_Request_get_status(set->requests[i], &flag, statuses));
      if (!flag || !set->slots[i]->active) continue;
      MPI_Status second;
      MUST(op, MPI_Wait(&set->requests[i], &second));
      REQUIRE(op,
              set->slots[i]->kind != kRecv || (second.MPI_SOURCE == statuses->MPI_SOURCE &&
                                               second.MPI_TAG == statuses->MPI_TAG),
              "MPI_Request_get_status and MPI_Wait differ");
      set_complete(s, op, set, i, &second);
    }
  }
  free(statuses);
  free(indices);
  return set_active(set) < before;
}

static void wait_all(Session* s, const Op* op, const char* how, Set* set) {
  MPI_Status* statuses = (MPI_Status*)need_memory(((size_t)set->count + 1) * sizeof(MPI_Status));
  int* indices = (int*)need_memory(((size_t)set->count + 1) * sizeof(int));
  if (strcmp(how, "waitall") == 0) {
    MUST(op, MPI_Waitall(set->count, set->requests, statuses));
    for (int i = 0; i < set->count; i++) set_complete(s, op, set, i, &statuses[i]);
  }
  while (strcmp(how, "waitany") == 0 && set_active(set) > 0) {
    int index = -1;
    MUST(op, MPI_Waitany(set->count, set->requests, &index, statuses));
    complete_one(s, op, set, index, statuses);
  }
  while (strcmp(how, "waitsome") == 0 && set_active(set) > 0) {
    int count = -1;
    MUST(op, MPI_Waitsome(set->count, set->requests, &count, indices, statuses));
    REQUIRE(op, count > 0, "MPI_Waitsome returns %d with active requests", count);
    complete_some(s, op, set, count, indices, statuses);
  }
  for (int i = 0; strcmp(how, "wait") == 0 && i < set->count; i++) {
    MUST(op, MPI_Wait(&set->requests[i], statuses));
    set_complete(s, op, set, i, statuses);
  }
  free(statuses);
  free(indices);
}

static void do_done(Session* s, const Op* op) {
  Set* set = (Set*)need_memory(sizeof(Set));
  set_read(s, op, set);
  const char* how = arg_text(op, "how");
  if (how[0] == 'w') {
    wait_all(s, op, how, set);
  } else {
    for (int idle = 0; set_active(set) > 0;) {
      idle = poll_once(s, op, how, set) ? 0 : idle + 1;
      if (idle > kPollsBeforeYield) sched_yield();
    }
  }
  REQUIRE(op, set_active(set) == 0, "%d requests are still active", set_active(set));
  free(set);
}

static void do_poke(Session* s, const Op* op) {
  Set* set = (Set*)need_memory(sizeof(Set));
  set_read(s, op, set);
  poll_once(s, op, arg_text(op, "how"), set);
  free(set);
}

static void do_start(Session* s, const Op* op) {
  long numbers[kMostRequests], content[kMostRequests];
  MPI_Request requests[kMostRequests];
  const int count = arg_list(op, "q", numbers, kMostRequests);
  REQUIRE(op, arg_list(op, "m", content, kMostRequests) == count, "the program is wrong: no m");
  for (int i = 0; i < count; i++) {
    Slot* slot = slot_of(s, op, numbers[i]);
    REQUIRE(op, slot->persistent && !slot->active, "the program is wrong: start of %ld",
            numbers[i]);
    char name[16];
    snprintf(name, sizeof name, "cand%d", i);
    slot->started = op;
    if (slot->kind == kSend) {
      fill_send(s, slot, content[i]);
    } else if (slot->kind == kRecv) {
      memset(slot->buffer.region, kUntouched, (size_t)slot->buffer.bytes);
      expect_messages(s, slot, op, name);
    } else if (slot->kind == kPartSend || slot->kind == kPartRecv) {
      part_start(s, slot, content[i]);
    } else {
      slot->call->k = content[i];
      fill_call(s, slot->call);
    }
    requests[i] = slot->request;
    slot->active = 1;
  }
  if (count == 1) {
    MUST(op, MPI_Start(requests));
  } else {
    MUST(op, MPI_Startall(count, requests));
  }
  for (int i = 0; i < count; i++) slot_of(s, op, numbers[i])->request = requests[i];
}

// A freed send's buffer stays as it is until the program is over.
static void do_free(Session* s, const Op* op) {
  Slot* slot = slot_of(s, op, arg_needed(op, "q"));
  MUST(op, MPI_Request_free(&slot->request));
  REQUIRE(op, slot->request == MPI_REQUEST_NULL, "MPI_Request_free has kept the handle");
  if (slot->persistent) {
    if (slot->call != NULL) call_free(slot->call);
    slot_release(slot);
  }
  slot->active = 0;
  slot->kind = kOver;
}

#endif  // COMPLETION_H_
