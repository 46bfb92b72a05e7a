/* Inside smpi.h: attaching communicators, blocks as the program sees them. */
#ifndef OVERDRIVE_SMPI_COMM_H_
#define OVERDRIVE_SMPI_COMM_H_

#include "overdrive/smpi_core.h"

/* Completes our own sends as far as they are done, or, at the end, all of them. */
SMPI_API_ void smpi_complete_(int at_the_end) {
  struct smpi_process_* p = &smpi_process_state_;
  struct smpi_pending_ *done = 0, **at;
  int looks = 0;
  smpi_lock_();
  for (at = &p->pending; *at != 0 && looks < 4;) {
    struct smpi_pending_* one = *at;
    int complete = 0;
    /* Overdrive has completed what was near when MPI_Finalize began. */
    if (!at_the_end) {
      MPI_Test(&one->request, &complete, MPI_STATUS_IGNORE);
    } else if (p->local || !one->near) {
      MPI_Wait(&one->request, MPI_STATUS_IGNORE);
      complete = 1;
    }
    if (complete) {
      *at = one->next;
      one->next = done;
      done = one;
    } else {
      at = &one->next;
      looks += !at_the_end;
    }
  }
  /* The end may have gone. */
  for (p->pending_end = &p->pending; *p->pending_end != 0;) {
    p->pending_end = &(*p->pending_end)->next;
  }
  smpi_unlock_();
  while (done != 0) {
    struct smpi_pending_* one = done;
    done = one->next;
    if (one->block != 0) p->engine->free(p->engine->self, one->block, 0);
    smpi_lock_();
    one->next = p->spare;
    p->spare = one;
    smpi_unlock_();
  }
}

SMPI_HOT_ void smpi_progress_(void) {
  /* Relaxed: a thread's own sends are there, and nobody waits for others' here. */
  if (__atomic_load_n(&smpi_process_state_.pending, __ATOMIC_RELAXED) != 0) smpi_complete_(0);
}

SMPI_API_ struct smpi_pending_* smpi_pending_new_(void) {
  struct smpi_process_* p = &smpi_process_state_;
  struct smpi_pending_* one;
  smpi_lock_();
  one = p->spare;
  if (one != 0) p->spare = one->next;
  smpi_unlock_();
  return one != 0 ? one : (struct smpi_pending_*)malloc(sizeof *one);
}

SMPI_API_ void smpi_pending_add_(struct smpi_pending_* one) {
  struct smpi_process_* p = &smpi_process_state_;
  one->next = 0;
  smpi_lock_();
  if (p->pending == 0) p->pending_end = &p->pending;
  *p->pending_end = one;
  p->pending_end = &one->next;
  smpi_unlock_();
}

/* One whose send has just been started: in the list, or for reuse. */
SMPI_API_ void smpi_pending_keep_(struct smpi_pending_* one, int complete) {
  if (!complete) {
    smpi_pending_add_(one);
    return;
  }
  smpi_lock_();
  one->next = smpi_process_state_.spare;
  smpi_process_state_.spare = one;
  smpi_unlock_();
}

/* MPI frees the attributes of MPI_COMM_SELF first of all in MPI_Finalize. */
SMPI_API_ int smpi_at_finalize_(MPI_Comm comm, int keyval, void* value, void* extra) {
  (void)comm, (void)keyval, (void)value, (void)extra;
  smpi_complete_(1);
  return MPI_SUCCESS;
}

SMPI_API_ void smpi_comm_free_(struct smpi_comm_* c) {
  if (c->node != MPI_COMM_NULL && c->node != c->hidden) MPI_Comm_free(&c->node);
  if (c->leaders != MPI_COMM_NULL && c->leaders != c->hidden) MPI_Comm_free(&c->leaders);
  if (c->hidden != MPI_COMM_NULL) MPI_Comm_free(&c->hidden);
  free(c->near);
  free(c->quick);
  free(c->group_of);
  free(c->position);
  free(c->group_sizes);
  free(c);
}

SMPI_API_ int smpi_comm_deleted_(MPI_Comm comm, int keyval, void* value, void* extra) {
  (void)comm, (void)keyval, (void)extra;
  __atomic_fetch_add(&smpi_process_state_.generation, 1, __ATOMIC_RELAXED);
  smpi_comm_free_((struct smpi_comm_*)value);
  return MPI_SUCCESS;
}

SMPI_API_ int smpi_begin_(void) {
  struct smpi_process_* p = &smpi_process_state_;
  int code = MPI_SUCCESS, keyval, threads = MPI_THREAD_MULTIPLE;
  if (smpi_engine_() == 0) return MPI_ERR_OTHER;
  smpi_lock_();
  if (!p->begun) {
    code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, smpi_comm_deleted_, &p->keyval, 0);
    if (code == MPI_SUCCESS) {
      code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, smpi_at_finalize_, &keyval, 0);
    }
    if (code == MPI_SUCCESS) code = MPI_Comm_set_attr(MPI_COMM_SELF, keyval, p);
    p->begun = code == MPI_SUCCESS;
  }
  smpi_unlock_();
  MPI_Query_thread(&threads);
  /* Below that level the program keeps its threads apart itself. */
  if (threads < MPI_THREAD_MULTIPLE) p->alone = 1;
  return code;
}

/* What ranks tell each other when a communicator is attached. */
struct smpi_card_ {
  uint64_t group[2];
  int32_t member;
  int32_t has_engine;
};

SMPI_API_ int smpi_same_group_(const struct smpi_card_* a, const struct smpi_card_* b) {
  return a->has_engine && b->has_engine && a->group[0] == b->group[0] && a->group[1] == b->group[1];
}

/* How the engine knows a communicator, if it sends and receives short messages itself. */
SMPI_API_ void* smpi_messages_(MPI_Comm comm) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  if (smpi_process_state_.local ||
      engine->size_bytes < offsetof(struct overdrive_smpi_engine, recv_short) + sizeof(void*) ||
      engine->messages == 0) {
    return 0;
  }
  return engine->messages(engine->self, &comm);
}

/* Who is near, and how the ranks fall into groups. */
SMPI_API_ int smpi_group_(struct smpi_comm_* c, const struct smpi_card_* mine,
                          const struct smpi_card_* all) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  int i, first;
  c->all_near = c->none_near = 1;
  for (i = 0; i < c->size; i++) {
    const int self = !c->is_inter && i == c->rank;
    c->near[i] = (unsigned char)(self || smpi_same_group_(mine, &all[i]));
    /* To oneself a send might wait, and the debug mode has views of everything. */
    c->quick[i] = c->near[i] && !self && !engine->debug;
    c->all_near &= c->near[i];
    c->none_near &= !c->near[i] || self;
  }
  if (c->is_inter) return MPI_SUCCESS;
  for (i = 0; i < c->size; i++) {
    /* Ranks of a group stand close together in most jobs: the last one is asked first. */
    for (first = i - 1; first >= 0 && !smpi_same_group_(&all[first], &all[i]); first--) continue;
    c->group_of[i] = first >= 0 ? c->group_of[first] : c->groups++;
    c->position[i] = c->group_sizes[c->group_of[i]]++;
  }
  if (c->all_near) {
    c->node = c->hidden;
    return MPI_SUCCESS;
  }
  if (c->groups == c->size) {
    c->leaders = c->hidden;
    return MPI_SUCCESS;
  }
  i = MPI_Comm_split(c->hidden, c->group_of[c->rank], c->rank, &c->node);
  if (i != MPI_SUCCESS) return i;
  MPI_Comm_set_errhandler(c->node, MPI_ERRORS_RETURN);
  i = MPI_Comm_split(c->hidden, c->position[c->rank] == 0 ? 0 : MPI_UNDEFINED, c->rank,
                     &c->leaders);
  if (i == MPI_SUCCESS && c->leaders != MPI_COMM_NULL) {
    MPI_Comm_set_errhandler(c->leaders, MPI_ERRORS_RETURN);
  }
  return i;
}

SMPI_API_ int SMPI_Comm_attach(MPI_Comm comm) {
  struct smpi_comm_* c;
  struct smpi_card_ mine, *all;
  int code, flag = 0, *tag_ub = 0;
  if (comm == MPI_COMM_NULL) return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_COMM);
  code = smpi_begin_();
  if (code != MPI_SUCCESS) return smpi_raise_(comm, code);
  if (smpi_find_(comm) != 0) return MPI_SUCCESS;
  c = (struct smpi_comm_*)calloc(1, sizeof *c);
  if (c == 0) return smpi_raise_(comm, MPI_ERR_NO_MEM);
  c->user = comm;
  c->hidden = c->node = c->leaders = MPI_COMM_NULL;
  c->stash_end = &c->stash;
  MPI_Comm_rank(comm, &c->rank);
  MPI_Comm_test_inter(comm, &c->is_inter);
  if (c->is_inter) {
    MPI_Comm_remote_size(comm, &c->size);
  } else {
    MPI_Comm_size(comm, &c->size);
  }
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &flag);
  c->tag_ub = flag ? *tag_ub : 32767;
  c->near = (unsigned char*)calloc((size_t)c->size, 1);
  c->quick = (unsigned char*)calloc((size_t)c->size, 1);
  c->group_of = (int*)calloc((size_t)c->size, sizeof(int));
  c->position = (int*)calloc((size_t)c->size, sizeof(int));
  c->group_sizes = (int*)calloc((size_t)c->size, sizeof(int));
  all = (struct smpi_card_*)calloc((size_t)c->size, sizeof *all);
  memset(&mine, 0, sizeof mine);
  mine.group[0] = smpi_process_state_.engine->group[0];
  mine.group[1] = smpi_process_state_.engine->group[1];
  mine.member = smpi_process_state_.engine->member;
  mine.has_engine = !smpi_process_state_.local;
  code = MPI_ERR_NO_MEM;
  if (c->near && c->quick && c->group_of && c->position && c->group_sizes && all) {
    code = MPI_Comm_dup(comm, &c->hidden);
  }
  if (code == MPI_SUCCESS) {
    MPI_Comm_set_errhandler(c->hidden, MPI_ERRORS_RETURN);
    code = MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE,
                         c->hidden);
  }
  if (code == MPI_SUCCESS) code = smpi_group_(c, &mine, all);
  if (code == MPI_SUCCESS) c->messages = smpi_messages_(c->hidden);
  free(all);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_attr(comm, smpi_process_state_.keyval, c);
  if (code != MPI_SUCCESS) smpi_comm_free_(c);
  return smpi_raise_(comm, code);
}

SMPI_API_ int SMPI_Comm_detach(MPI_Comm comm) {
  if (smpi_find_(comm) == 0) {
    return smpi_raise_(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_COMM);
  }
  return MPI_Comm_delete_attr(comm, smpi_process_state_.keyval);
}

SMPI_API_ int SMPI_Comm_near(MPI_Comm comm, int rank, int* flag) {
  const struct smpi_comm_* c = smpi_find_(comm);
  if (c == 0) return smpi_raise_(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_COMM);
  if (rank < 0 || rank >= c->size) return smpi_raise_(comm, MPI_ERR_RANK);
  *flag = c->near[rank];
  return MPI_SUCCESS;
}

SMPI_API_ int SMPI_Alloc(MPI_Aint size, void* baseptr) {
  const struct overdrive_smpi_engine* engine = smpi_engine_();
  void* block;
  if (engine == 0) return MPI_ERR_OTHER;
  if (size < 0 || baseptr == 0) return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_ARG);
  smpi_progress_();
  block = engine->alloc(engine->self, (uint64_t)size, smpi_site_);
  if (block == 0) return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
  *(void**)baseptr = block;
  return MPI_SUCCESS;
}

SMPI_API_ int SMPI_Free(void* base) {
  const struct overdrive_smpi_engine* engine = smpi_engine_();
  if (engine == 0) return MPI_ERR_OTHER;
  if (base == 0 || engine->free(engine->self, base, smpi_site_) != OVERDRIVE_SMPI_OK) {
    return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_BUFFER);
  }
  return MPI_SUCCESS;
}

SMPI_API_ int SMPI_Lent(const void* base, int* views) {
  const struct overdrive_smpi_engine* engine = smpi_engine_();
  const int64_t found = engine != 0 && base != 0 ? engine->lent(engine->self, base) : -1;
  if (found < 0) return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_BUFFER);
  *views = (int)found;
  return MPI_SUCCESS;
}

SMPI_API_ int SMPI_Reclaim(const void* base) {
  const struct overdrive_smpi_engine* engine = smpi_engine_();
  unsigned rounds;
  for (rounds = 1;; rounds++) {
    const int64_t found = engine != 0 && base != 0 ? engine->lent(engine->self, base) : -1;
    if (found < 0) return smpi_raise_(MPI_COMM_WORLD, MPI_ERR_BUFFER);
    if (found == 0) return MPI_SUCCESS;
    if (rounds < 64) continue;
    if (rounds % 16 == 0) {
      /* Viewers may need this rank's progress before they let go. */
      int flag;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
      smpi_progress_();
    }
    engine->pause(engine->self);
  }
}

#endif /* OVERDRIVE_SMPI_COMM_H_ */
