// Point-to-point operations of random programs.
//
//   send m= c= to= tag= type= n= mode=std|buf|sync|rdy [q=]            blocking without q
//        [lends=1] [same=Q]            Q's send, which lends its buffer, is sent from it again
//   recv c= from=R|any tag=T|any type= n= cand=M,M how=plain|probe|iprobe|mprobe|improbe [q=]
//   exch (send's arguments) from= rtag= rtype= rn= cand= [replace=1]   MPI_Sendrecv
//   sinit q= (send's)   rinit q= (recv's)   start q=Q,Q m=M,-1,.. cand0= cand1= ..
//   cancel q=   drop q= (MPI_Request_free)   look c= from= tag= (MPI_Iprobe)
//
// A message is identified by what arrives: source, tag, length and every byte must be those of one
// of the candidates that the planner has computed. Which of them it may have been is remembered,
// and at the end of the program the receives of a communicator are gone through in the order in
// which they were posted: each must have taken the first message of its source that was left.
#ifndef MESSAGES_H_
#define MESSAGES_H_

#include "session.h"

static int peer_arg(const Op* op, const char* name) {
  if (arg_is(op, name, "any")) return MPI_ANY_SOURCE;
  if (arg_is(op, name, "null")) return MPI_PROC_NULL;
  return (int)arg_needed(op, name);
}

static int tag_arg(const Op* op, const char* name) {
  return arg_is(op, name, "any") ? MPI_ANY_TAG : (int)arg_needed(op, name);
}

static uint64_t content_of(const Session* s, long message) {
  return content_key(s->program, messages[message].content, 0, 0);
}

static void fill_send(Session* s, Slot* slot, long message) {
  slot->message = message;
  slot->key = content_of(s, message);
  if (slot->borrowed) return;
  memset(slot->buffer.region, kUntouched, (size_t)slot->buffer.bytes);
  layout_fill(&slot->layout, slot->buffer.address, 0, slot->elements, slot->key);
}

static void prepare_send(Session* s, Slot* slot, const Op* op) {
  slot->layout = layout_make(op, arg_text(op, "type"));
  slot->elements = arg_needed(op, "n");
  slot->borrowed = arg_text(op, "same") != NULL;
  if (slot->borrowed) {
    slot->buffer = s->lent[slot_number(op, "same")];
    REQUIRE(op, slot->buffer.region != NULL, "the program is wrong: nothing is lent");
  } else {
    slot->buffer = buffer_make(op, &s->arenas, arg_text(op, "mem"), &slot->layout, slot->elements);
  }
  slot->lent = arg_text(op, "lends") != NULL;
  if (slot->lent) s->lent[slot_number(op, "q")] = slot->buffer;
  REQUIRE(op, slot->elements % slot->layout.per == 0, "the program is wrong: part of a type");
}

static void prepare_receive(Session* s, Slot* slot, const Op* op, const char* type, const char* n) {
  slot->layout = layout_make(op, arg_text(op, type));
  slot->elements = arg_needed(op, n);
  slot->buffer = buffer_make(op, &s->arenas, arg_text(op, "rmem"), &slot->layout, slot->elements);
}

static void expect_messages(Session* s, Slot* slot, const Op* op, const char* candidates) {
  Received* r = &slot->received;
  r->op = op;
  r->candidates = arg_list(op, candidates, r->candidate, kMostCandidates);
  r->order = s->receive_order++;
}

static void pattern(Slot* slot, const Op* op, const char* tag) {
  slot->received.comm = arg_needed(op, "c");
  slot->received.from = peer_arg(op, "from");
  slot->received.tag = tag_arg(op, tag);
}

static void check_empty_status(const Op* op, const MPI_Status* status, int source) {
  int count = -1;
  MPI_Get_count(status, MPI_BYTE, &count);
  REQUIRE(op, status->MPI_SOURCE == source && status->MPI_TAG == MPI_ANY_TAG && count == 0,
          "status of nothing says source %d, tag %d, count %d", status->MPI_SOURCE, status->MPI_TAG,
          count);
}

// What a status says about lengths must be so for n basic elements.
static void check_counts(const Op* op, const Slot* slot, const MPI_Status* status, long n) {
  int count = -5, elements = -5;
  MUST(op, MPI_Get_count(status, slot->layout.type, &count));
  MUST(op, MPI_Get_elements(status, slot->layout.type, &elements));
  const long must = n % slot->layout.per == 0 ? n / slot->layout.per : MPI_UNDEFINED;
  REQUIRE(op, count == must, "MPI_Get_count gives %d, not %ld", count, must);
  REQUIRE(op, elements == n, "MPI_Get_elements gives %d, not %ld", elements, n);
}

static char* image_of_message(Session* s, const Slot* slot, long message) {
  char* image = image_begin(&slot->buffer);
  layout_fill(&slot->layout, image + (slot->buffer.address - slot->buffer.region), 0,
              messages[message].n, content_of(s, message));
  return image;
}

// Finds out what a receive has received.
static void check_receive(Session* s, Slot* slot, const Op* op, const MPI_Status* status) {
  Received* r = &slot->received;
  int cancelled = 0;
  if (slot->cancelled) {
    MUST(op, MPI_Test_cancelled(status, &cancelled));
    REQUIRE(op, cancelled, "a receive that no message can match was not cancelled");
    image_check(op, &slot->buffer, image_begin(&slot->buffer), "buffer of a cancelled receive");
    return;
  }
  if (r->from == MPI_PROC_NULL) {
    check_empty_status(op, status, MPI_PROC_NULL);
    return;
  }
  MUST(op, MPI_Test_cancelled(status, &cancelled));
  REQUIRE(op, !cancelled, "a receive counts as cancelled");
  r->actual_source = status->MPI_SOURCE;
  r->accepted = 0;
  int same_envelope = -1, elements = -1;
  for (int i = 0; i < r->candidates; i++) {
    const Message* m = &messages[r->candidate[i]];
    if (m->source != status->MPI_SOURCE || m->tag != status->MPI_TAG) continue;
    same_envelope = i;
    MUST(op, MPI_Get_elements(status, slot->layout.type, &elements));
    if (elements != m->n) continue;
    char* image = image_of_message(s, slot, r->candidate[i]);
    if (image_difference(&slot->buffer, image) == INT64_MIN) r->accepted |= (uint64_t)1 << i;
    free(image);
  }
  REQUIRE(op, same_envelope >= 0, "received from %d with tag %d: nobody sends that here",
          status->MPI_SOURCE, status->MPI_TAG);
  const long likely = r->candidate[same_envelope];
  if (r->accepted == 0) {
    // Says what differs from the likeliest message, or how it came into the wrong place.
    check_counts(op, slot, status, messages[likely].n);
    char text[80];
    snprintf(text, sizeof text, "message %ld from %d with tag %d", likely, status->MPI_SOURCE,
             status->MPI_TAG);
    image_check(op, &slot->buffer, image_of_message(s, slot, likely), text);
  }
  check_counts(op, slot, status, elements);
  s->received = (Received*)realloc(s->received, ((size_t)s->received_count + 1) * sizeof *r);
  s->received[s->received_count++] = *r;
}

static void check_send(Slot* slot, const Op* op, const MPI_Status* status) {
  int cancelled = 0;
  if (status != NULL) MUST(op, MPI_Test_cancelled(status, &cancelled));
  REQUIRE(op, !cancelled, "a send counts as cancelled");
  char* image = image_begin(&slot->buffer);
  layout_fill(&slot->layout, image + (slot->buffer.address - slot->buffer.region), 0,
              slot->elements, slot->key);
  image_check(op, &slot->buffer, image, "buffer of a send");
  if (!slot->persistent && !slot->lent && !slot->borrowed) buffer_spoil(&slot->buffer);
}

static void slot_release(Slot* slot) {
  layout_free(&slot->layout);
  if (!slot->lent && !slot->borrowed) buffer_free(&slot->buffer);
  memset(slot, 0, sizeof *slot);
}

// --- sends ---------------------------------------------------------------------------------------

static int send_mode(const Op* op) {
  return arg_is(op, "mode", "buf")    ? 1
         : arg_is(op, "mode", "sync") ? 2
         : arg_is(op, "mode", "rdy")  ? 3
                                      : 0;
}

static void do_send(Session* s, const Op* op) {
  typedef int (*Blocking)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
  typedef int (*Starting)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
  static const Blocking kBlocking[] = {MPI_Send, MPI_Bsend, MPI_Ssend, MPI_Rsend};
  static const Starting kStarting[] = {MPI_Isend, MPI_Ibsend, MPI_Issend, MPI_Irsend};
  static const Starting kMaking[] = {MPI_Send_init, MPI_Bsend_init, MPI_Ssend_init, MPI_Rsend_init};
  const Comm* comm = comm_of(op, "c");
  const int to = peer_arg(op, "to"), tag = (int)arg_needed(op, "tag"), mode = send_mode(op);
  const int persistent = strcmp(op->verb, "sinit") == 0;
  const int blocking = arg_text(op, "q") == NULL;
  Slot own = {.kind = kSend, .op = op};
  Slot* slot = blocking ? &own : slot_take(s, op, kSend);
  prepare_send(s, slot, op);
  const int count = (int)(slot->elements / slot->layout.per);
  const MPI_Datatype type = slot->layout.type;
  if (!persistent) {
    fill_send(s, slot, arg_needed(op, "m"));
  }
  if (blocking) {
    MUST(op, kBlocking[mode](slot->buffer.address, count, type, to, tag, comm->comm));
    check_send(slot, op, NULL);
    slot_release(slot);
    return;
  }
  slot->persistent = persistent;
  slot->active = !persistent;
  MUST(op, (persistent ? kMaking : kStarting)[mode](slot->buffer.address, count, type, to, tag,
                                                    comm->comm, &slot->request));
  layout_free_handle(&slot->layout);  // the handle may go; the operation keeps the datatype
}

// --- receives ------------------------------------------------------------------------------------

// A probed status must be one of a candidate's.
static void check_probe(const Op* op, const Received* r, const MPI_Status* status) {
  int bytes = -1;
  MUST(op, MPI_Get_count(status, MPI_BYTE, &bytes));
  for (int i = 0; i < r->candidates; i++) {
    const Message* m = &messages[r->candidate[i]];
    int size;
    base_type(op, m->base, &size);
    if (m->source == status->MPI_SOURCE && m->tag == status->MPI_TAG && m->n * size == bytes)
      return;
  }
  fail(op, "a probe shows %d bytes from %d with tag %d: nobody sends that here", bytes,
       status->MPI_SOURCE, status->MPI_TAG);
}

static void do_receive(Session* s, const Op* op) {
  const Comm* comm = comm_of(op, "c");
  const int persistent = strcmp(op->verb, "rinit") == 0;
  const int blocking = arg_text(op, "q") == NULL;
  const char* how = arg_text(op, "how");
  if (how == NULL) how = "plain";
  Slot own = {.kind = kRecv, .op = op};
  Slot* slot = blocking ? &own : slot_take(s, op, kRecv);
  prepare_receive(s, slot, op, "type", "n");
  pattern(slot, op, "tag");
  if (!persistent) expect_messages(s, slot, op, "cand");
  int from = (int)slot->received.from, tag = (int)slot->received.tag, flag = 0;
  const int count = (int)layout_count(&slot->layout, slot->elements);
  void* const address = slot->buffer.address;
  const MPI_Datatype type = slot->layout.type;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status, probed;
  if (strcmp(how, "probe") == 0) {
    MUST(op, MPI_Probe(from, tag, comm->comm, &probed));
  } else if (strcmp(how, "mprobe") == 0) {
    MUST(op, MPI_Mprobe(from, tag, comm->comm, &message, &probed));
  }
  while (strcmp(how, "iprobe") == 0 && !flag) {
    MUST(op, MPI_Iprobe(from, tag, comm->comm, &flag, &probed));
    if (!flag) sched_yield();
  }
  while (strcmp(how, "improbe") == 0 && !flag) {
    MUST(op, MPI_Improbe(from, tag, comm->comm, &flag, &message, &probed));
    if (!flag) sched_yield();
  }
  if (strcmp(how, "plain") != 0) {
    check_probe(op, &slot->received, &probed);
    from = probed.MPI_SOURCE, tag = probed.MPI_TAG;
  }
  const int matched = message != MPI_MESSAGE_NULL;
  if (blocking) {
    if (matched) {
      MUST(op, MPI_Mrecv(address, count, type, &message, &status));
      REQUIRE(op, message == MPI_MESSAGE_NULL, "MPI_Mrecv has left the message's handle");
    } else {
      MUST(op, MPI_Recv(address, count, type, from, tag, comm->comm, &status));
    }
    check_receive(s, slot, op, &status);
    slot_release(slot);
    return;
  }
  slot->persistent = persistent;
  slot->active = !persistent;
  if (matched) {
    MUST(op, MPI_Imrecv(address, count, type, &message, &slot->request));
  } else if (persistent) {
    MUST(op, MPI_Recv_init(address, count, type, from, tag, comm->comm, &slot->request));
  } else {
    MUST(op, MPI_Irecv(address, count, type, from, tag, comm->comm, &slot->request));
  }
}

static void do_exchange(Session* s, const Op* op) {
  const Comm* comm = comm_of(op, "c");
  Slot send = {.kind = kSend, .op = op}, recv = {.kind = kRecv, .op = op};
  const long message = arg_needed(op, "m");
  const int to = peer_arg(op, "to"), tag = (int)arg_needed(op, "tag");
  MPI_Status status;
  prepare_receive(s, &recv, op, "rtype", "rn");
  pattern(&recv, op, "rtag");
  const int replace = arg(op, "replace", 0) != 0;
  const int from = (int)recv.received.from, rtag = (int)recv.received.tag;
  const int rcount = (int)layout_count(&recv.layout, recv.elements);
  expect_messages(s, &recv, op, "cand");
  if (replace) {  // one buffer and type: what is sent is as long as what is received
    layout_fill(&recv.layout, recv.buffer.address, 0, recv.elements, content_of(s, message));
    MUST(op, MPI_Sendrecv_replace(recv.buffer.address, rcount, recv.layout.type, to, tag, from,
                                  rtag, comm->comm, &status));
  } else {
    prepare_send(s, &send, op);
    fill_send(s, &send, message);
    MUST(op, MPI_Sendrecv(send.buffer.address, (int)(send.elements / send.layout.per),
                          send.layout.type, to, tag, recv.buffer.address, rcount, recv.layout.type,
                          from, rtag, comm->comm, &status));
    check_send(&send, op, NULL);
    slot_release(&send);
  }
  check_receive(s, &recv, op, &status);
  slot_release(&recv);
}

static void do_cancel(Session* s, const Op* op) {
  Slot* slot = slot_of(s, op, arg_needed(op, "q"));
  slot->cancelled = 1;
  MUST(op, MPI_Cancel(&slot->request));
}

// Only looks: whatever is there stays there.
static void do_look(Session* s, const Op* op) {
  (void)s;
  int flag;
  MPI_Status status;
  MUST(op, MPI_Iprobe(peer_arg(op, "from"), tag_arg(op, "tag"), comm_of(op, "c")->comm, &flag,
                      &status));
}

// --- the order at the end ------------------------------------------------------------------------

static int by_order(const void* a, const void* b) {
  const Received *x = (const Received*)a, *y = (const Received*)b;
  return x->order < y->order ? -1 : x->order > y->order;
}

// Each receive, in the order of posting, took the first message of its source that was left.
static void check_order(Session* s) {
  char taken[kMostMessages] = {0};
  qsort(s->received, (size_t)s->received_count, sizeof(Received), by_order);
  for (int i = 0; i < s->received_count; i++) {
    const Received* r = &s->received[i];
    for (int j = 0;; j++) {
      REQUIRE(r->op, j < r->candidates, "received from %d what another receive must get",
              r->actual_source);
      const Message* m = &messages[r->candidate[j]];
      if (taken[r->candidate[j]] || m->source != r->actual_source) continue;
      if (r->tag != MPI_ANY_TAG && m->tag != r->tag) continue;
      REQUIRE(r->op, (r->accepted >> j & 1) != 0, "message %ld from %d has been overtaken",
              r->candidate[j], r->actual_source);
      taken[r->candidate[j]] = 1;
      break;
    }
  }
  free(s->received);
  s->received = NULL;
  s->received_count = 0;
}

#endif  // MESSAGES_H_
