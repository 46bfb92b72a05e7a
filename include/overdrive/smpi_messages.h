/* Inside smpi.h: sending, receiving, probing, views. */
#ifndef OVERDRIVE_SMPI_MESSAGES_H_
#define OVERDRIVE_SMPI_MESSAGES_H_

#include "overdrive/smpi_short.h"

/* A message that a probe has fetched. */
struct smpi_stash_ {
  struct smpi_head_ head; /* of a near message */
  void* block;            /* with a far one */
  struct smpi_stash_* next;
};

/* Where the head of what a view receives is, unless that has a block. */
SMPI_HOT_ struct smpi_head_* smpi_view_head_(SMPI_View view) {
  return view->large != 0 ? &view->large->head : &view->head;
}

/* Up to this size the data of a far message is copied behind its head. */
#define SMPI_COPY_BYTES_ 4096u
/* The datatype of a head and of data that may lie elsewhere, both by address. */
SMPI_API_ int smpi_span_(const void* head, const void* data, uint64_t bytes, MPI_Datatype* type) {
  MPI_Datatype mebi = MPI_DATATYPE_NULL, types[3];
  MPI_Aint places[3];
  int lengths[3], code;
  lengths[0] = (int)sizeof(struct smpi_head_);
  lengths[1] = (int)(bytes >> 20);
  lengths[2] = (int)(bytes & 0xfffff);
  MPI_Get_address(head, &places[0]);
  MPI_Get_address(data, &places[1]);
  places[2] = places[1] + (MPI_Aint)(bytes - (bytes & 0xfffff));
  code = MPI_Type_contiguous(1 << 20, MPI_BYTE, &mebi);
  if (code != MPI_SUCCESS) return code;
  types[0] = types[2] = MPI_BYTE;
  types[1] = mebi;
  code = MPI_Type_create_struct(3, lengths, places, types, type);
  if (code == MPI_SUCCESS) code = MPI_Type_commit(type);
  MPI_Type_free(&mebi);
  return code;
}

/* A request that is complete. */
SMPI_API_ int smpi_done_(struct smpi_comm_* c, MPI_Request* request) {
  return MPI_Isend(0, 0, MPI_BYTE, MPI_PROC_NULL, 0, c->hidden, request);
}

SMPI_API_ void smpi_head_(struct smpi_head_* head, const struct smpi_comm_* c, int tag,
                          uint64_t bytes) {
  memset(head, 0, sizeof *head);
  head->kind = SMPI_DATA_;
  head->source = c->rank;
  head->tag = tag;
  head->bytes = bytes;
}

SMPI_HOT_ void smpi_descriptor_(struct smpi_head_* head, const struct smpi_comm_* c, int tag,
                                const struct overdrive_smpi_place* place) {
  smpi_begin_head_(head, c, place->passed ? SMPI_PASSED_ : SMPI_LENT_, tag, place->home);
  head->bytes = place->bytes;
  head->block = place->block;
  head->offset = place->offset;
  head->unused = 0;
}

SMPI_HOT_ int smpi_is_descriptor_(const struct smpi_head_* head) {
  return head->kind == SMPI_LENT_ || head->kind == SMPI_PASSED_;
}

SMPI_HOT_ void smpi_place_(const struct smpi_head_* head, struct overdrive_smpi_place* place) {
  place->block = head->block;
  place->offset = head->offset;
  place->bytes = head->bytes;
  place->home = head->home;
  place->passed = head->kind == SMPI_PASSED_;
}

/* Sends head and data at once, past MPI. False: not sent. */
SMPI_HOT_ int smpi_at_once_(const struct smpi_comm_* c, const struct smpi_head_* head,
                            const void* data, uint64_t bytes, int dest, int tag) {
  return c->messages != 0 &&
         smpi_process_state_.engine->send_short(c->messages, head, data, (uint32_t)bytes, dest,
                                                tag) == OVERDRIVE_SMPI_OK;
}

/* The same for a descriptor. */
SMPI_HOT_ int smpi_descriptor_at_once_(const struct smpi_comm_* c, const struct smpi_head_* head,
                                       int dest, int tag) {
  return smpi_at_once_(c, head, (const char*)head + SMPI_SHORT_HEAD_BYTES_,
                       SMPI_DESCRIPTOR_BYTES_ - SMPI_SHORT_HEAD_BYTES_, dest, tag);
}

/* Tells a near rank where the data is. */
SMPI_HOT_ int smpi_tell_(struct smpi_comm_* c, const struct overdrive_smpi_place* place, int dest,
                         int tag, int may_block) {
  struct smpi_pending_* one;
  struct smpi_head_ head;
  int code, complete = 0;
  smpi_descriptor_(&head, c, tag, place);
  if (smpi_descriptor_at_once_(c, &head, dest, tag)) return MPI_SUCCESS;
  if (may_block && !smpi_process_state_.local && !(dest == c->rank && !c->is_inter)) {
    /* Overdrive's short messages need no receiver. */
    return MPI_Send(&head, SMPI_DESCRIPTOR_BYTES_, MPI_BYTE, dest, tag, c->hidden);
  }
  one = smpi_pending_new_();
  if (one == 0) return MPI_ERR_NO_MEM;
  one->head = head;
  one->block = 0;
  one->near = 1;
  code =
      MPI_Isend(&one->head, SMPI_DESCRIPTOR_BYTES_, MPI_BYTE, dest, tag, c->hidden, &one->request);
  if (code != MPI_SUCCESS) {
    free(one);
    return code;
  }
  MPI_Test(&one->request, &complete, MPI_STATUS_IGNORE);
  smpi_pending_keep_(one, complete);
  return MPI_SUCCESS;
}

/* How many bytes a message has. */
SMPI_HOT_ uint64_t smpi_length_(const struct smpi_head_* head) {
  return head->kind == SMPI_SHORT_ ? head->home : head->bytes;
}

/* Sends a short message to a near rank, data and all. */
SMPI_HOT_ int smpi_send_inline_(struct smpi_comm_* c, const void* buf, uint64_t bytes, int dest,
                                int tag, int may_block) {
  struct smpi_pending_* one;
  struct smpi_head_ head;
  int code, length, complete = 0;
  smpi_begin_head_(&head, c, SMPI_SHORT_, tag, (uint32_t)bytes);
  if (smpi_at_once_(c, &head, buf, bytes, dest, tag)) return MPI_SUCCESS;
  if (may_block && !smpi_process_state_.local && !(dest == c->rank && !c->is_inter)) {
    struct {
      struct smpi_head_ head;
      char room[SMPI_INLINE_BYTES_];
    } message;
    length = smpi_short_(&message.head, c, tag, buf, bytes);
    return MPI_Send(&message, length, MPI_BYTE, dest, tag, c->hidden);
  }
  one = smpi_pending_new_();
  if (one == 0) return MPI_ERR_NO_MEM;
  length = smpi_short_(&one->head, c, tag, buf, bytes);
  one->block = 0;
  one->near = 1;
  code = MPI_Isend(&one->head, length, MPI_BYTE, dest, tag, c->hidden, &one->request);
  if (code != MPI_SUCCESS) {
    free(one);
    return code;
  }
  MPI_Test(&one->request, &complete, MPI_STATUS_IGNORE);
  smpi_pending_keep_(one, complete);
  return MPI_SUCCESS;
}

/* The same with more data, as a call that may wait. */
SMPI_API_ int smpi_send_copied_(struct smpi_comm_* c, const void* buf, uint64_t bytes, int dest,
                                int tag, const struct overdrive_smpi_place* place) {
  struct smpi_head_* front =
      (struct smpi_head_*)((char*)(uintptr_t)buf - OVERDRIVE_SMPI_HEAD_BYTES);
  struct {
    struct smpi_head_ head;
    char room[SMPI_COPIED_BYTES_];
  } message;
  if (place->offset == place->block && smpi_process_state_.alone && front->kind == SMPI_NOTHING_) {
    /* The room in front of the block is free: the head goes right before the data. */
    struct smpi_head_* head = (struct smpi_head_*)((char*)(uintptr_t)buf - SMPI_SHORT_HEAD_BYTES_);
    smpi_begin_head_(head, c, SMPI_SHORT_, tag, (uint32_t)bytes);
    return MPI_Send(head, (int)(SMPI_SHORT_HEAD_BYTES_ + bytes), MPI_BYTE, dest, tag, c->hidden);
  }
  return MPI_Send(&message, smpi_short_(&message.head, c, tag, buf, bytes), MPI_BYTE, dest, tag,
                  c->hidden);
}

/* Whether the engine may be asked if a message had better be copied. */
SMPI_HOT_ int smpi_may_copy_(const struct smpi_comm_* c, uint64_t bytes, int dest) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  return bytes <= SMPI_COPIED_BYTES_ && !smpi_process_state_.local &&
         !(dest == c->rank && !c->is_inter) &&
         engine->size_bytes >= offsetof(struct overdrive_smpi_engine, offer) + sizeof(void*);
}

/* Lends [buf, buf + bytes), or a copy of it where that is not in a block. */
SMPI_HOT_ int smpi_lend_(const void* buf, uint64_t bytes, uint32_t views,
                         struct overdrive_smpi_place* place) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  void* copy;
  if (engine->lend(engine->self, buf, bytes, views, place) == OVERDRIVE_SMPI_OK) return MPI_SUCCESS;
  copy = engine->alloc(engine->self, bytes, "a copy of memory that is not in a block");
  if (copy == 0) return MPI_ERR_NO_MEM;
  if (bytes > 0) memcpy(copy, buf, (size_t)bytes);
  engine->lend(engine->self, copy, bytes, views, place);
  engine->free(engine->self, copy, 0);
  return MPI_SUCCESS;
}

/* Whether the message may leave with its head in front of the block; *fresh: nobody else uses it.
 */
SMPI_API_ int smpi_in_place_(const void* buf, uint64_t bytes, const struct smpi_head_* head,
                             int* fresh) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct smpi_head_* front;
  uint64_t capacity;
  int fits;
  if (bytes + sizeof *head > SMPI_INT_BYTES_ ||
      engine->capacity(engine->self, buf, &capacity) != OVERDRIVE_SMPI_OK) {
    return 0;
  }
  front = smpi_front_(buf);
  smpi_lock_();
  *fresh = front->kind == SMPI_NOTHING_;
  if (*fresh) *front = *head;
  fits = memcmp(front, head, sizeof *head) == 0;
  smpi_unlock_();
  return fits;
}

SMPI_API_ int smpi_send_far_(struct smpi_comm_* c, const void* buf, uint64_t bytes, int dest,
                             int tag) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  char small[sizeof(struct smpi_head_) + SMPI_COPY_BYTES_];
  struct smpi_head_ head;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int code, fresh = 0;
  engine->note_copy(engine->self, bytes);
  smpi_head_(&head, c, tag, bytes);
  if (bytes <= SMPI_COPY_BYTES_) {
    memcpy(small, &head, sizeof head);
    if (bytes > 0) memcpy(small + sizeof head, buf, (size_t)bytes);
    return MPI_Send(small, (int)(sizeof head + bytes), MPI_BYTE, dest, tag, c->hidden);
  }
  if (smpi_in_place_(buf, bytes, &head, &fresh)) {
    char* front = (char*)buf - OVERDRIVE_SMPI_HEAD_BYTES;
    code = MPI_Send(front, (int)(sizeof head + bytes), MPI_BYTE, dest, tag, c->hidden);
    if (fresh) ((struct smpi_head_*)front)->kind = SMPI_NOTHING_;
    return code;
  }
  code = smpi_span_(&head, buf, bytes, &type);
  if (code == MPI_SUCCESS) code = MPI_Send(MPI_BOTTOM, 1, type, dest, tag, c->hidden);
  if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
  return code;
}

/* Whether the engine frees the block when the program has completed the request. */
SMPI_API_ int smpi_freed_after_(void* block, const MPI_Request* request) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  return engine->size_bytes >= offsetof(struct overdrive_smpi_engine, free_after) + sizeof(void*) &&
         engine->free_after != 0 &&
         engine->free_after(engine->self, block, request) == OVERDRIVE_SMPI_OK;
}

/* Sends the head and the data of a block that nobody else uses, and frees the block afterwards. The
 * program gets the request itself if somebody knows when it completes that: what waits for it then
 * moves the data on. Else the data moves on in later calls, and the program's request, if it wants
 * one, is complete. */
SMPI_API_ int smpi_isend_block_(struct smpi_comm_* c, void* block, const struct smpi_head_* head,
                                int dest, int tag, MPI_Request* request) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct smpi_pending_* one = smpi_pending_new_();
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int code, in_place, fresh = 0, complete = 0;
  if (one == 0) return MPI_ERR_NO_MEM;
  in_place = smpi_in_place_(block, head->bytes, head, &fresh);
  one->head = *head;
  one->block = block;
  one->near = 0;
  if (in_place) {
    code = MPI_Isend((char*)block - OVERDRIVE_SMPI_HEAD_BYTES, (int)(sizeof *head + head->bytes),
                     MPI_BYTE, dest, tag, c->hidden, &one->request);
  } else {
    code = smpi_span_(&one->head, block, head->bytes, &type);
    if (code == MPI_SUCCESS) {
      code = MPI_Isend(MPI_BOTTOM, 1, type, dest, tag, c->hidden, &one->request);
    }
    if (type != MPI_DATATYPE_NULL) MPI_Type_free(&type);
  }
  if (code != MPI_SUCCESS) {
    if (fresh) smpi_front_(block)->kind = SMPI_NOTHING_;
    free(one);
    return code;
  }
  MPI_Test(&one->request, &complete, MPI_STATUS_IGNORE);
  if (complete) {
    engine->free(engine->self, block, 0);
    smpi_pending_keep_(one, 1);
  } else if (in_place && request != 0 && smpi_freed_after_(block, &one->request)) {
    *request = one->request;
    smpi_pending_keep_(one, 1);
    return MPI_SUCCESS;
  } else {
    smpi_pending_add_(one);
  }
  return request != 0 ? smpi_done_(c, request) : MPI_SUCCESS;
}

SMPI_API_ int smpi_isend_far_(struct smpi_comm_* c, const void* buf, uint64_t bytes, int dest,
                              int tag, MPI_Request* request) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct smpi_head_ head;
  void* copy;
  int code, fresh;
  engine->note_copy(engine->self, bytes);
  smpi_head_(&head, c, tag, bytes);
  if (smpi_in_place_(buf, bytes, &head, &fresh)) {
    return MPI_Isend((char*)buf - OVERDRIVE_SMPI_HEAD_BYTES, (int)(sizeof head + bytes), MPI_BYTE,
                     dest, tag, c->hidden, request);
  }
  copy = engine->alloc(engine->self, bytes, "a copy of a message under way");
  if (copy == 0) return MPI_ERR_NO_MEM;
  if (bytes > 0) memcpy(copy, buf, (size_t)bytes);
  code = smpi_isend_block_(c, copy, &head, dest, tag, request);
  if (code != MPI_SUCCESS) engine->free(engine->self, copy, 0);
  return code;
}

SMPI_HOT_ int smpi_check_send_(const struct smpi_comm_* c, const void* buf, MPI_Count count,
                               MPI_Datatype datatype, int dest, int tag, uint64_t* bytes) {
  const int code = smpi_bytes_(count, datatype, bytes);
  if (code != MPI_SUCCESS) return code;
  if (dest != MPI_PROC_NULL && (dest < 0 || dest >= c->size)) return MPI_ERR_RANK;
  if (tag < 0 || tag > c->tag_ub) return MPI_ERR_TAG;
  return buf == 0 && *bytes > 0 ? MPI_ERR_BUFFER : MPI_SUCCESS;
}

/* All four ways of sending: request null: blocking. */
SMPI_HOT_ int smpi_start_(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest,
                          int tag, MPI_Comm comm, int pass, MPI_Request* request) {
  struct smpi_comm_* c = smpi_find_(comm);
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct overdrive_smpi_place place;
  struct smpi_head_ head;
  uint64_t bytes = 0, capacity = 0;
  void* block = (void*)(uintptr_t)buf;
  int code;
  if (c == 0) return smpi_raise_(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_COMM);
  smpi_progress_();
  code = smpi_check_send_(c, buf, count, datatype, dest, tag, &bytes);
  if (code != MPI_SUCCESS) return smpi_raise_(comm, code);
  if (pass && (buf == 0 || engine->capacity(engine->self, buf, &capacity) != OVERDRIVE_SMPI_OK ||
               bytes > capacity)) {
    return smpi_raise_(comm, MPI_ERR_BUFFER);
  }
  if (dest == MPI_PROC_NULL) {
    if (pass) engine->free(engine->self, block, 0);
    return request != 0 ? smpi_done_(c, request) : MPI_SUCCESS;
  }
  if (c->near[dest] && !pass && bytes <= SMPI_INLINE_BYTES_ && !engine->debug) {
    code = smpi_send_inline_(c, buf, bytes, dest, tag, request == 0);
    if (code == MPI_SUCCESS && request != 0) code = smpi_done_(c, request);
    return smpi_raise_(comm, code);
  }
  if (c->near[dest]) {
    if (!pass) {
      code = request == 0 && smpi_may_copy_(c, bytes, dest)
                 ? engine->offer(engine->self, buf, bytes, &place)
                 : OVERDRIVE_SMPI_NOT_A_BLOCK;
      if (code == OVERDRIVE_SMPI_BY_CONTENT) {
        return smpi_raise_(comm, smpi_send_copied_(c, buf, bytes, dest, tag, &place));
      }
      code = code == OVERDRIVE_SMPI_OK ? MPI_SUCCESS : smpi_lend_(buf, bytes, 1, &place);
    } else if (engine->pass(engine->self, block, bytes, &place) != OVERDRIVE_SMPI_OK) {
      code = MPI_ERR_BUFFER;
    }
    if (code != MPI_SUCCESS) return smpi_raise_(comm, code);
    code = smpi_tell_(c, &place, dest, tag, request == 0);
    if (code != MPI_SUCCESS) {
      engine->take_back(engine->self, &place, 1);
    } else if (request != 0) {
      code = smpi_done_(c, request);
    }
    return smpi_raise_(comm, code);
  }
  if (!pass) {
    code = request == 0 ? smpi_send_far_(c, buf, bytes, dest, tag)
                        : smpi_isend_far_(c, buf, bytes, dest, tag, request);
    return smpi_raise_(comm, code);
  }
  engine->note_copy(engine->self, bytes);
  smpi_head_(&head, c, tag, bytes);
  return smpi_raise_(comm, smpi_isend_block_(c, block, &head, dest, tag, request));
}

/* The communicator if this thread has used it last and nothing has to be done before. */
SMPI_HOT_ struct smpi_comm_* smpi_quick_comm_(MPI_Comm comm) {
  const struct smpi_last_* last = &smpi_last_comm_;
  const struct smpi_process_* p = &smpi_process_state_;
  /* Relaxed: as in smpi_find_ and smpi_progress_. */
  if (last->found == 0 || last->comm != comm ||
      last->generation != __atomic_load_n(&p->generation, __ATOMIC_RELAXED) ||
      __atomic_load_n(&p->pending, __ATOMIC_RELAXED) != 0) {
    return 0;
  }
  return last->found;
}

/* How many bytes a short message of this shape has; more than a short one may have: it is none. */
SMPI_HOT_ uint64_t smpi_quick_bytes_(MPI_Count count, MPI_Datatype datatype) {
  const uint64_t size = smpi_known_size_(datatype);
  if (size == 0 || (uint64_t)count > SMPI_INLINE_BYTES_) return ~(uint64_t)0;
  return (uint64_t)count * size;
}

/* What a short message to a near rank needs and no more. False: not sent, it goes the way of all
 * others. */
SMPI_HOT_ int smpi_quick_send_(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest,
                               int tag, MPI_Comm comm) {
  const struct smpi_comm_* c = smpi_quick_comm_(comm);
  const uint64_t bytes = smpi_quick_bytes_(count, datatype);
  struct smpi_head_ head;
  if (c == 0 || bytes > SMPI_INLINE_BYTES_ || buf == 0 || (unsigned)dest >= (unsigned)c->size ||
      !c->quick[dest] || (unsigned)tag > (unsigned)c->tag_ub) {
    return 0;
  }
  smpi_begin_head_(&head, c, SMPI_SHORT_, tag, (uint32_t)bytes);
  return smpi_at_once_(c, &head, buf, bytes, dest, tag);
}

SMPI_API_ int SMPI_Send(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                        MPI_Comm comm) {
  if (smpi_quick_send_(buf, count, datatype, dest, tag, comm)) return MPI_SUCCESS;
  return smpi_start_(buf, count, datatype, dest, tag, comm, 0, 0);
}

SMPI_API_ int SMPI_Isend(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  return smpi_start_(buf, count, datatype, dest, tag, comm, 0, request);
}

SMPI_API_ int SMPI_Pass(void* base, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                        MPI_Comm comm) {
  return smpi_start_(base, count, datatype, dest, tag, comm, 1, 0);
}

SMPI_API_ int SMPI_Ipass(void* base, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  return smpi_start_(base, count, datatype, dest, tag, comm, 1, request);
}

#endif /* OVERDRIVE_SMPI_MESSAGES_H_ */
