/* Inside smpi.h: views, short messages, and the quick way of the latter. */
#ifndef OVERDRIVE_SMPI_SHORT_H_
#define OVERDRIVE_SMPI_SHORT_H_

#include "overdrive/smpi_comm.h"

/* What a near message has at most; head and data of a view lie together. */
#define SMPI_NEAR_BYTES_ (SMPI_SHORT_HEAD_BYTES_ + SMPI_COPIED_BYTES_)
/* So much of it a view holds by itself. */
#define SMPI_HELD_BYTES_ (SMPI_SHORT_HEAD_BYTES_ + SMPI_INLINE_BYTES_)

/* Longer messages are counted in units of a MiB. */
#define SMPI_INT_BYTES_ ((uint64_t)INT_MAX)

/* The size of the commonest datatypes, which need not be asked for; 0: of none of them. */
SMPI_HOT_ uint64_t smpi_known_size_(MPI_Datatype datatype) {
  if (datatype == MPI_BYTE || datatype == MPI_CHAR) return 1;
  if (datatype == MPI_DOUBLE) return sizeof(double);
  if (datatype == MPI_INT) return sizeof(int);
  if (datatype == MPI_FLOAT) return sizeof(float);
  return 0;
}

SMPI_HOT_ int smpi_bytes_(MPI_Count count, MPI_Datatype datatype, uint64_t* bytes) {
  int size = (int)smpi_known_size_(datatype), code;
  if (count < 0) return MPI_ERR_COUNT;
  if (datatype == MPI_DATATYPE_NULL) return MPI_ERR_TYPE;
  if (size == 0) {
    MPI_Aint lb = 0, extent = 0;
    code = MPI_Type_size(datatype, &size);
    if (code == MPI_SUCCESS) code = MPI_Type_get_extent(datatype, &lb, &extent);
    if (code != MPI_SUCCESS) return code;
    if (size < 0 || lb != 0 || extent != size) return MPI_ERR_TYPE;
  }
  *bytes = (uint64_t)count * (uint64_t)size;
  return MPI_SUCCESS;
}

SMPI_API_ void smpi_write_status_(MPI_Status* status, int source, int tag, uint64_t bytes) {
  memset(status, 0, sizeof *status);
  status->MPI_SOURCE = source;
  status->MPI_TAG = tag;
  status->MPI_ERROR = MPI_SUCCESS;
  MPI_Status_set_cancelled(status, 0);
  if (bytes <= SMPI_INT_BYTES_) {
    MPI_Status_set_elements(status, MPI_BYTE, (int)bytes);
  } else {
    MPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)bytes);
  }
}

SMPI_HOT_ void smpi_status_(MPI_Status* status, int source, int tag, uint64_t bytes) {
  if (status != MPI_STATUS_IGNORE) smpi_write_status_(status, source, tag, bytes);
}

/* Makes room for what may be longer than a view holds. */
SMPI_API_ int smpi_room_take_(SMPI_View view) {
  struct smpi_process_* p = &smpi_process_state_;
  struct smpi_room_* room;
  smpi_lock_();
  room = p->rooms;
  if (room != 0) p->rooms = room->next;
  smpi_unlock_();
  if (room == 0) room = (struct smpi_room_*)malloc(sizeof *room);
  if (room == 0) return MPI_ERR_NO_MEM;
  room->head.kind = SMPI_NOTHING_;
  view->large = room;
  return MPI_SUCCESS;
}

SMPI_API_ void smpi_room_drop_(SMPI_View view) {
  struct smpi_process_* p = &smpi_process_state_;
  struct smpi_room_* room = view->large;
  view->large = 0;
  smpi_lock_();
  room->next = p->rooms;
  p->rooms = room;
  smpi_unlock_();
}

SMPI_HOT_ SMPI_View smpi_view_new_(const struct smpi_comm_* c) {
  struct smpi_process_* p = &smpi_process_state_;
  SMPI_View view;
  smpi_lock_();
  view = p->views;
  if (view != 0) p->views = view->next;
  smpi_unlock_();
  if (view == 0) view = (SMPI_View)calloc(1, sizeof *view);
  if (view == 0) return 0;
  /* The rest is zero in views that nobody uses. */
  view->state = SMPI_IDLE_;
  view->source = view->tag = 0;
  view->limit = view->bytes = 0;
  view->address = 0;
  view->comm = c->user;
  view->site = smpi_site_;
  view->head.kind = SMPI_NOTHING_;
  return view;
}

/* The number stays in debug mode, so that it can name a view that is released twice. */
SMPI_HOT_ void smpi_view_done_(SMPI_View view) {
  struct smpi_process_* p = &smpi_process_state_;
  view->state = SMPI_RELEASED_;
  if (view->large != 0) smpi_room_drop_(view);
  if (p->engine->debug != 0) return;
  view->from = view->number = 0;
  view->block = 0;
  view->call = 0;
  view->inlined = 0;
  view->place.passed = 0;
  smpi_lock_();
  view->next = p->views;
  p->views = view;
  smpi_unlock_();
}

/* Two words that are stored as one: who sends them on loads them as one, which waits until they are
 * in the cache if several stores have brought them. */
typedef uint64_t smpi_pair_ __attribute__((vector_size(16), aligned(8), may_alias));

/* The first 16 bytes of a head. */
SMPI_HOT_ void smpi_begin_head_(struct smpi_head_* head, const struct smpi_comm_* c, uint32_t kind,
                                int tag, uint32_t home) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  const smpi_pair_ words = {(uint64_t)(uint32_t)c->rank << 32 | kind,
                            (uint64_t)home << 32 | (uint32_t)tag};
  *(smpi_pair_*)head = words;
#else
  head->kind = kind;
  head->source = c->rank;
  head->tag = tag;
  head->home = home;
#endif
}

/* Where the data of a short message is, with room behind the head. */
SMPI_HOT_ char* smpi_short_data_(struct smpi_head_* head) {
  return (char*)head + SMPI_SHORT_HEAD_BYTES_;
}

/* Up to 16 bytes, as a pair and filled up with zeros. */
SMPI_HOT_ void smpi_few_bytes_(void* to, const void* buf, uint64_t bytes) {
  const char* from = (const char*)buf;
  smpi_pair_ words = {0, 0};
  uint64_t first = 0, last = 0;
  if (bytes > 8) {
    memcpy(&first, from, 8);
    memcpy(&last, from + bytes - 8, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    last >>= 8 * (16 - bytes);
#else
    last <<= 8 * (16 - bytes);
#endif
  } else if (bytes == 8) {
    memcpy(&first, from, 8);
  } else if (bytes > 0) {
    memcpy(&first, from, (size_t)bytes);
  }
  words[0] = first;
  words[1] = last;
  *(smpi_pair_*)to = words;
}

/* Makes a short message; returns how many bytes are sent. */
SMPI_HOT_ int smpi_short_(struct smpi_head_* head, const struct smpi_comm_* c, int tag,
                          const void* buf, uint64_t bytes) {
  smpi_begin_head_(head, c, SMPI_SHORT_, tag, (uint32_t)bytes);
  if (bytes <= sizeof(smpi_pair_)) {
    smpi_few_bytes_(smpi_short_data_(head), buf, bytes);
    return SMPI_SHORT_HEAD_BYTES_ + (int)sizeof(smpi_pair_);
  }
  memcpy(smpi_short_data_(head), buf, (size_t)bytes);
  return SMPI_SHORT_HEAD_BYTES_ + (int)bytes;
}

#endif /* OVERDRIVE_SMPI_SHORT_H_ */
