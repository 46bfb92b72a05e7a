// Windows and files of random programs: calls that block in the host while requests are pending.
//
//   window c= k= how=fence|lock|pscw|all n= [alloc=1]     each member puts to its right, gets from
//   its left and
//                                            adds to the first member, in epochs of this kind
//   file c= k= n= how=all|own|view|ordered|split|started     each member writes its part, all read
//                                            all of it
#ifndef HOST_CALLS_H_
#define HOST_CALLS_H_

#include "session.h"

// What member i puts (which = 0) or shows (which = 1) at place e.
static long window_word(const Session* s, const Op* op, int i, int which, long e) {
  return (long)(content_key(s->program, 200000 + arg_needed(op, "k"), i * 2 + which, e) >> 1);
}

static MPI_Group neighbours(const Op* op, const Comm* c, int left, int right) {
  MPI_Group whole, part;
  const int ranks[2] = {left, right};
  MUST(op, MPI_Comm_group(c->comm, &whole));
  MUST(op, MPI_Group_incl(whole, left == right ? 1 : 2, ranks, &part));
  MUST(op, MPI_Group_free(&whole));
  return part;
}

// The window of a member: n words that its left neighbour puts, n that its right one gets, one sum.
static void do_window(Session* s, const Op* op) {
  const Comm* c = comm_of(op, "c");
  const int n = (int)arg_needed(op, "n"), size = c->size, me = c->rank;
  const int right = (me + 1) % size, left = (me + size - 1) % size;
  long *memory = NULL, *put = (long*)need_memory((size_t)n * 8),
       *got = (long*)need_memory((size_t)n * 8);
  const long one = me + 1;
  MPI_Win window;
  const MPI_Aint bytes = (MPI_Aint)(2 * n + 1) * 8;
  const int allocated = arg(op, "alloc", 0) != 0;
  if (allocated) {
    MUST(op, MPI_Win_allocate(bytes, 8, MPI_INFO_NULL, c->comm, &memory, &window));
  } else {
    memory = (long*)need_memory((size_t)bytes);
  }
  for (int e = 0; e < n; e++) {
    memory[e] = -1;
    memory[n + e] = window_word(s, op, me, 1, e);
    put[e] = window_word(s, op, me, 0, e);
  }
  memory[2 * n] = 0;
  if (!allocated) MUST(op, MPI_Win_create(memory, bytes, 8, MPI_INFO_NULL, c->comm, &window));
  const int pscw = arg_is(op, "how", "pscw"), lock = arg_is(op, "how", "lock");
  const int all = arg_is(op, "how", "all"), fence = arg_is(op, "how", "fence");
  MPI_Group group = MPI_GROUP_NULL;
  if (pscw) {
    group = neighbours(op, c, left, right);
    MUST(op, MPI_Win_post(group, 0, window));
    MUST(op, MPI_Win_start(group, 0, window));
  }
  if (fence) MUST(op, MPI_Win_fence(0, window));
  if (lock || all) MUST(op, MPI_Barrier(c->comm));  // every member's memory is set
  if (all) MUST(op, MPI_Win_lock_all(0, window));
  if (lock) MUST(op, MPI_Win_lock(MPI_LOCK_SHARED, right, 0, window));
  MUST(op, MPI_Put(put, n, MPI_LONG, right, 0, n, MPI_LONG, window));
  if (lock) {
    MUST(op, MPI_Win_unlock(right, window));
    MUST(op, MPI_Win_lock(MPI_LOCK_SHARED, left, 0, window));
  }
  MUST(op, MPI_Get(got, n, MPI_LONG, left, n, n, MPI_LONG, window));
  if (lock) {
    MUST(op, MPI_Win_unlock(left, window));
    MUST(op, MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window));
  }
  if (!pscw) MUST(op, MPI_Accumulate(&one, 1, MPI_LONG, 0, 2 * n, 1, MPI_LONG, MPI_SUM, window));
  if (lock) MUST(op, MPI_Win_unlock(0, window));
  if (all) MUST(op, MPI_Win_unlock_all(window));
  if (fence) MUST(op, MPI_Win_fence(0, window));
  if (pscw) {
    MUST(op, MPI_Win_complete(window));
    MUST(op, MPI_Win_wait(window));
    MUST(op, MPI_Group_free(&group));
  }
  if (lock || all) MUST(op, MPI_Barrier(c->comm));
  MUST(op, MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, window));  // orders what others have stored
  for (int e = 0; e < n; e++) {
    REQUIRE(op, memory[e] == window_word(s, op, left, 0, e), "word %d of a put is wrong", e);
    REQUIRE(op, got[e] == window_word(s, op, left, 1, e), "word %d of a get is wrong", e);
  }
  const long sum = me == 0 && !pscw ? (long)size * (size + 1) / 2 : 0;
  REQUIRE(op, memory[2 * n] == sum, "the sum in a window is %ld, not %ld", memory[2 * n], sum);
  MUST(op, MPI_Win_unlock(me, window));
  MUST(op, MPI_Win_free(&window));
  if (!allocated) free(memory);
  free(put);
  free(got);
}

// Writes n words of each member in one of MPI's ways; member i's come to place i * n.
static void file_write(const Op* op, const Comm* c, MPI_File file, const long* mine, int n) {
  const MPI_Offset place = (MPI_Offset)c->rank * n * 8;
  MPI_Status status;
  if (arg_is(op, "how", "own")) {
    MUST(op, MPI_File_write_at(file, place, mine, n, MPI_LONG, &status));
  } else if (arg_is(op, "how", "view")) {
    // Each sees its part only: words are written one after the other from the view's begin.
    MPI_Datatype part;
    const int whole = n * c->size, own = n, first = c->rank * n;
    MUST(op, MPI_Type_create_subarray(1, &whole, &own, &first, MPI_ORDER_C, MPI_LONG, &part));
    MUST(op, MPI_Type_commit(&part));
    MUST(op, MPI_File_set_view(file, 0, MPI_LONG, part, "native", MPI_INFO_NULL));
    MUST(op, MPI_File_write_all(file, mine, n, MPI_LONG, &status));
    MUST(op, MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    MUST(op, MPI_Type_free(&part));
  } else if (arg_is(op, "how", "ordered")) {
    MUST(op, MPI_File_write_ordered(file, mine, n, MPI_LONG, &status));
  } else if (arg_is(op, "how", "split")) {
    MUST(op, MPI_File_write_at_all_begin(file, place, mine, n, MPI_LONG));
    MUST(op, MPI_File_write_at_all_end(file, mine, &status));
  } else if (arg_is(op, "how", "started")) {
    MPI_Request request;
    MUST(op, MPI_File_iwrite_at(file, place, mine, n, MPI_LONG, &request));
    MUST(op, MPI_Wait(&request, &status));
  } else {
    MUST(op, MPI_File_write_at_all(file, place, mine, n, MPI_LONG, &status));
  }
}

static void do_file(Session* s, const Op* op) {
  const Comm* c = comm_of(op, "c");
  const int n = (int)arg_needed(op, "n");
  char path[200];
  snprintf(path, sizeof path, "%s/odfuzz-%ld-%ld-%d", "/tmp", s->program->id, arg_needed(op, "k"),
           (int)arg(op, "job", 0));
  long* all = (long*)need_memory((size_t)n * (size_t)c->size * 8);
  MPI_File file;
  MPI_Status status;
  const int mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
  MUST(op, MPI_File_open(c->comm, path, mode, MPI_INFO_NULL, &file));
  for (int e = 0; e < n; e++) all[e] = window_word(s, op, c->rank, 0, e);
  file_write(op, c, file, all, n);
  MUST(op, MPI_File_sync(file));
  MUST(op, MPI_Barrier(c->comm));
  MUST(op, MPI_File_sync(file));
  MUST(op, MPI_File_read_at_all(file, 0, all, n * c->size, MPI_LONG, &status));
  for (int i = 0; i < n * c->size; i++) {
    REQUIRE(op, all[i] == window_word(s, op, i / n, 0, i % n), "word %d of a file is wrong", i);
  }
  MUST(op, MPI_File_close(&file));
  free(all);
}

#endif  // HOST_CALLS_H_
