/* Inside smpi.h: the process's state, blocks without Overdrive, communicators.
 *
 * Every function is weak, so that the header may be included in any number of sources and a program
 * has one copy of code and state. Without Overdrive a table of the same shape as its engine serves
 * blocks of this process alone, so that the rest knows one way only: a peer is *near* if it is in
 * the same group, and gets descriptors; else it gets data.
 */
#ifndef OVERDRIVE_SMPI_CORE_H_
#define OVERDRIVE_SMPI_CORE_H_

#ifndef OVERDRIVE_SMPI_H_
#error "include overdrive/smpi.h"
#endif

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "overdrive/smpi_engine.h"

#define SMPI_API_ __attribute__((weak))
/* What is part of the time of every short message, and too little for a call. */
#define SMPI_HOT_ static __inline__ __attribute__((unused))

/* The head of every message. A descriptor is its first SMPI_DESCRIPTOR_BYTES_, which is what fits a
 * line of Overdrive's; of a short message its first SMPI_SHORT_HEAD_BYTES_ are sent, and the data
 * right behind them; any other data comes behind the whole of it. */
enum {
  SMPI_NOTHING_ = 0,
  SMPI_LENT_ = 0x6f643,   /* descriptors: of what is lent, */
  SMPI_PASSED_ = 0x6f644, /* and of a block that is passed */
  SMPI_SHORT_ = 0x6f645,
  SMPI_DATA_ = 0x6f646
};
struct smpi_head_ {
  uint32_t kind;
  int32_t source;
  int32_t tag;
  uint32_t home; /* of a short message: how many bytes it has */
  uint64_t bytes;
  uint64_t block;
  uint64_t offset;
  uint64_t unused;
};
#define SMPI_DESCRIPTOR_BYTES_ 40
#define SMPI_SHORT_HEAD_BYTES_ 16
/* So much data is sent to near ranks as well: copying it costs less than the lines of a block. */
#define SMPI_INLINE_BYTES_ 512
/* And up to so much when the engine says so: data that is new, and a rank that is far. */
#define SMPI_COPIED_BYTES_ 4096
typedef char
    smpi_short_head_has_its_size_[SMPI_SHORT_HEAD_BYTES_ == OVERDRIVE_SMPI_PREFIX_BYTES ? 1 : -1];
typedef char
    smpi_head_has_its_size_[sizeof(struct smpi_head_) == OVERDRIVE_SMPI_HEAD_BYTES ? 1 : -1];

/* What a communicator has at its attribute. */
struct smpi_comm_ {
  MPI_Comm user;
  MPI_Comm hidden;  /* messages and collectives of SMPI */
  MPI_Comm node;    /* the ranks of this group, for collectives */
  MPI_Comm leaders; /* the lowest rank of each group; MPI_COMM_NULL elsewhere */
  int rank, size;   /* size: of the remote group on inter-communicators */
  int is_inter, tag_ub;
  int all_near, none_near;
  int groups;               /* how many groups there are */
  unsigned char* near;      /* of each peer: whether it is in this group */
  unsigned char* quick;     /* and whether a short message leaves at once, with its data */
  int *group_of, *position; /* of each rank: number of its group; its rank in `node` */
  int* group_sizes;
  struct smpi_stash_ *stash, **stash_end; /* messages that a probe has fetched */
  void* messages; /* what the engine knows `hidden` by; null: all goes through MPI's calls */
};

/* Room for the longest message of a near rank, while it is under way and as long as its data is
 * looked at. */
struct smpi_room_ {
  struct smpi_room_* next;
  struct smpi_head_ head __attribute__((aligned(16)));
  char room[SMPI_COPIED_BYTES_]; /* right behind the head, as in a view */
};

enum { SMPI_IDLE_ = 0, SMPI_PENDING_, SMPI_EMPTY_, SMPI_OPEN_, SMPI_RELEASED_ };
struct smpi_view_ {
  int state;
  int source, tag;
  uint64_t limit, bytes;
  const void* address;
  void* block; /* pending: where data of a far message goes; null: only near ones can come */
  MPI_Comm comm;
  uint64_t from;           /* collectives: where its part begins in what has come */
  struct smpi_call_* call; /* pending: an allgather that brings it, with others */
  int inlined;             /* its data is in the view itself */
  uint64_t number;         /* in the engine's debug mode */
  const char* site;
  struct overdrive_smpi_place place;
  struct smpi_view_* next;
  struct smpi_room_* large; /* the message comes there instead of behind this; or null */
  struct smpi_head_ head __attribute__((aligned(16)));
  char room[SMPI_INLINE_BYTES_]; /* right behind the head, whose end a short message's data has */
};

/* A message of our own whose request the program does not see. */
struct smpi_pending_ {
  struct smpi_head_ head;
  char room[SMPI_INLINE_BYTES_]; /* as in a view */
  MPI_Request request;
  void* block; /* to be freed afterwards, or null */
  int near;
  struct smpi_pending_* next;
};

struct smpi_process_ {
  int lock;
  int alone;           /* never two threads in here at once: nothing needs the lock */
  unsigned generation; /* of attached communicators: raised when one goes */
  int begun;
  int keyval;
  const struct overdrive_smpi_engine* engine;
  int local; /* the engine is the one below */
  struct overdrive_smpi_engine own;
  struct smpi_view_* views; /* for reuse; views are never given back to the system */
  struct smpi_room_* rooms; /* likewise */
  struct smpi_pending_ *pending, **pending_end, *spare;
  void** blocks; /* hash table of the blocks without Overdrive */
  size_t block_room, block_used;
};

SMPI_API_ struct smpi_process_ smpi_process_state_;
SMPI_API_ __thread const char* smpi_site_ = 0;

/* The communicator that this thread has used last; right while `generation` is the process's. */
struct smpi_last_ {
  MPI_Comm comm;
  struct smpi_comm_* found;
  unsigned generation;
};
SMPI_API_ __thread struct smpi_last_ smpi_last_comm_;

SMPI_HOT_ void smpi_lock_(void) {
  if (smpi_process_state_.alone) return;
  /* Acquire: pairs with the release in smpi_unlock_. */
  while (__atomic_exchange_n(&smpi_process_state_.lock, 1, __ATOMIC_ACQUIRE)) sched_yield();
}
SMPI_HOT_ void smpi_unlock_(void) {
  if (smpi_process_state_.alone) return;
  __atomic_store_n(&smpi_process_state_.lock, 0, __ATOMIC_RELEASE);
}

/* Where a head is that leaves together with the contents of a block. */
SMPI_HOT_ struct smpi_head_* smpi_front_(const void* block) {
  return (struct smpi_head_*)((uintptr_t)block - OVERDRIVE_SMPI_HEAD_BYTES);
}

/* --- blocks without Overdrive */

struct smpi_block_ {
  void* memory;
  uint64_t capacity;
  uint32_t references;
  uint32_t owned;
};

SMPI_API_ struct smpi_block_* smpi_block_of_(const void* block) {
  return (struct smpi_block_*)((uintptr_t)block - OVERDRIVE_SMPI_FRONT_BYTES);
}

/* The place of a block in the table, or of the gap where it would be. */
SMPI_API_ size_t smpi_block_slot_(const void* block) {
  size_t at =
      (size_t)(((uintptr_t)block / OVERDRIVE_SMPI_ALIGNMENT) * UINT64_C(0x9e3779b97f4a7c15));
  for (at &= smpi_process_state_.block_room - 1;;
       at = (at + 1) & (smpi_process_state_.block_room - 1)) {
    if (smpi_process_state_.blocks[at] == 0 || smpi_process_state_.blocks[at] == block) return at;
  }
}

SMPI_API_ int smpi_block_known_(const void* block) {
  return smpi_process_state_.block_room != 0 && block != 0 &&
         smpi_process_state_.blocks[smpi_block_slot_(block)] == block;
}

SMPI_API_ int smpi_block_note_(void* block) {
  struct smpi_process_* p = &smpi_process_state_;
  if (2 * (p->block_used + 1) > p->block_room) {
    size_t i, before = p->block_room;
    void** old = p->blocks;
    void** larger = (void**)calloc(before ? 2 * before : 64, sizeof *larger);
    if (larger == 0) return 0;
    p->blocks = larger;
    p->block_room = before ? 2 * before : 64;
    for (i = 0; i < before; i++) {
      if (old[i] != 0) larger[smpi_block_slot_(old[i])] = old[i];
    }
    free(old);
  }
  p->blocks[smpi_block_slot_(block)] = block;
  p->block_used++;
  return 1;
}

SMPI_API_ void smpi_block_forget_(const void* block) {
  struct smpi_process_* p = &smpi_process_state_;
  size_t mask = p->block_room - 1, at = smpi_block_slot_(block);
  p->blocks[at] = 0;
  p->block_used--;
  /* Those behind it that had to give way move up. */
  for (at = (at + 1) & mask; p->blocks[at] != 0; at = (at + 1) & mask) {
    void* moved = p->blocks[at];
    p->blocks[at] = 0;
    p->blocks[smpi_block_slot_(moved)] = moved;
  }
}

SMPI_API_ void* smpi_own_alloc_(void* self, uint64_t bytes, const char* site) {
  const uint64_t extra = OVERDRIVE_SMPI_FRONT_BYTES + OVERDRIVE_SMPI_ALIGNMENT;
  struct smpi_block_* record;
  char *memory, *block;
  (void)self, (void)site;
  if (bytes > (uint64_t)PTRDIFF_MAX - extra) return 0;
  memory = (char*)malloc((size_t)(bytes + extra));
  if (memory == 0) return 0;
  block = memory + extra - (uintptr_t)memory % OVERDRIVE_SMPI_ALIGNMENT;
  record = (struct smpi_block_*)(block - OVERDRIVE_SMPI_FRONT_BYTES);
  record->memory = memory;
  record->capacity = bytes;
  record->references = 1;
  record->owned = 1;
  ((struct smpi_head_*)(block - OVERDRIVE_SMPI_HEAD_BYTES))->kind = SMPI_NOTHING_;
  smpi_lock_();
  if (!smpi_block_note_(block)) {
    free(memory);
    block = 0;
  }
  smpi_unlock_();
  return block;
}

/* Takes references away; the last one frees. */
SMPI_API_ void smpi_own_drop_(void* block, uint32_t count) {
  void* memory = 0;
  smpi_lock_();
  if ((smpi_block_of_(block)->references -= count) == 0) {
    memory = smpi_block_of_(block)->memory;
    smpi_block_forget_(block);
  }
  smpi_unlock_();
  free(memory);
}

/* Gives up ownership, with the owner's reference or without. */
SMPI_API_ int smpi_own_give_up_(void* block, int drop) {
  int owned;
  smpi_lock_();
  owned = smpi_block_known_(block) && smpi_block_of_(block)->owned;
  if (owned) smpi_block_of_(block)->owned = 0;
  smpi_unlock_();
  if (!owned) return OVERDRIVE_SMPI_NOT_A_BLOCK;
  if (drop) smpi_own_drop_(block, 1);
  return OVERDRIVE_SMPI_OK;
}

SMPI_API_ int smpi_own_free_(void* self, void* block, const char* site) {
  (void)self, (void)site;
  return smpi_own_give_up_(block, 1);
}

SMPI_API_ int smpi_own_capacity_(void* self, const void* block, uint64_t* bytes) {
  int owned;
  (void)self;
  smpi_lock_();
  owned = smpi_block_known_(block) && smpi_block_of_(block)->owned;
  if (owned) *bytes = smpi_block_of_(block)->capacity;
  smpi_unlock_();
  return owned ? OVERDRIVE_SMPI_OK : OVERDRIVE_SMPI_NOT_A_BLOCK;
}

SMPI_API_ void smpi_own_place_(const void* block, uint64_t bytes, uint32_t passed,
                               struct overdrive_smpi_place* place) {
  place->block = place->offset = (uint64_t)(uintptr_t)block;
  place->bytes = bytes;
  place->home = 0;
  place->passed = passed;
}

SMPI_API_ int smpi_own_lend_(void* self, const void* address, uint64_t bytes, uint32_t views,
                             struct overdrive_smpi_place* place) {
  int known;
  (void)self;
  smpi_lock_();
  known = smpi_block_known_(address) && smpi_block_of_(address)->owned &&
          bytes <= smpi_block_of_(address)->capacity;
  if (known) smpi_block_of_(address)->references += views;
  smpi_unlock_();
  smpi_own_place_(address, bytes, 0, place);
  return known ? OVERDRIVE_SMPI_OK : OVERDRIVE_SMPI_NOT_A_BLOCK;
}

SMPI_API_ int smpi_own_offer_(void* self, const void* address, uint64_t bytes,
                              struct overdrive_smpi_place* place) {
  return smpi_own_lend_(self, address, bytes, 1, place);
}

SMPI_API_ void smpi_own_take_back_(void* self, const struct overdrive_smpi_place* place,
                                   uint32_t views) {
  void* block = (void*)(uintptr_t)place->block;
  (void)self;
  if (place->passed) {
    smpi_block_of_(block)->owned = 1;
  } else {
    smpi_own_drop_(block, views);
  }
}

SMPI_API_ int smpi_own_pass_(void* self, void* block, uint64_t bytes,
                             struct overdrive_smpi_place* place) {
  uint64_t capacity;
  if (smpi_own_capacity_(self, block, &capacity) != OVERDRIVE_SMPI_OK || bytes > capacity) {
    return OVERDRIVE_SMPI_NOT_A_BLOCK;
  }
  smpi_own_place_(block, bytes, 1, place);
  return smpi_own_give_up_(block, 0);
}

SMPI_API_ int smpi_own_open_(void* self, const struct overdrive_smpi_place* place, const char* site,
                             const void** address, uint64_t* view) {
  (void)self, (void)site;
  *address = (const void*)(uintptr_t)place->offset;
  *view = 0;
  return OVERDRIVE_SMPI_OK;
}

SMPI_API_ void smpi_own_close_(void* self, const struct overdrive_smpi_place* place,
                               uint64_t view) {
  (void)self, (void)view;
  smpi_own_drop_((void*)(uintptr_t)place->block, 1);
}

SMPI_API_ int smpi_own_own_(void* self, const struct overdrive_smpi_place* place, uint64_t view,
                            const char* site, void** block) {
  (void)self, (void)view, (void)site;
  *block = (void*)(uintptr_t)place->block;
  smpi_block_of_(*block)->owned = 1;
  return OVERDRIVE_SMPI_OK;
}

SMPI_API_ int64_t smpi_own_lent_(void* self, const void* block) {
  int64_t views = -1;
  (void)self;
  smpi_lock_();
  if (smpi_block_known_(block) && smpi_block_of_(block)->owned) {
    views = (int64_t)smpi_block_of_(block)->references - 1;
  }
  smpi_unlock_();
  return views;
}

SMPI_API_ void smpi_own_pause_(void* self) {
  (void)self;
  sched_yield();
}
SMPI_API_ void smpi_own_note_(void* self, uint64_t bytes) { (void)self, (void)bytes; }

/* --- the process */

SMPI_API_ const struct overdrive_smpi_engine* smpi_engine_(void) {
  struct smpi_process_* p = &smpi_process_state_;
  overdrive_smpi_engine_fn find = 0;
  void *self, *symbol;
  int initialized = 0;
  if (p->engine != 0) return p->engine;
  MPI_Initialized(&initialized);
  if (!initialized) return 0;
  self = dlopen(0, RTLD_LAZY);
  symbol = self != 0 ? dlsym(self, OVERDRIVE_SMPI_SYMBOL) : 0;
  memcpy(&find, &symbol, sizeof find);
  if (find != 0) p->engine = find(OVERDRIVE_SMPI_VERSION);
  if (p->engine != 0) return p->engine;
  p->own.version = OVERDRIVE_SMPI_VERSION;
  p->own.size_bytes = (uint32_t)sizeof p->own;
  p->own.alloc = smpi_own_alloc_;
  p->own.free = smpi_own_free_;
  p->own.capacity = smpi_own_capacity_;
  p->own.lend = smpi_own_lend_;
  p->own.take_back = smpi_own_take_back_;
  p->own.pass = smpi_own_pass_;
  p->own.settle = smpi_own_pass_;
  p->own.open = smpi_own_open_;
  p->own.close = smpi_own_close_;
  p->own.own = smpi_own_own_;
  p->own.lent = smpi_own_lent_;
  p->own.pause = smpi_own_pause_;
  p->own.released_twice = smpi_own_note_;
  p->own.note_copy = smpi_own_note_;
  p->own.offer = smpi_own_offer_;
  p->local = 1;
  p->engine = &p->own;
  return p->engine;
}

SMPI_HOT_ int smpi_raise_(MPI_Comm comm, int code) {
  if (code != MPI_SUCCESS) MPI_Comm_call_errhandler(comm, code);
  return code;
}

SMPI_API_ struct smpi_comm_* smpi_find_attribute_(MPI_Comm comm, unsigned generation) {
  struct smpi_last_* last = &smpi_last_comm_;
  struct smpi_comm_* found = 0;
  int flag = 0;
  if (!smpi_process_state_.begun || comm == MPI_COMM_NULL) return 0;
  if (MPI_Comm_get_attr(comm, smpi_process_state_.keyval, &found, &flag) != MPI_SUCCESS) return 0;
  if (!flag) return 0;
  last->comm = comm;
  last->found = found;
  last->generation = generation;
  return found;
}

SMPI_HOT_ struct smpi_comm_* smpi_find_(MPI_Comm comm) {
  const struct smpi_last_* last = &smpi_last_comm_;
  /* Relaxed: no thread may use a communicator that another one frees. */
  const unsigned generation = __atomic_load_n(&smpi_process_state_.generation, __ATOMIC_RELAXED);
  if (last->found != 0 && last->comm == comm && last->generation == generation) return last->found;
  return smpi_find_attribute_(comm, generation);
}

#endif /* OVERDRIVE_SMPI_CORE_H_ */
