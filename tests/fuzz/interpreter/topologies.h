// Communicators with a topology, and what MPI must say about it.
//
//   comm how=cart parent= id= dims= periods=
//   comm how=graph|adjacent|distributed parent= id= edges=A,B,A,B,..   from A to B
// The neighbours of this rank come in the order that the standard fixes; after
// MPI_Dist_graph_create, where it fixes none, in the order that MPI gives.
#ifndef TOPOLOGIES_H_
#define TOPOLOGIES_H_

#include "session.h"

static int compare_ints(const void* a, const void* b) { return *(const int*)a - *(const int*)b; }

// Demands that MPI's list is the expected one, in any order where `sorts`.
static void same_neighbours(const Op* op, const int* is, const int* must, int count, int sorts) {
  int a[kMostNeighbours], b[kMostNeighbours];
  memcpy(a, is, sizeof(int) * (size_t)count);
  memcpy(b, must, sizeof(int) * (size_t)count);
  if (sorts) {
    qsort(a, (size_t)count, sizeof(int), compare_ints);
    qsort(b, (size_t)count, sizeof(int), compare_ints);
  }
  for (int i = 0; i < count; i++) {
    REQUIRE(op, a[i] == b[i], "neighbour %d of a topology is %d, not %d", i, a[i], b[i]);
  }
}

static MPI_Comm cart_make(const Op* op, const Comm* parent) {
  long dims[8], periods[8];
  int lengths[8], wraps[8];
  const int count = arg_list(op, "dims", dims, 8);
  arg_list(op, "periods", periods, 8);
  for (int i = 0; i < count; i++) lengths[i] = (int)dims[i], wraps[i] = (int)periods[i];
  MPI_Comm made = MPI_COMM_NULL;
  MUST(op, MPI_Cart_create(parent->comm, count, lengths, wraps, 0, &made));
  return made;
}

// The neighbours in a grid: by dimension, first the one below and then the one above.
static void cart_neighbours(const Op* op, Comm* c) {
  long dims[8], periods[8];
  const int count = arg_list(op, "dims", dims, 8);
  arg_list(op, "periods", periods, 8);
  int step = c->size;
  for (int d = 0; d < count; d++) {
    const int length = (int)dims[d];
    step /= length;
    const int at = c->rank / step % length;
    for (int above = 0; above < 2; above++) {
      const int moved = at + (above ? 1 : -1);
      const int inside = moved >= 0 && moved < length;
      c->in[2 * d + above] =
          inside || periods[d] ? c->rank + ((moved + length) % length - at) * step : -1;
    }
    int below, above;
    MUST(op, MPI_Cart_shift(c->comm, d, 1, &below, &above));
    const int found[2] = {below == MPI_PROC_NULL ? -1 : below, above == MPI_PROC_NULL ? -1 : above};
    same_neighbours(op, found, c->in + 2 * d, 2, 0);
  }
  memcpy(c->out, c->in, sizeof c->in);
  c->in_count = c->out_count = 2 * count;
}

// Cuts edges into who sends to a rank and whom it sends to.
static void cut_edges(const Op* op, int rank, int* in, int* in_count, int* out, int* out_count) {
  long ends[2 * kMostEdges];
  const int count = arg_list(op, "edges", ends, 2 * kMostEdges);
  *in_count = *out_count = 0;
  for (int i = 0; i < count; i += 2) {
    if (ends[i + 1] == rank) in[(*in_count)++] = (int)ends[i];
    if (ends[i] == rank) out[(*out_count)++] = (int)ends[i + 1];
  }
}

static MPI_Comm graph_make(const Op* op, const Comm* parent) {
  int in[kMostNeighbours], out[kMostNeighbours], ins, outs;
  MPI_Comm made = MPI_COMM_NULL;
  cut_edges(op, parent->rank, in, &ins, out, &outs);
  if (arg_is(op, "how", "adjacent")) {
    MUST(op, MPI_Dist_graph_create_adjacent(parent->comm, ins, in, MPI_UNWEIGHTED, outs, out,
                                            MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made));
  } else if (arg_is(op, "how", "distributed")) {
    // Each edge is named by a rank that has nothing to do with it.
    long ends[2 * kMostEdges];
    int sources[kMostEdges], degrees[kMostEdges], targets[kMostEdges], named = 0;
    const int count = arg_list(op, "edges", ends, 2 * kMostEdges);
    for (int i = 0; i < count / 2; i++) {
      if (i % parent->size != parent->rank) continue;
      sources[named] = (int)ends[2 * i];
      degrees[named] = 1;
      targets[named++] = (int)ends[2 * i + 1];
    }
    MUST(op, MPI_Dist_graph_create(parent->comm, named, sources, degrees, targets, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &made));
  } else {
    int index[kMostRanks], edges[kMostEdges], total = 0;
    for (int rank = 0; rank < parent->size; rank++) {
      cut_edges(op, rank, in, &ins, out, &outs);
      for (int i = 0; i < outs; i++) edges[total++] = out[i];
      index[rank] = total;
    }
    MUST(op, MPI_Graph_create(parent->comm, parent->size, index, edges, 0, &made));
  }
  return made;
}

static void graph_neighbours(const Op* op, Comm* c) {
  int in[kMostNeighbours], out[kMostNeighbours], ins, outs, weighted = 0;
  cut_edges(op, c->rank, in, &ins, out, &outs);
  if (arg_is(op, "how", "graph")) {
    // Neighbours in both directions are those that the rank names.
    MUST(op, MPI_Graph_neighbors_count(c->comm, c->rank, &c->out_count));
    REQUIRE(op, c->out_count == outs, "a graph has %d neighbours, not %d", c->out_count, outs);
    MUST(op, MPI_Graph_neighbors(c->comm, c->rank, outs, c->out));
    same_neighbours(op, c->out, out, outs, 0);
    memcpy(c->in, c->out, sizeof c->in);
    c->in_count = outs;
    return;
  }
  MUST(op, MPI_Dist_graph_neighbors_count(c->comm, &c->in_count, &c->out_count, &weighted));
  REQUIRE(op, c->in_count == ins && c->out_count == outs && !weighted,
          "a graph has %d and %d neighbours, not %d and %d", c->in_count, c->out_count, ins, outs);
  MUST(op,
       MPI_Dist_graph_neighbors(c->comm, ins, c->in, MPI_UNWEIGHTED, outs, c->out, MPI_UNWEIGHTED));
  const int any_order = arg_is(op, "how", "distributed");
  same_neighbours(op, c->in, in, ins, any_order);
  same_neighbours(op, c->out, out, outs, any_order);
}

static int has_topology(const Op* op) { return arg_text(op, "dims") || arg_text(op, "edges"); }

static MPI_Comm topology_make(const Op* op, const Comm* parent) {
  return arg_is(op, "how", "cart") ? cart_make(op, parent) : graph_make(op, parent);
}

static void topology_note(const Op* op, Comm* c) {
  if (arg_is(op, "how", "cart")) {
    cart_neighbours(op, c);
  } else {
    graph_neighbours(op, c);
  }
  c->has_neighbours = 1;
}

#endif  // TOPOLOGIES_H_
