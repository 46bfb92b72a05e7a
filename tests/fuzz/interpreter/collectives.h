// Collectives of random programs: blocking, non-blocking (q=) and persistent (form=p q=, then
// start).
//
//   coll k= name= c= [root=] type= n= [op=] [place=1] [gap=1] [early=1] mem= rmem= [form=p] [q=]
//
// `n` is the number of basic elements of a block; where blocks may differ (the forms with v, w and
// reduce_scatter) block (i, j) has count_of(k, i, j). Datatypes are the same on all ranks, n is a
// multiple of what they hold. `early` frees datatype and operation while the call is under way.
// Every content follows from the number of the call and the two participants; participants of the
// other side of an inter-communicator count from kMostRanks on.
#ifndef COLLECTIVES_H_
#define COLLECTIVES_H_

#include "messages.h"
#include "reductions.h"

typedef struct {
  Buffer buffer;
  int used, blocks;
  int counts[kMostRanks], displs[kMostRanks], bytes[kMostRanks];
  MPI_Datatype types[kMostRanks];
  MPI_Aint places[kMostRanks];  // as bytes
  long elements;                // basic ones that the buffer has room for
} Side;

typedef struct Call {
  const Op* op;
  Comm* comm;
  const char* name;
  long k, n, root;  // k: number of the call, or of the start
  int place, vector, reduces;
  int parts[kMostRanks];  // of reduce_scatter, elements of the type
  Layout layout;
  Reduction reduction;
  Side send, recv;
  MPI_Request request;
} Call;

static int named(const Call* c, const char* name) { return strcmp(c->name, name) == 0; }

// Basic elements of the block that goes from i to j.
static long count_of(const Call* c, long i, long j) {
  if (!c->vector) return c->n;
  if (c->place && i > j) return count_of(c, j, i);
  const uint64_t hash = mix((uint64_t)arg(c->op, "k", 0) * 977 + mix((uint64_t)(i * 131 + j)));
  if (hash % 7 == 0) return 0;
  const long whole = c->n / c->layout.per;
  return (long)(hash / 7 % (uint64_t)(whole + 1)) * c->layout.per;
}

static long self(const Call* c) { return c->comm->rank + (long)c->comm->place * kMostRanks; }
static long other(const Call* c, long i) {  // participant i of those whose data we get
  const int side = c->comm->is_inter ? 1 - c->comm->place : 0;
  return i + (long)side * kMostRanks;
}
// Whether it is among neighbours of a topology; who is beyond the border of a grid is -1.
static int among_neighbours(const Call* c) { return strncmp(c->name, "neighbor_", 9) == 0; }
static int sources(const Call* c);
static int targets(const Call* c);
static long source(const Call* c, int i) {
  return among_neighbours(c) ? c->comm->in[i] : other(c, i);
}
static long target(const Call* c, int i) {
  return among_neighbours(c) ? c->comm->out[i] : other(c, i);
}
static int others(const Call* c) {
  return c->comm->is_inter ? c->comm->remote_size : c->comm->size;
}

static int sources(const Call* c) { return among_neighbours(c) ? c->comm->in_count : others(c); }
static int targets(const Call* c) { return among_neighbours(c) ? c->comm->out_count : others(c); }

static int is_root(const Call* c) {
  return c->comm->is_inter ? c->root == MPI_ROOT : c->root == c->comm->rank;
}
static int rooted(const Call* c) {
  return named(c, "bcast") || named(c, "gather") || named(c, "gatherv") || named(c, "scatter") ||
         named(c, "scatterv") || named(c, "reduce");
}
static int from_all(const Call* c) {
  return named(c, "gather") || named(c, "gatherv") || named(c, "allgather") ||
         named(c, "allgatherv") || named(c, "neighbor_allgather") ||
         named(c, "neighbor_allgatherv");
}

// --- what goes from where to where ---------------------------------------------------------------

// The key of the block from i to j; what is the same for all receivers does not depend on j.
static uint64_t block_key(const Session* s, const Call* c, long i, long j) {
  return content_key(s->program, 100000 + c->k, i, j);
}

static void side_place(Session* s, Call* c, Side* side, const char* mem) {
  const int reversed = c->vector && arg(c->op, "k", 0) % 2 == 1;
  const long gap = c->vector ? arg(c->op, "gap", 0) : 0;
  long next = 0;
  for (int i = 0; i < side->blocks; i++) {
    const int block = reversed ? side->blocks - 1 - i : i;
    side->displs[block] = (int)next;
    side->bytes[block] = (int)(next * c->layout.extent);
    side->places[block] = next * c->layout.extent;
    side->types[block] = c->layout.type;
    next += side->counts[block] + gap;
  }
  side->elements = next * c->layout.per;
  side->used = 1;
  side->buffer = buffer_make(c->op, &s->arenas, arg_text(c->op, mem), &c->layout, side->elements);
}

static long side_first(const Call* c, const Side* side, int block) {
  return (long)side->displs[block] * c->layout.per;
}

// One block of so many basic elements.
static void side_vector(Session* s, Call* c, Side* side, long n, const char* mem) {
  side->blocks = 1;
  side->counts[0] = (int)(n / c->layout.per);
  side_place(s, c, side, mem);
}

static long reduced_total(const Call* c) {
  long total = 0;
  if (named(c, "reduce_scatter_block")) return c->n * c->comm->size;
  if (!named(c, "reduce_scatter")) return c->n;
  for (int i = 0; i < c->comm->size; i++) total += count_of(c, i, i);
  return total;
}

static long reduced_first(const Call* c) {
  long first = 0;
  if (named(c, "reduce_scatter_block")) return c->n * c->comm->rank;
  if (!named(c, "reduce_scatter")) return 0;
  for (int i = 0; i < c->comm->rank; i++) first += count_of(c, i, i);
  return first;
}

static long reduced_own(const Call* c) {
  return named(c, "reduce_scatter") ? count_of(c, c->comm->rank, c->comm->rank) : c->n;
}

// Makes the buffers; their content comes with fill_call.
static void place_call(Session* s, Call* c) {
  const int in_place = c->place && (!rooted(c) || is_root(c));
  const int idle = rooted(c) && c->comm->is_inter && c->root == MPI_PROC_NULL;
  const int sends = !idle && !(c->comm->is_inter && rooted(c) && is_root(c));
  if (named(c, "barrier") || idle) return;
  if (c->reduces) {
    const int gets = named(c, "reduce") ? is_root(c) : 1;
    if (gets) {
      side_vector(s, c, &c->recv, in_place ? reduced_total(c) : reduced_own(c), "rmem");
      c->recv.elements = reduced_own(c);
    }
    if (!in_place && sends) side_vector(s, c, &c->send, reduced_total(c), "mem");
  } else if (named(c, "bcast")) {
    side_vector(s, c, &c->recv, c->n, "rmem");
  } else if (from_all(c)) {
    // Blocks are described by where they come from alone.
    const int gets = !rooted(c) || is_root(c);
    if (gets) {
      c->recv.blocks = sources(c);
      for (int i = 0; i < c->recv.blocks; i++) {
        c->recv.counts[i] = (int)(count_of(c, source(c, i), 0) / c->layout.per);
      }
      side_place(s, c, &c->recv, "rmem");
    }
    if (!in_place && sends) side_vector(s, c, &c->send, count_of(c, self(c), 0), "mem");
  } else if (named(c, "scatter") || named(c, "scatterv")) {
    if (is_root(c)) {
      c->send.blocks = others(c);
      for (int i = 0; i < c->send.blocks; i++) {
        c->send.counts[i] = (int)(count_of(c, 0, other(c, i)) / c->layout.per);
      }
      side_place(s, c, &c->send, "mem");
    }
    if (!in_place && sends) side_vector(s, c, &c->recv, count_of(c, 0, self(c)), "rmem");
  } else {  // all-to-all
    c->recv.blocks = sources(c);
    for (int i = 0; i < c->recv.blocks; i++) {
      c->recv.counts[i] = (int)(count_of(c, source(c, i), self(c)) / c->layout.per);
    }
    side_place(s, c, &c->recv, "rmem");
    if (!in_place) {
      c->send.blocks = targets(c);
      for (int i = 0; i < c->send.blocks; i++) {
        c->send.counts[i] = (int)(count_of(c, self(c), target(c, i)) / c->layout.per);
      }
      side_place(s, c, &c->send, "mem");
    }
  }
}

// The key of block i of a side: sent by this rank, or received by it.
static uint64_t side_key(const Session* s, const Call* c, int sent, int i) {
  const long peer = sent ? target(c, i) : source(c, i);
  if (named(c, "bcast")) return block_key(s, c, 900, 0);
  if (named(c, "scatter") || named(c, "scatterv")) {
    return block_key(s, c, 900, sent ? peer : self(c));
  }
  if (from_all(c)) return block_key(s, c, sent ? self(c) : peer, 0);
  return sent ? block_key(s, c, self(c), peer) : block_key(s, c, peer, self(c));
}

// Writes a block of a side to the image of its buffer, or to the buffer itself.
static void write_block(const Session* s, const Call* c, const Side* side, char* address, int i,
                        int sent) {
  layout_fill(&c->layout, address, side_first(c, side, i), (long)side->counts[i] * c->layout.per,
              side_key(s, c, sent, i));
}

static void write_operands(const Session* s, const Call* c, char* address, long n) {
  const uint64_t key = block_key(s, c, self(c), 0);
  for (long e = 0; e < n; e++) {
    store_element(c->reduction.name, &c->layout, address, e,
                  operand_of_element(c->reduction.name, &c->layout, key, e));
  }
}

static void write_input(const Session* s, const Call* c, const Side* side, char* address) {
  if (c->reduces) {
    write_operands(s, c, address, (long)side->counts[0] * c->layout.per);
    return;
  }
  const int whole = side == &c->send;
  for (int i = 0; i < side->blocks; i++) {
    if (whole) {
      write_block(s, c, side, address, i, 1);
    } else if (named(c, "bcast") || (from_all(c) && i == c->comm->rank)) {
      write_block(s, c, side, address, i, named(c, "bcast"));
    } else if (!from_all(c)) {  // all-to-all in place: what is there goes out
      write_block(s, c, side, address, i, 1);
    }
  }
}

static void fill_call(Session* s, Call* c) {
  Side* sides[] = {&c->send, &c->recv};
  for (int i = 0; i < 2; i++) {
    if (!sides[i]->used) continue;
    memset(sides[i]->buffer.region, kUntouched, (size_t)sides[i]->buffer.bytes);
  }
  if (c->send.used) write_input(s, c, &c->send, c->send.buffer.address);
  const int in_recv = named(c, "bcast") ? is_root(c) : c->place && !c->send.used && c->recv.used;
  const int scatters = named(c, "scatter") || named(c, "scatterv");
  if (in_recv && !scatters) write_input(s, c, &c->recv, c->recv.buffer.address);
}

// --- what must have come out ---------------------------------------------------------------------

static void write_result(const Session* s, const Call* c, char* address) {
  int first = 0, end = others(c);
  if (named(c, "scan")) end = c->comm->rank + 1;
  if (named(c, "exscan")) end = c->comm->rank;
  if (first == end) return;  // exscan on the first rank: nothing is said
  const long offset = reduced_first(c);
  const char* op = c->reduction.name;
  for (long e = 0; e < reduced_own(c); e++) {
    Number result = operand_of_element(op, &c->layout, block_key(s, c, other(c, 0), 0), offset + e);
    for (int i = 1; i < end; i++) {
      const uint64_t key = block_key(s, c, other(c, i), 0);
      result = combine(op, result, operand_of_element(op, &c->layout, key, offset + e));
    }
    store_element(op, &c->layout, address, e, result);
  }
}

static void check_call(Session* s, Call* c) {
  if (c->send.used) {
    char* image = image_begin(&c->send.buffer);
    write_input(s, c, &c->send, image + (c->send.buffer.address - c->send.buffer.region));
    image_check(c->op, &c->send.buffer, image, "input of a collective");
  }
  if (!c->recv.used) return;
  const int undefined = named(c, "exscan") && c->comm->rank == 0;
  if (undefined) return;
  char* image = image_begin(&c->recv.buffer);
  char* address = image + (c->recv.buffer.address - c->recv.buffer.region);
  if (c->reduces) {
    const long own = reduced_own(c), whole = (long)c->recv.counts[0] * c->layout.per;
    // In place, what lies behind a rank's part of the result is nobody's business.
    if (whole > own) memcpy(image, c->recv.buffer.region, (size_t)c->recv.buffer.bytes);
    write_result(s, c, address);
  } else {
    for (int i = 0; i < c->recv.blocks; i++) {
      if (source(c, i) >= 0) write_block(s, c, &c->recv, address, i, 0);
    }
  }
  image_check(c->op, &c->recv.buffer, image, "result of a collective");
}

#endif  // COLLECTIVES_H_
