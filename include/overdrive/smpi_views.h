/* Inside smpi.h: receiving, probing, and what a view is. */
#ifndef OVERDRIVE_SMPI_VIEWS_H_
#define OVERDRIVE_SMPI_VIEWS_H_

#include "overdrive/smpi_messages.h"

SMPI_API_ int smpi_view_open_(SMPI_View view, const struct overdrive_smpi_place* place) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  view->place = *place;
  if (engine->open(engine->self, place, view->site, &view->address, &view->number) !=
      OVERDRIVE_SMPI_OK) {
    view->state = SMPI_EMPTY_;
    return MPI_ERR_INTERN;
  }
  view->bytes = place->bytes;
  view->state = SMPI_OPEN_;
  return MPI_SUCCESS;
}

SMPI_API_ int smpi_settle_call_(SMPI_View view);

/* A short message has come into a block that a far one might have needed: made to look like one. */
SMPI_API_ void smpi_lengthen_(void* block, struct smpi_head_* head) {
  const uint64_t bytes = head->home;
  /* What is longer has been cut off, and is not looked at. */
  if (bytes <= SMPI_COPIED_BYTES_) memmove(block, smpi_short_data_(head), (size_t)bytes);
  head->kind = SMPI_DATA_;
  head->bytes = bytes;
}

/* Receives from a near rank. */
SMPI_HOT_ int smpi_recv_near_(struct smpi_comm_* c, SMPI_View made, int source, int tag) {
  int code;
  if (c->messages != 0 && source != MPI_ANY_SOURCE &&
      smpi_process_state_.engine->recv_short(c->messages, &made->head, SMPI_HELD_BYTES_, source,
                                             tag) >= 0) {
    return MPI_SUCCESS;
  }
  if (made->limit <= SMPI_INLINE_BYTES_) {
    code = MPI_Recv(&made->head, SMPI_HELD_BYTES_, MPI_BYTE, source, tag, c->hidden,
                    MPI_STATUS_IGNORE);
    /* What was cut off is too long for the view as well, which is told of it like any other. */
    return made->head.kind == SMPI_SHORT_ && made->head.home > made->limit ? MPI_SUCCESS : code;
  }
  code = smpi_room_take_(made);
  if (code != MPI_SUCCESS) return code;
  return MPI_Recv(&made->large->head, SMPI_NEAR_BYTES_, MPI_BYTE, source, tag, c->hidden,
                  MPI_STATUS_IGNORE);
}

/* Makes a view of the message whose head has come; its data lies in view->block, if it was far. */
SMPI_API_ int smpi_settle_other_(SMPI_View view) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct smpi_head_* head =
      view->block != 0 ? (struct smpi_head_*)((char*)view->block - OVERDRIVE_SMPI_HEAD_BYTES)
                       : smpi_view_head_(view);
  struct overdrive_smpi_place place;
  const int too_long = smpi_length_(head) > view->limit;
  if (view->call != 0) return smpi_settle_call_(view);
  if (head->kind == SMPI_NOTHING_) {
    /* Some MPI libraries deliver nothing of a message that is too long. */
    return view->block != 0 ? MPI_ERR_TRUNCATE : MPI_ERR_PENDING;
  }
  view->source = head->source;
  view->tag = head->tag;
  if (head->kind == SMPI_SHORT_ && view->block != 0 && !too_long) smpi_lengthen_(view->block, head);
  if (smpi_is_descriptor_(head)) {
    smpi_place_(head, &place);
    place.offset += view->from;
    if (view->block != 0) engine->free(engine->self, view->block, 0);
    view->block = 0;
    if (view->large != 0) smpi_room_drop_(view);
  } else if (view->block == 0) {
    view->state = too_long ? SMPI_EMPTY_ : SMPI_OPEN_;
    if (too_long) return MPI_ERR_TRUNCATE;
    view->inlined = 1;
    view->address = smpi_short_data_(head);
    view->bytes = smpi_length_(head);
    return MPI_SUCCESS;
  } else {
    void* block = view->block;
    view->block = 0;
    if (too_long || engine->settle(engine->self, block, head->bytes, &place) != OVERDRIVE_SMPI_OK) {
      engine->free(engine->self, block, 0);
      view->state = SMPI_EMPTY_;
      return too_long ? MPI_ERR_TRUNCATE : MPI_ERR_INTERN;
    }
  }
  if (!too_long) return smpi_view_open_(view, &place);
  engine->close(engine->self, &place, 0);
  view->state = SMPI_EMPTY_;
  return MPI_ERR_TRUNCATE;
}

/* The same, with what short messages need done at once. */
SMPI_HOT_ int smpi_settle_(SMPI_View view) {
  struct smpi_head_* head = &view->head;
  if (head->kind != SMPI_SHORT_ || view->block != 0 || view->call != 0 ||
      head->home > view->limit) {
    return smpi_settle_other_(view);
  }
  view->source = head->source;
  view->tag = head->tag;
  view->state = SMPI_OPEN_;
  view->inlined = 1;
  view->address = smpi_short_data_(head);
  view->bytes = head->home;
  return MPI_SUCCESS;
}

/* A receive that has taken nothing: its view holds nothing. */
SMPI_API_ void smpi_view_null_(SMPI_View view) {
  view->source = MPI_PROC_NULL;
  view->tag = MPI_ANY_TAG;
  view->state = SMPI_EMPTY_;
}

SMPI_HOT_ int smpi_check_source_(const struct smpi_comm_* c, int source, int tag) {
  if (source != MPI_ANY_SOURCE && source != MPI_PROC_NULL && (source < 0 || source >= c->size)) {
    return MPI_ERR_RANK;
  }
  return tag != MPI_ANY_TAG && (tag < 0 || tag > c->tag_ub) ? MPI_ERR_TAG : MPI_SUCCESS;
}

/* Whether only near ranks can have sent what such a receive takes. */
SMPI_HOT_ int smpi_only_near_(const struct smpi_comm_* c, int source) {
  return source == MPI_ANY_SOURCE ? c->all_near : c->near[source];
}

/* Where the fetched message is that a receive or probe accepts; points to null: nowhere. */
SMPI_API_ struct smpi_stash_** smpi_stashed_(struct smpi_comm_* c, int source, int tag) {
  struct smpi_stash_** at;
  for (at = &c->stash; *at != 0; at = &(*at)->next) {
    const struct smpi_head_* head = &(*at)->head;
    if ((source == MPI_ANY_SOURCE || source == head->source) &&
        (tag == MPI_ANY_TAG || tag == head->tag)) {
      break;
    }
  }
  return at;
}

/* Moves a fetched message into a view; false if there is none. */
SMPI_API_ int smpi_search_stash_(struct smpi_comm_* c, int source, int tag, SMPI_View view) {
  struct smpi_stash_ **at, *found;
  smpi_lock_();
  at = smpi_stashed_(c, source, tag);
  found = *at;
  if (found != 0) {
    *at = found->next;
    if (c->stash_end == &found->next) c->stash_end = at;
  }
  smpi_unlock_();
  if (found == 0) return 0;
  view->head = found->head;
  view->block = found->block;
  free(found);
  return 1;
}

SMPI_HOT_ int smpi_unstash_(struct smpi_comm_* c, int source, int tag, SMPI_View view) {
  /* Relaxed: who has probed knows that there is something. */
  if (__atomic_load_n(&c->stash, __ATOMIC_RELAXED) == 0) return 0;
  return smpi_search_stash_(c, source, tag, view);
}

/* Receives a matched message, near or far, whatever its length: head and, unless it is a
 * descriptor, a block with the data. */
SMPI_API_ int smpi_take_(MPI_Message* message, MPI_Status* status, struct smpi_head_* head,
                         void** block) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  const uint64_t front = sizeof *head;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Count length = 0;
  char* data;
  int code = MPI_Get_elements_x(status, MPI_BYTE, &length);
  *block = 0;
  if (code != MPI_SUCCESS) return code;
  if (length <= SMPI_NEAR_BYTES_) {
    struct {
      struct smpi_head_ head;
      char room[SMPI_COPIED_BYTES_];
    } short_one;
    const char* from = short_one.room;
    short_one.head.kind = SMPI_NOTHING_;
    code = MPI_Mrecv(&short_one, SMPI_NEAR_BYTES_, MPI_BYTE, message, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return code;
    *head = short_one.head;
    if (smpi_is_descriptor_(head)) return MPI_SUCCESS;
    if (head->kind == SMPI_SHORT_) {
      from = smpi_short_data_(&short_one.head);
      head->kind = SMPI_DATA_;
      head->bytes = head->home;
      if (head->bytes > SMPI_COPIED_BYTES_) return MPI_ERR_INTERN;
    } else if (head->kind != SMPI_DATA_ || head->bytes > (uint64_t)length - front) {
      return MPI_ERR_INTERN;
    }
    data = (char*)engine->alloc(engine->self, head->bytes, smpi_site_);
    if (data == 0) return MPI_ERR_NO_MEM;
    memcpy(data - front, head, front);
    if (head->bytes > 0) memcpy(data, from, (size_t)head->bytes);
    *block = data;
    return MPI_SUCCESS;
  }
  data = (char*)engine->alloc(engine->self, (uint64_t)length - front, smpi_site_);
  if (data == 0) return MPI_ERR_NO_MEM;
  if ((uint64_t)length <= SMPI_INT_BYTES_) {
    code = MPI_Mrecv(data - front, (int)length, MPI_BYTE, message, MPI_STATUS_IGNORE);
  } else {
    code = smpi_span_(data - front, data, (uint64_t)length - front, &type);
    if (code == MPI_SUCCESS) code = MPI_Mrecv(MPI_BOTTOM, 1, type, message, MPI_STATUS_IGNORE);
    if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
  }
  memcpy(head, data - front, front);
  *block = data;
  return code;
}

SMPI_API_ int SMPI_Recv(SMPI_View* view, MPI_Count count, MPI_Datatype datatype, int source,
                        int tag, MPI_Comm comm, MPI_Status* status) {
  struct smpi_comm_* c = smpi_find_(comm);
  uint64_t limit = 0;
  MPI_Message message;
  MPI_Status found;
  SMPI_View made;
  int code;
  if (c == 0) return smpi_raise_(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_COMM);
  smpi_progress_();
  code = view == 0 ? MPI_ERR_ARG : smpi_bytes_(count, datatype, &limit);
  if (code == MPI_SUCCESS) code = smpi_check_source_(c, source, tag);
  if (code != MPI_SUCCESS) return smpi_raise_(comm, code);
  made = smpi_view_new_(c);
  if (made == 0) return smpi_raise_(comm, MPI_ERR_NO_MEM);
  made->limit = limit;
  if (source == MPI_PROC_NULL) {
    smpi_view_null_(made);
  } else if (!smpi_unstash_(c, source, tag, made)) {
    if (smpi_only_near_(c, source)) {
      code = smpi_recv_near_(c, made, source, tag);
    } else {
      code = MPI_Mprobe(source, tag, c->hidden, &message, &found);
      if (code == MPI_SUCCESS) code = smpi_take_(&message, &found, &made->head, &made->block);
    }
  }
  if (code == MPI_SUCCESS && made->state != SMPI_EMPTY_) code = smpi_settle_(made);
  smpi_status_(status, made->source, made->tag, made->bytes);
  if (code != MPI_SUCCESS) {
    smpi_view_done_(made);
    *view = SMPI_VIEW_NULL;
    return smpi_raise_(comm, code);
  }
  *view = made;
  return MPI_SUCCESS;
}

/* Room for a far message of at most `limit` bytes, and the receive for it. */
SMPI_API_ int smpi_irecv_(struct smpi_comm_* c, SMPI_View made, int source, int tag,
                          MPI_Request* request) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  const uint64_t front = sizeof(struct smpi_head_);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  char* data;
  int code;
  if (smpi_only_near_(c, source)) {
    code = smpi_room_take_(made);
    if (code != MPI_SUCCESS) return code;
    return MPI_Irecv(&made->large->head, SMPI_NEAR_BYTES_, MPI_BYTE, source, tag, c->hidden,
                     request);
  }
  data = (char*)engine->alloc(engine->self, made->limit, made->site);
  if (data == 0) return MPI_ERR_NO_MEM;
  made->block = data;
  if (made->limit + front <= SMPI_INT_BYTES_) {
    code = MPI_Irecv(data - front, (int)(made->limit + front), MPI_BYTE, source, tag, c->hidden,
                     request);
  } else {
    code = smpi_span_(data - front, data, made->limit, &type);
    if (code == MPI_SUCCESS) {
      code = MPI_Irecv(MPI_BOTTOM, 1, type, source, tag, c->hidden, request);
    }
    if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
  }
  if (code != MPI_SUCCESS) engine->free(engine->self, data, 0);
  return code;
}

SMPI_API_ int SMPI_Irecv(SMPI_View* view, MPI_Count count, MPI_Datatype datatype, int source,
                         int tag, MPI_Comm comm, MPI_Request* request) {
  struct smpi_comm_* c = smpi_find_(comm);
  uint64_t limit = 0;
  SMPI_View made;
  int code;
  if (c == 0) return smpi_raise_(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_COMM);
  smpi_progress_();
  code = view == 0 || request == 0 ? MPI_ERR_ARG : smpi_bytes_(count, datatype, &limit);
  if (code == MPI_SUCCESS) code = smpi_check_source_(c, source, tag);
  if (code != MPI_SUCCESS) return smpi_raise_(comm, code);
  made = smpi_view_new_(c);
  if (made == 0) return smpi_raise_(comm, MPI_ERR_NO_MEM);
  made->limit = limit;
  made->state = SMPI_PENDING_;
  if (source == MPI_PROC_NULL) {
    smpi_view_null_(made);
    code = MPI_Irecv(0, 0, MPI_BYTE, MPI_PROC_NULL, tag, c->hidden, request);
  } else if (smpi_unstash_(c, source, tag, made)) {
    code = smpi_done_(c, request);
  } else {
    code = smpi_irecv_(c, made, source, tag, request);
  }
  if (code != MPI_SUCCESS) {
    smpi_view_done_(made);
    return smpi_raise_(comm, code);
  }
  *view = made;
  return MPI_SUCCESS;
}

SMPI_API_ int SMPI_View_get(SMPI_View view, void* addressp, MPI_Status* status) {
  int code = MPI_SUCCESS;
  if (view != SMPI_VIEW_NULL && view->state == SMPI_OPEN_) {
    if (addressp != 0) *(const void**)addressp = view->address;
    smpi_status_(status, view->source, view->tag, view->bytes);
    return MPI_SUCCESS;
  }
  if (view == SMPI_VIEW_NULL || view->state == SMPI_IDLE_ || view->state == SMPI_RELEASED_) {
    return smpi_raise_(view == SMPI_VIEW_NULL ? MPI_COMM_WORLD : view->comm, MPI_ERR_ARG);
  }
  if (view->state == SMPI_PENDING_) code = smpi_settle_(view);
  if (addressp != 0) *(const void**)addressp = view->state == SMPI_OPEN_ ? view->address : 0;
  if (code == MPI_SUCCESS || code == MPI_ERR_TRUNCATE) {
    smpi_status_(status, view->source, view->tag, view->bytes);
  }
  return smpi_raise_(view->comm, code);
}

SMPI_API_ int SMPI_View_release(SMPI_View* view) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  SMPI_View ended = view != 0 ? *view : SMPI_VIEW_NULL;
  if (ended == SMPI_VIEW_NULL) return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_ARG);
  if (ended->state == SMPI_OPEN_ && ended->inlined) {
    smpi_view_done_(ended);
    *view = SMPI_VIEW_NULL;
    return MPI_SUCCESS;
  }
  if (ended->state == SMPI_RELEASED_ || ended->state == SMPI_IDLE_) {
    engine->released_twice(engine->self, ended->number);
    return smpi_raise_(ended->comm, MPI_ERR_ARG);
  }
  /* A receive that was cancelled, or whose view nobody has looked at. */
  if (ended->state == SMPI_PENDING_) smpi_settle_(ended);
  if (ended->state == SMPI_PENDING_ && ended->block != 0) {
    engine->free(engine->self, ended->block, 0);
  }
  if (ended->state == SMPI_OPEN_ && !ended->inlined) {
    engine->close(engine->self, &ended->place, ended->number);
  }
  smpi_view_done_(ended);
  *view = SMPI_VIEW_NULL;
  return MPI_SUCCESS;
}

SMPI_API_ int SMPI_View_own(SMPI_View* view, void* baseptr) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  SMPI_View ended = view != 0 ? *view : SMPI_VIEW_NULL;
  void* block = 0;
  int code = MPI_SUCCESS;
  if (ended == SMPI_VIEW_NULL || baseptr == 0 || ended->state == SMPI_RELEASED_ ||
      ended->state == SMPI_IDLE_) {
    return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_ARG);
  }
  if (ended->state == SMPI_PENDING_) code = smpi_settle_(ended);
  if (code == MPI_SUCCESS && ended->state != SMPI_OPEN_) code = MPI_ERR_ARG;
  if (code != MPI_SUCCESS) return smpi_raise_(ended->comm, code);
  if (ended->place.passed) {
    if (engine->own(engine->self, &ended->place, ended->number, smpi_site_, &block) !=
        OVERDRIVE_SMPI_OK) {
      return smpi_raise_(ended->comm, MPI_ERR_INTERN);
    }
    /* No message is under way from it any more. */
    ((struct smpi_head_*)((char*)block - OVERDRIVE_SMPI_HEAD_BYTES))->kind = SMPI_NOTHING_;
  } else {
    block = engine->alloc(engine->self, ended->bytes, smpi_site_);
    if (block == 0) return smpi_raise_(ended->comm, MPI_ERR_NO_MEM);
    if (ended->bytes > 0) memcpy(block, ended->address, (size_t)ended->bytes);
    if (!ended->inlined) engine->close(engine->self, &ended->place, ended->number);
  }
  smpi_view_done_(ended);
  *(void**)baseptr = block;
  *view = SMPI_VIEW_NULL;
  return MPI_SUCCESS;
}

/* Looks for a message, fetched or not; fetches it if need be. Blocking, or *flag tells. */
SMPI_API_ int smpi_probe_(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  struct smpi_comm_* c = smpi_find_(comm);
  struct smpi_stash_* stashed;
  struct smpi_head_ head;
  MPI_Message message;
  MPI_Status found;
  int code, there = 1;
  if (c == 0) return smpi_raise_(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_COMM);
  smpi_progress_();
  code = smpi_check_source_(c, source, tag);
  if (code != MPI_SUCCESS) return smpi_raise_(comm, code);
  if (source == MPI_PROC_NULL) {
    if (flag != 0) *flag = 1;
    smpi_status_(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    return MPI_SUCCESS;
  }
  memset(&head, 0, sizeof head);
  smpi_lock_();
  stashed = *smpi_stashed_(c, source, tag);
  if (stashed != 0) head = stashed->head;
  smpi_unlock_();
  if (stashed == 0) {
    code = flag == 0 ? MPI_Mprobe(source, tag, c->hidden, &message, &found)
                     : MPI_Improbe(source, tag, c->hidden, &there, &message, &found);
    if (code != MPI_SUCCESS || !there) {
      if (flag != 0) *flag = 0;
      return smpi_raise_(comm, code);
    }
    stashed = (struct smpi_stash_*)calloc(1, sizeof *stashed);
    if (stashed == 0) return smpi_raise_(comm, MPI_ERR_NO_MEM);
    code = smpi_take_(&message, &found, &stashed->head, &stashed->block);
    if (code != MPI_SUCCESS) {
      free(stashed);
      return smpi_raise_(comm, code);
    }
    head = stashed->head;
    smpi_lock_();
    *c->stash_end = stashed;
    c->stash_end = &stashed->next;
    smpi_unlock_();
  }
  if (flag != 0) *flag = 1;
  smpi_status_(status, head.source, head.tag, head.bytes);
  return MPI_SUCCESS;
}

SMPI_API_ int SMPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status) {
  return smpi_probe_(source, tag, comm, 0, status);
}

SMPI_API_ int SMPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  if (flag == 0) return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_ARG);
  return smpi_probe_(source, tag, comm, flag, status);
}

#endif /* OVERDRIVE_SMPI_VIEWS_H_ */
