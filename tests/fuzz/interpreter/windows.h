// Windows of random programs whose epochs stretch over other operations.
//
//   win w= c= how=create|allocate|shared|dynamic n= puts= sums=
//   sync w= how=fence [last=1] | post group= | start group= | complete | wait | test
//               | lock to= | unlock to= | lockall | unlockall | flush to= | flushlocal to= |
//               flushall
//   access w= how=put|get|add|addget|fetchadd|swap|read to= at= n= id= [stride=] [alone=1] [q=]
//   winend w= c= holds=TO,AT,N,ID,STRIDE,.. sums=TO,AT,VALUE,..
// Memory of a member, in longs: `n` that are only read, `puts` of which each is put at most once,
// `sums` that are added to or swapped. So whatever the timing, every word has one value at the end,
// and every word that is got has one, too: `id` tells whose put it is (-1: of the part that is only
// read). `alone` opens an exclusive lock for this access and closes it again; with `q` the access
// has a request.
#ifndef WINDOWS_H_
#define WINDOWS_H_

#include "session.h"

typedef struct {
  const Op* op;
  int to;
  long at, n, id, stride;
  long *buffer, *answer;
} Access;

enum { kMostAccesses = 256 };

typedef struct {
  MPI_Win window;
  MPI_Comm comm;
  const Op* op;
  int rank, size, allocated, dynamic;
  long n, puts, sums;
  long* memory;
  MPI_Aint bases[kMostRanks];  // of a dynamic window: addresses
  Access accesses[kMostAccesses];
  int access_count;
} Window;

static Window windows[kMostWindows];

static Window* window_of(const Op* op) {
  const long w = arg_needed(op, "w");
  REQUIRE(op, w >= 0 && w < kMostWindows, "the program is wrong: window %ld", w);
  return &windows[w];
}

// Word e of what an access puts, or (id -1) of the part of a member that is only read.
static long win_word(const Op* op, long w, long id, int member, long e) {
  (void)op;
  const uint64_t key = mix((uint64_t)w * 4099 + (uint64_t)(id + 2) * 77 + (uint64_t)member * 5);
  return (long)(mix(key + (uint64_t)e) >> 1);
}

static void do_win(Session* s, const Op* op) {
  (void)s;
  Window* w = window_of(op);
  const Comm* c = comm_of(op, "c");
  memset(w, 0, sizeof *w);
  w->comm = c->comm;
  w->op = op;
  w->rank = c->rank, w->size = c->size;
  w->n = arg_needed(op, "n"), w->puts = arg_needed(op, "puts"), w->sums = arg_needed(op, "sums");
  const long words = w->n + w->puts + w->sums;
  const MPI_Aint bytes = (MPI_Aint)words * 8;
  w->allocated = arg_is(op, "how", "allocate") || arg_is(op, "how", "shared");
  w->dynamic = arg_is(op, "how", "dynamic");
  if (arg_is(op, "how", "allocate")) {
    MUST(op, MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, c->comm, &w->memory, &w->window));
  } else if (arg_is(op, "how", "shared")) {
    MUST(op, MPI_Win_allocate_shared(bytes, 8, MPI_INFO_NULL, c->comm, &w->memory, &w->window));
  } else {
    w->memory = (long*)need_memory((size_t)bytes);
  }
  for (long e = 0; e < words; e++) {
    w->memory[e] = e < w->n ? win_word(op, arg(op, "w", 0), -1, w->rank, e) : 0;
  }
  if (w->dynamic) {
    MUST(op, MPI_Win_create_dynamic(MPI_INFO_NULL, c->comm, &w->window));
    MUST(op, MPI_Win_attach(w->window, w->memory, bytes));
    MPI_Aint base;
    MUST(op, MPI_Get_address(w->memory, &base));
    MUST(op, MPI_Allgather(&base, 1, MPI_AINT, w->bases, 1, MPI_AINT, c->comm));
  } else if (!w->allocated) {
    MUST(op, MPI_Win_create(w->memory, bytes, 8, MPI_INFO_NULL, c->comm, &w->window));
  }
  // What is set here is seen by the others only after a synchronisation.
  MUST(op, MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, w->window));
  MUST(op, MPI_Barrier(c->comm));
}

// --- accesses ------------------------------------------------------------------------------------

static MPI_Aint win_place(const Window* w, int to, long at) {
  return w->dynamic ? w->bases[to] + (MPI_Aint)at * 8 : (MPI_Aint)at;
}

static void access_check(const Window* w, const Access* a) {
  const long number = arg(w->op, "w", 0);
  const char* how = arg_text(a->op, "how");
  if (strcmp(how, "get") == 0 || strcmp(how, "read") == 0) {
    for (long e = 0; e < a->n; e++) {
      const long must = a->id < 0 ? win_word(a->op, number, -1, a->to, a->at + e * a->stride)
                                  : win_word(a->op, number, a->id, 0, arg(a->op, "skip", 0) + e);
      const long* got = strcmp(how, "read") == 0 ? a->answer : a->buffer;
      REQUIRE(a->op, got[e] == must, "word %ld that was got from a window is %lx, not %lx", e,
              got[e], must);
    }
  } else if (strcmp(how, "swap") == 0) {
    REQUIRE(a->op, a->answer[0] == 0, "a word was %ld before it was swapped, not 0", a->answer[0]);
  } else if (strcmp(how, "addget") == 0 || strcmp(how, "fetchadd") == 0) {
    for (long e = 0; e < a->n; e++) {
      REQUIRE(a->op, a->answer[e] >= 0, "a sum in a window was %ld", a->answer[e]);
    }
  }
}

// What has been accessed is over: at one member, or (-1) at all.
static void accesses_over(Window* w, int to) {
  int left = 0;
  for (int i = 0; i < w->access_count; i++) {
    Access* a = &w->accesses[i];
    if (to >= 0 && a->to != to) {
      w->accesses[left++] = *a;
      continue;
    }
    access_check(w, a);
    free(a->buffer);
    free(a->answer);
  }
  w->access_count = left;
}

// The request of an access is complete: what was got is there, what was put may be changed.
static void access_complete(Slot* slot, const Op* op) {
  Window* w = window_of(slot->op);
  (void)op;
  for (int i = 0; i < w->access_count; i++) {
    if (w->accesses[i].op == slot->op) access_check(w, &w->accesses[i]);
  }
}

static MPI_Datatype long_vector(const Op* op, const Access* a) {
  MPI_Datatype type;
  MUST(op, MPI_Type_vector((int)a->n, 1, (int)a->stride, MPI_LONG, &type));
  MUST(op, MPI_Type_commit(&type));
  return type;
}

static void do_access(Session* s, const Op* op) {
  Window* w = window_of(op);
  const char* how = arg_text(op, "how");
  Access a = {.op = op, .to = (int)arg_needed(op, "to"), .at = arg_needed(op, "at")};
  a.n = arg_needed(op, "n"), a.id = arg(op, "id", -1), a.stride = arg(op, "stride", 1);
  const size_t bytes = (size_t)a.n * 8;
  a.buffer = (long*)need_memory(bytes), a.answer = (long*)need_memory(bytes);
  memset(a.answer, 0xA5, bytes), memset(a.buffer, 0xA5, bytes);
  const int n = (int)a.n, alone = arg(op, "alone", 0) != 0;
  const MPI_Aint place = win_place(w, a.to, a.at);
  const MPI_Win window = w->window;
  Slot* slot = arg_text(op, "q") != NULL ? slot_take(s, op, kAccess) : NULL;
  MPI_Request* request = slot != NULL ? &slot->request : NULL;
  if (slot != NULL) slot->active = 1;
  REQUIRE(op, w->access_count < kMostAccesses, "the program is wrong: too many accesses");
  if (alone) MUST(op, MPI_Win_lock(MPI_LOCK_EXCLUSIVE, a.to, 0, window));
  if (strcmp(how, "put") == 0) {
    MPI_Datatype type = long_vector(op, &a);
    for (long e = 0; e < a.n; e++) a.buffer[e] = win_word(op, arg(op, "w", 0), a.id, 0, e);
    if (request != NULL) {
      MUST(op, MPI_Rput(a.buffer, n, MPI_LONG, a.to, place, 1, type, window, request));
    } else {
      MUST(op, MPI_Put(a.buffer, n, MPI_LONG, a.to, place, 1, type, window));
    }
    MUST(op, MPI_Type_free(&type));
  } else if (strcmp(how, "get") == 0) {
    MPI_Datatype type = long_vector(op, &a);
    if (request != NULL) {
      MUST(op, MPI_Rget(a.buffer, n, MPI_LONG, a.to, place, 1, type, window, request));
    } else {
      MUST(op, MPI_Get(a.buffer, n, MPI_LONG, a.to, place, 1, type, window));
    }
    MUST(op, MPI_Type_free(&type));
  } else if (strcmp(how, "swap") == 0) {
    a.buffer[0] = a.id + 1;
    static const long kZero = 0;
    MUST(op, MPI_Compare_and_swap(a.buffer, &kZero, a.answer, MPI_LONG, a.to, place, window));
  } else if (strcmp(how, "read") == 0) {
    MUST(op, MPI_Get_accumulate(NULL, 0, MPI_LONG, a.answer, n, MPI_LONG, a.to, place, n, MPI_LONG,
                                MPI_NO_OP, window));
  } else {
    for (long e = 0; e < a.n; e++) a.buffer[e] = a.id + 1;
    if (strcmp(how, "add") == 0 && request != NULL) {
      MUST(op, MPI_Raccumulate(a.buffer, n, MPI_LONG, a.to, place, n, MPI_LONG, MPI_SUM, window,
                               request));
    } else if (strcmp(how, "add") == 0) {
      MUST(op, MPI_Accumulate(a.buffer, n, MPI_LONG, a.to, place, n, MPI_LONG, MPI_SUM, window));
    } else if (strcmp(how, "addget") == 0) {
      MUST(op, MPI_Get_accumulate(a.buffer, n, MPI_LONG, a.answer, n, MPI_LONG, a.to, place, n,
                                  MPI_LONG, MPI_SUM, window));
    } else {
      MUST(op, MPI_Fetch_and_op(a.buffer, a.answer, MPI_LONG, a.to, place, MPI_SUM, window));
    }
  }
  w->accesses[w->access_count++] = a;
  if (alone) {
    MUST(op, MPI_Win_unlock(a.to, window));
    accesses_over(w, a.to);
  }
}

// --- synchronisation -----------------------------------------------------------------------------

static MPI_Group win_group(const Op* op, const Window* w) {
  long members[kMostRanks];
  int ranks[kMostRanks];
  const int count = arg_list(op, "group", members, kMostRanks);
  for (int i = 0; i < count; i++) ranks[i] = (int)members[i];
  MPI_Group whole, part;
  MUST(op, MPI_Win_get_group(w->window, &whole));
  MUST(op, MPI_Group_incl(whole, count, ranks, &part));
  MUST(op, MPI_Group_free(&whole));
  return part;
}

static void do_sync(Session* s, const Op* op) {
  (void)s;
  Window* w = window_of(op);
  const MPI_Win window = w->window;
  const int to = (int)arg(op, "to", -1);
  if (arg_is(op, "how", "fence")) {
    MUST(op, MPI_Win_fence(arg(op, "last", 0) != 0 ? MPI_MODE_NOSUCCEED : 0, window));
    accesses_over(w, -1);
  } else if (arg_is(op, "how", "post") || arg_is(op, "how", "start")) {
    MPI_Group group = win_group(op, w);
    if (arg_is(op, "how", "post")) {
      MUST(op, MPI_Win_post(group, 0, window));
    } else {
      MUST(op, MPI_Win_start(group, 0, window));
    }
    MUST(op, MPI_Group_free(&group));
  } else if (arg_is(op, "how", "complete")) {
    MUST(op, MPI_Win_complete(window));
    accesses_over(w, -1);
  } else if (arg_is(op, "how", "wait")) {
    MUST(op, MPI_Win_wait(window));
  } else if (arg_is(op, "how", "test")) {
    int flag = 0;
    while (!flag) {
      MUST(op, MPI_Win_test(window, &flag));
      if (!flag) sched_yield();
    }
  } else if (arg_is(op, "how", "lock")) {
    MUST(op, MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window));
  } else if (arg_is(op, "how", "lockall")) {
    MUST(op, MPI_Win_lock_all(0, window));
  } else if (arg_is(op, "how", "flushlocal")) {
    MUST(op, MPI_Win_flush_local(to, window));
  } else {
    if (arg_is(op, "how", "unlock")) {
      MUST(op, MPI_Win_unlock(to, window));
    } else if (arg_is(op, "how", "unlockall")) {
      MUST(op, MPI_Win_unlock_all(window));
    } else if (arg_is(op, "how", "flush")) {
      MUST(op, MPI_Win_flush(to, window));
    } else {
      MUST(op, MPI_Win_flush_all(window));
    }
    accesses_over(w, to);
  }
}

// Every word of this rank's memory must be what the program says; then the window goes.
static void do_win_end(Session* s, const Op* op) {
  (void)s;
  Window* w = window_of(op);
  const long number = arg_needed(op, "w"), words = w->n + w->puts + w->sums;
  enum { kMost = 8 * kMostAccesses };
  long* list = (long*)need_memory(kMost * sizeof(long));
  long* must = (long*)need_memory((size_t)words * 8);
  MUST(op, MPI_Barrier(w->comm));
  MUST(op, MPI_Win_lock(MPI_LOCK_EXCLUSIVE, w->rank, 0, w->window));
  for (long e = 0; e < words; e++) must[e] = e < w->n ? win_word(op, number, -1, w->rank, e) : 0;
  int count = arg_list(op, "holds", list, kMost);
  for (int i = 0; i + 4 < count; i += 5) {
    if (list[i] != w->rank) continue;
    for (long e = 0; e < list[i + 2]; e++) {
      must[list[i + 1] + e * list[i + 4]] = win_word(op, number, list[i + 3], 0, e);
    }
  }
  count = arg_list(op, "sums", list, kMost);
  for (int i = 0; i + 2 < count; i += 3) {
    if (list[i] == w->rank) must[list[i + 1]] += list[i + 2];
  }
  for (long e = 0; e < words; e++) {
    REQUIRE(op, w->memory[e] == must[e], "word %ld of a window (%ld read, %ld put) is %lx, not %lx",
            e, w->n, w->puts, w->memory[e], must[e]);
  }
  MUST(op, MPI_Win_unlock(w->rank, w->window));
  if (w->dynamic) {
    MUST(op, MPI_Barrier(w->comm));
    MUST(op, MPI_Win_detach(w->window, w->memory));
  }
  MUST(op, MPI_Win_free(&w->window));
  if (!w->allocated) free(w->memory);
  free(list);
  free(must);
}

#endif  // WINDOWS_H_
