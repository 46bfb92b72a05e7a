// The MPI calls of collectives: one switch for the three forms of each.
#ifndef COLLECTIVE_CALLS_H_
#define COLLECTIVE_CALLS_H_

#include "collectives.h"

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAVE_PERSISTENT 1
#else
#define HAVE_PERSISTENT 0
#endif

typedef enum { kBlocking, kStarted, kPersistent } Form;

#if HAVE_PERSISTENT
#define CALL_PERSISTENT(NAME, ...) \
  MPI_##NAME##_init(__VA_ARGS__, c->comm->comm, MPI_INFO_NULL, &c->request)
#define BARRIER_PERSISTENT() MPI_Barrier_init(c->comm->comm, MPI_INFO_NULL, &c->request)
#else
#define CALL_PERSISTENT(NAME, ...) (fail(c->op, "no persistent collectives here"), 1)
#define BARRIER_PERSISTENT() (fail(c->op, "no persistent collectives here"), 1)
#endif

// One collective: `lower` is its name in the program, NAME in the blocking function.
#define COLLECTIVE(lower, NAME, INAME, ...)                              \
  if (named(c, lower)) {                                                 \
    if (form == kBlocking) {                                             \
      MUST(c->op, MPI_##NAME(__VA_ARGS__, c->comm->comm));               \
    } else if (form == kStarted) {                                       \
      MUST(c->op, MPI_##INAME(__VA_ARGS__, c->comm->comm, &c->request)); \
    } else {                                                             \
      MUST(c->op, CALL_PERSISTENT(NAME, __VA_ARGS__));                   \
    }                                                                    \
    return;                                                              \
  }

static void issue(Call* c, Form form) {
  const MPI_Datatype type = c->layout.type;
  const MPI_Op op = c->reduction.handle;
  const int root = (int)c->root;
  Side *s = &c->send, *r = &c->recv;
  const int in_place = c->place && !s->used && r->used;
  static char nothing[8];  // for what this rank need not give; some hosts look at the address
  const void* from = in_place ? MPI_IN_PLACE : s->used ? s->buffer.address : nothing;
  void* to = r->used ? r->buffer.address : nothing;
  // Scattering in place leaves the root's part where it is: what is in place is the output.
  const int scatters = named(c, "scatter") || named(c, "scatterv");
  if (scatters && c->place && is_root(c)) to = MPI_IN_PLACE;
  // A rank without neighbours has no block to look at; blocks that may differ are not looked at so.
  const int whole = (int)(c->n / c->layout.per), uniform = among_neighbours(c) && !c->vector;
  const int n = uniform ? whole : s->used ? s->counts[0] : 0;
  const int m = uniform ? whole : r->used ? r->counts[0] : 0;
  const int length =
      (int)((named(c, "reduce_scatter_block") ? c->n : reduced_total(c)) / c->layout.per);
  if (named(c, "barrier")) {
    if (form == kBlocking) {
      MUST(c->op, MPI_Barrier(c->comm->comm));
    } else if (form == kStarted) {
      MUST(c->op, MPI_Ibarrier(c->comm->comm, &c->request));
    } else {
      MUST(c->op, BARRIER_PERSISTENT());
    }
    return;
  }
  COLLECTIVE("bcast", Bcast, Ibcast, to, m, type, root)
  COLLECTIVE("gather", Gather, Igather, from, n, type, to, m, type, root)
  COLLECTIVE("gatherv", Gatherv, Igatherv, from, n, type, to, r->counts, r->displs, type, root)
  COLLECTIVE("scatter", Scatter, Iscatter, from, n, type, to, m, type, root)
  COLLECTIVE("scatterv", Scatterv, Iscatterv, from, s->counts, s->displs, type, to, m, type, root)
  COLLECTIVE("allgather", Allgather, Iallgather, from, n, type, to, m, type)
  COLLECTIVE("allgatherv", Allgatherv, Iallgatherv, from, n, type, to, r->counts, r->displs, type)
  COLLECTIVE("alltoall", Alltoall, Ialltoall, from, n, type, to, m, type)
  COLLECTIVE("alltoallv", Alltoallv, Ialltoallv, from, s->counts, s->displs, type, to, r->counts,
             r->displs, type)
  COLLECTIVE("alltoallw", Alltoallw, Ialltoallw, from, s->counts, s->bytes, s->types, to, r->counts,
             r->bytes, r->types)
  COLLECTIVE("reduce", Reduce, Ireduce, from, to, length, type, op, root)
  COLLECTIVE("allreduce", Allreduce, Iallreduce, from, to, length, type, op)
  COLLECTIVE("reduce_scatter_block", Reduce_scatter_block, Ireduce_scatter_block, from, to, length,
             type, op)
  COLLECTIVE("reduce_scatter", Reduce_scatter, Ireduce_scatter, from, to, c->parts, type, op)
  COLLECTIVE("scan", Scan, Iscan, from, to, length, type, op)
  COLLECTIVE("exscan", Exscan, Iexscan, from, to, length, type, op)
  COLLECTIVE("neighbor_allgather", Neighbor_allgather, Ineighbor_allgather, from, n, type, to, m,
             type)
  COLLECTIVE("neighbor_allgatherv", Neighbor_allgatherv, Ineighbor_allgatherv, from, n, type, to,
             r->counts, r->displs, type)
  COLLECTIVE("neighbor_alltoall", Neighbor_alltoall, Ineighbor_alltoall, from, n, type, to, m, type)
  COLLECTIVE("neighbor_alltoallv", Neighbor_alltoallv, Ineighbor_alltoallv, from, s->counts,
             s->displs, type, to, r->counts, r->displs, type)
  COLLECTIVE("neighbor_alltoallw", Neighbor_alltoallw, Ineighbor_alltoallw, from, s->counts,
             s->places, s->types, to, r->counts, r->places, r->types)
  fail(c->op, "the program is wrong: collective %s", c->name);
}

static Call* call_make(Session* s, const Op* op) {
  Call* c = (Call*)calloc(1, sizeof(Call));
  REQUIRE(op, c != NULL, "no memory");
  c->op = op;
  c->comm = comm_of(op, "c");
  c->name = arg_text(op, "name");
  c->k = arg_needed(op, "k");
  c->n = arg(op, "n", 0);
  c->root = arg_is(op, "root", "root")   ? MPI_ROOT
            : arg_is(op, "root", "null") ? MPI_PROC_NULL
                                         : arg(op, "root", 0);
  c->place = (int)arg(op, "place", 0);
  const size_t length = strlen(c->name);
  c->vector =
      c->name[length - 1] == 'v' || c->name[length - 1] == 'w' || named(c, "reduce_scatter");
  c->reduces = arg_text(op, "op") != NULL;
  c->request = MPI_REQUEST_NULL;
  const char* type = arg_text(op, "type");
  c->layout = layout_make(op, type != NULL ? type : "b");
  if (c->reduces) c->reduction = reduction_make(op, arg_text(op, "op"), &c->layout);
  for (int i = 0; i < c->comm->size; i++) c->parts[i] = (int)(count_of(c, i, i) / c->layout.per);
  place_call(s, c);
  fill_call(s, c);
  return c;
}

static void call_free_handles(Call* c) {
  reduction_free(&c->reduction);
  layout_free_handle(&c->layout);
}

static void call_free(Call* c) {
  call_free_handles(c);
  layout_free(&c->layout);
  if (c->send.used) buffer_free(&c->send.buffer);
  if (c->recv.used) buffer_free(&c->recv.buffer);
  free(c);
}

static void finish_call(Session* s, Call* c);  // aftermath.h

static void do_collective(Session* s, const Op* op) {
  Call* c = call_make(s, op);
  if (arg_text(op, "q") == NULL) {
    issue(c, kBlocking);
    finish_call(s, c);
    return;
  }
  const int persistent = arg_is(op, "form", "p");
  Slot* slot = slot_take(s, op, kCollective);
  slot->call = c;
  slot->persistent = persistent;
  slot->active = !persistent;
  issue(c, persistent ? kPersistent : kStarted);
  slot->request = c->request;
  if (!persistent && arg(op, "early", 0) != 0) call_free_handles(c);
}

#endif  // COLLECTIVE_CALLS_H_
