/* Inside smpi.h: broadcast, scatter and allgather of views that do not wait.
 *
 * Each starts one collective call of the program's MPI on the hidden communicator and gives its
 * request to the program. Where all ranks are near each other that call carries descriptors, else
 * data into blocks of the ranks' own. Views are made of it in smpi_settle_, as of what is received.
 */
#ifndef OVERDRIVE_SMPI_ICOLLECTIVES_H_
#define OVERDRIVE_SMPI_ICOLLECTIVES_H_

#include "overdrive/smpi_collectives.h"

/* What the views of an allgather share; behind it lie the heads of all ranks. */
struct smpi_call_ {
  int views; /* that still need this */
  int ranks;
  int lent;    /* 0; 1: somebody is lending the block; 2: `place` is right */
  void* block; /* the data, if not all ranks are near */
  uint64_t bytes;
  struct overdrive_smpi_place place;
};

SMPI_API_ struct smpi_head_* smpi_heads_(struct smpi_call_* call) {
  return (struct smpi_head_*)(call + 1);
}

SMPI_API_ void smpi_call_drop_(struct smpi_call_* call) {
  /* Acquire and release: pairs with itself, what the others have read is read. */
  if (__atomic_sub_fetch(&call->views, 1, __ATOMIC_ACQ_REL) == 0) free(call);
}

SMPI_API_ int smpi_settle_call_(SMPI_View view) {
  struct smpi_call_* call = view->call;
  struct overdrive_smpi_place place;
  int nobody = 0;
  if (call->block == 0) {
    const struct smpi_head_* head = smpi_heads_(call) + view->source;
    if (!smpi_is_descriptor_(head)) return MPI_ERR_PENDING;
    smpi_place_(head, &place);
  } else {
    /* Whoever looks first lends the block to all views. Acquire: pairs with the release below. */
    if (__atomic_compare_exchange_n(&call->lent, &nobody, 1, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
      smpi_shelf_lend_(call->block, call->bytes, (uint32_t)call->ranks, &call->place);
      /* Release: pairs with the acquire above and below. */
      __atomic_store_n(&call->lent, 2, __ATOMIC_RELEASE);
    }
    /* Acquire: pairs with the release above. */
    while (__atomic_load_n(&call->lent, __ATOMIC_ACQUIRE) != 2) sched_yield();
    place = call->place;
    place.offset += view->from;
    place.bytes = view->limit;
  }
  view->call = 0;
  smpi_call_drop_(call);
  return smpi_view_open_(view, &place);
}

/* A view of what a call that has been started will bring. */
SMPI_API_ SMPI_View smpi_call_view_(struct smpi_comm_* c, uint64_t bytes, int source) {
  const SMPI_View view = smpi_view_new_(c);
  if (view == 0) return 0;
  view->state = SMPI_PENDING_;
  view->limit = bytes;
  view->source = source;
  view->tag = MPI_ANY_TAG;
  return view;
}

/* Broadcast, or with `scatter` a part for each rank. */
SMPI_API_ int smpi_iroot_(const void* buf, MPI_Count count, MPI_Datatype datatype, int root,
                          MPI_Comm comm, int scatter, SMPI_View* view, MPI_Request* request) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct overdrive_smpi_place place;
  uint64_t bytes = 0, whole, from;
  void* block = 0;
  SMPI_View made = 0;
  int code;
  struct smpi_comm_* c = smpi_collective_(comm, count, datatype, root,
                                          request == 0 ? (const void*)0 : view, &bytes, &code);
  if (c == 0) return code;
  smpi_progress_();
  whole = scatter ? bytes * (uint64_t)c->size : bytes;
  from = scatter ? bytes * (uint64_t)c->rank : 0;
  memset(&place, 0, sizeof place);
  if (c->all_near || c->rank != root) {
    made = smpi_call_view_(c, bytes, root);
    if (made == 0) code = MPI_ERR_NO_MEM;
  }
  if (code == MPI_SUCCESS && c->all_near) {
    made->from = from;
    if (c->rank == root) {
      code = smpi_lend_(buf, whole, (uint32_t)c->size, &place);
      place.bytes = bytes;
      smpi_descriptor_(&made->head, c, MPI_ANY_TAG, &place);
    }
    if (code == MPI_SUCCESS) {
      code = MPI_Ibcast(&made->head, (int)sizeof made->head, MPI_BYTE, root, c->hidden, request);
    }
  } else if (code == MPI_SUCCESS && c->rank == root) {
    /* Its own view is there at once; the others' data leaves from where it is. */
    engine->note_copy(engine->self, whole);
    code = smpi_lend_(buf, whole, 1, &place);
    if (code == MPI_SUCCESS) code = smpi_part_(c, &place, from, bytes, root, &made);
    block = (void*)(uintptr_t)buf;
  } else if (code == MPI_SUCCESS) {
    struct smpi_head_* front;
    code = smpi_shelf_(bytes, &block);
    if (code == MPI_SUCCESS) {
      made->block = block;
      front = (struct smpi_head_*)((char*)block - OVERDRIVE_SMPI_HEAD_BYTES);
      smpi_head_(front, c, MPI_ANY_TAG, bytes);
      front->source = root;
    }
  }
  if (code == MPI_SUCCESS && !c->all_near) {
    if (!scatter) {
      code = MPI_Ibcast(block, (int)bytes, MPI_BYTE, root, c->hidden, request);
    } else if (c->rank == root) {
      code = MPI_Iscatter(block, (int)bytes, MPI_BYTE, MPI_IN_PLACE, (int)bytes, MPI_BYTE, root,
                          c->hidden, request);
    } else {
      code = MPI_Iscatter(0, 0, MPI_BYTE, block, (int)bytes, MPI_BYTE, root, c->hidden, request);
    }
  }
  if (code != MPI_SUCCESS) {
    if (made != 0) smpi_view_done_(made);
    return smpi_raise_(comm, code);
  }
  *view = made;
  return MPI_SUCCESS;
}

SMPI_API_ int SMPI_Ibcast(const void* buf, MPI_Count count, MPI_Datatype datatype, int root,
                          MPI_Comm comm, SMPI_View* view, MPI_Request* request) {
  return smpi_iroot_(buf, count, datatype, root, comm, 0, view, request);
}

SMPI_API_ int SMPI_Iscatter(const void* buf, MPI_Count count, MPI_Datatype datatype, int root,
                            MPI_Comm comm, SMPI_View* view, MPI_Request* request) {
  return smpi_iroot_(buf, count, datatype, root, comm, 1, view, request);
}

SMPI_API_ int SMPI_Iallgather(const void* buf, MPI_Count count, MPI_Datatype datatype,
                              MPI_Comm comm, SMPI_View views[], MPI_Request* request) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct overdrive_smpi_place place;
  struct smpi_call_* call;
  uint64_t bytes = 0;
  int code, i, made;
  struct smpi_comm_* c = smpi_collective_(comm, count, datatype, 0,
                                          request == 0 ? (const void*)0 : views, &bytes, &code);
  if (c == 0) return code;
  smpi_progress_();
  call = (struct smpi_call_*)calloc(1, sizeof *call + (size_t)c->size * sizeof(struct smpi_head_));
  if (call == 0) return smpi_raise_(comm, MPI_ERR_NO_MEM);
  call->views = call->ranks = c->size;
  call->bytes = bytes * (uint64_t)c->size;
  for (made = 0; made < c->size; made++) {
    const SMPI_View view = smpi_call_view_(c, bytes, made);
    if (view == 0) break;
    view->call = call;
    view->from = bytes * (uint64_t)made;
    views[made] = view;
  }
  if (made < c->size) code = MPI_ERR_NO_MEM;
  if (code == MPI_SUCCESS && c->all_near) {
    struct smpi_head_* heads = smpi_heads_(call);
    code = smpi_lend_(buf, bytes, (uint32_t)c->size, &place);
    if (code == MPI_SUCCESS) {
      smpi_descriptor_(&heads[c->rank], c, MPI_ANY_TAG, &place);
      code = MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, heads, (int)sizeof *heads, MPI_BYTE,
                            c->hidden, request);
    }
  } else if (code == MPI_SUCCESS) {
    engine->note_copy(engine->self, call->bytes);
    code = smpi_shelf_(call->bytes, &call->block);
    if (code == MPI_SUCCESS) {
      code = MPI_Iallgather(buf, (int)bytes, MPI_BYTE, call->block, (int)bytes, MPI_BYTE, c->hidden,
                            request);
    }
  }
  if (code == MPI_SUCCESS) return MPI_SUCCESS;
  for (i = 0; i < made; i++) {
    smpi_view_done_(views[i]);
    views[i] = SMPI_VIEW_NULL;
  }
  if (call->block != 0) engine->free(engine->self, call->block, 0);
  free(call);
  return smpi_raise_(comm, code);
}

#endif /* OVERDRIVE_SMPI_ICOLLECTIVES_H_ */
