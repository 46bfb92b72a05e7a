// Neighbourhood collectives in all forms on random topologies: grids, graphs and distributed graphs
// with edges from a rank to itself, several between the same ranks, weights and empty lists.
//
// What must come out follows from the topology. Up to three calls are under way at once, beside a
// receive from any rank; then ranks send each other the message that this one waits for.
//   --cases=N      topologies
//   --most=P       at most P pairs of integers per block
//   --threads=N    as many threads at the same time, each with topologies of its own
//   --unique=1     no two ways from one rank to another, about which hosts differ, and nothing else
//                  that they get wrong
//   --only=NAME    only one of allgather, allgatherv, alltoall, alltoallv, alltoallw
#include <pthread.h>

#include "odtest.h"

#if MPI_VERSION >= 4
#define HAVE_PERSISTENT 1
#else
#define HAVE_PERSISTENT 0
#endif

enum { kMostNeighbours = 64, kKinds = 3, kMostThreads = 4, kPending = 3, kTag = 77 };
typedef enum { kAllgather, kAllgatherv, kAlltoall, kAlltoallv, kAlltoallw, kCalls } Call;
static const char* const kNames[kCalls] = {"allgather", "allgatherv", "alltoall", "alltoallv",
                                           "alltoallw"};
typedef enum { kBlocking, kStarted, kPersistent, kForms } Form;
static const char* const kFormNames[kForms] = {"blocking", "non-blocking", "persistent"};
static const long kUntouched = -77;

// Datatypes of integers: where the parts of an element lie, and how far elements are apart.
static MPI_Datatype types[kKinds];
static const int kParts[kKinds] = {1, 1, 2};
static const int kExtent[kKinds] = {1, 2, 4};
static long place(int kind, long part) {
  return part / kParts[kind] * kExtent[kind] + part % kParts[kind] * 2;
}

static void make_types(void) {
  MPI_Datatype pair;
  types[0] = MPI_LONG;
  MUST(MPI_Type_create_resized(MPI_LONG, 0, 2 * sizeof(long), &types[1]));
  MUST(MPI_Type_vector(2, 1, 2, MPI_LONG, &pair));
  MUST(MPI_Type_create_resized(pair, 0, 4 * sizeof(long), &types[2]));
  MUST(MPI_Type_free(&pair));
  MUST(MPI_Type_commit(&types[1]));
  MUST(MPI_Type_commit(&types[2]));
}

// Ways in and out; a way is told from others between the same ranks by its number.
typedef struct {
  MPI_Comm comm;
  int rank, size, ins, outs;
  int in[kMostNeighbours], in_way[kMostNeighbours];
  int out[kMostNeighbours], out_way[kMostNeighbours];
  char text[80];
} Topology;

typedef struct {
  int blocks;
  int kinds[kMostNeighbours], counts[kMostNeighbours], displs[kMostNeighbours];
  MPI_Aint places[kMostNeighbours];
  MPI_Datatype types[kMostNeighbours];
  long longs;
  long* data;
} Side;

typedef struct {
  Call call;
  Form form;
  long key, parts;  // parts: of a block at most
  Side send, recv;
  MPI_Request request;
} Operation;

static long most_parts;
static int unique, only = -1;
static const int* unweighted;  // compilers take the constant for an empty array

// --- topologies ----------------------------------------------------------------------------------

static void number_ways(const int* peers, int count, int* ways) {
  for (int i = 0; i < count; i++) {
    ways[i] = 0;
    for (int j = 0; j < i; j++) ways[i] += peers[j] == peers[i];
  }
}

static void make_grid(OdtRandom* random, MPI_Comm parent, int size, Topology* t) {
  int dims[3], periods[3], count = 0, left = size;
  while (count < 2 && odt_below(random, 3) != 0) {
    int factor = 1 + (int)odt_below(random, left);
    while (left % factor != 0) factor--;
    dims[count++] = factor;
    left /= factor;
  }
  dims[count++] = left;
  for (int i = 0; i < count; i++) {
    periods[i] = (int)odt_below(random, 2) && (!unique || dims[i] > 2);
  }
  MUST(MPI_Cart_create(parent, count, dims, periods, 0, &t->comm));
  t->ins = t->outs = 2 * count;
  for (int i = 0; i < count; i++)
    MUST(MPI_Cart_shift(t->comm, i, 1, &t->in[2 * i], &t->in[2 * i + 1]));
  for (int i = 0; i < t->ins; i++) {
    t->out[i] = t->in[i];
    t->out_way[i] = i;
    t->in_way[i] = i ^ 1;  // sent up, it comes from below
  }
  snprintf(t->text, sizeof t->text, "grid of %d dimensions, first %d%s", count, dims[0],
           periods[0] ? " periodic" : "");
}

typedef struct {
  int from, to;
} Edge;

static void make_graph(OdtRandom* random, MPI_Comm parent, int size, int me, Topology* t) {
  Edge edges[kMostNeighbours];
  const int symmetric = odt_below(random, 3) == 0;
  const int most = 3 * size < kMostNeighbours / 2 ? 3 * size : kMostNeighbours / 2;
  const int draws = (int)odt_below(random, most + 1);
  int count = 0;
  for (int i = 0; i < draws; i++) {
    const Edge edge = {(int)odt_below(random, size), (int)odt_below(random, size)};
    int known = 0;
    for (int j = 0; j < count; j++) known |= edges[j].from == edge.from && edges[j].to == edge.to;
    // A symmetric graph has each way in both directions; where one leads to itself hosts differ.
    if ((unique && known) || (symmetric && edge.from == edge.to)) continue;
    edges[count++] = edge;
    if (symmetric) edges[count++] = (Edge){edge.to, edge.from};
  }
  int in_weights[kMostNeighbours], out_weights[kMostNeighbours], degree = 0;
  for (int i = 0; i < count; i++) {
    if (edges[i].from == me) {
      out_weights[t->outs] = 1 + i;
      t->out[t->outs++] = edges[i].to;
    }
    if (edges[i].to == me) {
      in_weights[t->ins] = 1 + i;
      t->in[t->ins++] = edges[i].from;
    }
  }
  if (symmetric && count > 0) {
    int index[kMostNeighbours], flat[2 * kMostNeighbours];
    for (int rank = 0; rank < size; rank++) {
      for (int i = 0; i < count; i++) {
        if (edges[i].from == rank) flat[degree++] = edges[i].to;
      }
      index[rank] = degree;
    }
    MUST(MPI_Graph_create(parent, size, index, flat, 0, &t->comm));
    t->ins = t->outs;
    memcpy(t->in, t->out, sizeof t->in);
    snprintf(t->text, sizeof t->text, "graph of %d ways", count);
  } else if (odt_below(random, 2) == 0) {
    const int weighted = (int)odt_below(random, 2);
    MUST(MPI_Dist_graph_create_adjacent(parent, t->ins, t->in, weighted ? in_weights : unweighted,
                                        t->outs, t->out, weighted ? out_weights : unweighted,
                                        MPI_INFO_NULL, 0, &t->comm));
    snprintf(t->text, sizeof t->text, "adjacent graph of %d ways%s", count,
             weighted ? " with weights" : "");
  } else {
    // Each rank tells what starts at its neighbour, so that somebody else's ways are told as well.
    int sources[kMostNeighbours], degrees[kMostNeighbours], ends[kMostNeighbours], mine = 0;
    for (int i = 0; i < count; i++) {
      if (edges[i].from != (me + 1) % size) continue;
      sources[mine] = edges[i].from;
      degrees[mine] = 1;
      ends[mine++] = edges[i].to;
    }
    MUST(MPI_Dist_graph_create(parent, mine, sources, degrees, ends, unweighted, MPI_INFO_NULL, 0,
                               &t->comm));
    // In which order is the host's choice.
    int w = 0, ins = 0, outs = 0;
    MUST(MPI_Dist_graph_neighbors_count(t->comm, &ins, &outs, &w));
    CHECK(ins == t->ins && outs == t->outs, "%d and %d ways, not %d and %d", ins, outs, t->ins,
          t->outs);
    MUST(MPI_Dist_graph_neighbors(t->comm, ins, t->in, in_weights, outs, t->out, out_weights));
    snprintf(t->text, sizeof t->text, "distributed graph of %d ways", count);
  }
  number_ways(t->in, t->ins, t->in_way);
  number_ways(t->out, t->outs, t->out_way);
}

static void make_topology(OdtRandom* random, MPI_Comm parent, Topology* t) {
  memset(t, 0, sizeof *t);
  MPI_Comm_rank(parent, &t->rank);
  MPI_Comm_size(parent, &t->size);
  if (odt_below(random, 2) == 0) {
    make_grid(random, parent, t->size, t);
  } else {
    make_graph(random, parent, t->size, t->rank, t);
  }
  if (odt_below(random, 4) == 0) {  // a duplicate has the same neighbours
    MPI_Comm copy;
    MUST(MPI_Comm_dup(t->comm, &copy));
    MUST(MPI_Comm_free(&t->comm));
    t->comm = copy;
  }
}

// --- calls ---------------------------------------------------------------------------------------

static int gathers(const Operation* op) {
  return op->call == kAllgather || op->call == kAllgatherv;
}
static int equal(const Operation* op) { return op->call == kAllgather || op->call == kAlltoall; }

static uint64_t block_key(const Operation* op, int from, int to, int way) {
  return gathers(op) ? odt_key(from, 0, op->key, 0) : odt_key(from, to, op->key, way + 1);
}

// Parts of the block that goes from one rank to another: whole elements of every datatype.
static long parts_of(const Operation* op, int from, int to, int way) {
  if (equal(op)) return op->parts;
  if (from == MPI_PROC_NULL || to == MPI_PROC_NULL) return 0;
  const uint64_t mixed = odt_mix(block_key(op, from, to, way) + 5);
  return mixed % 4 == 0 ? 0 : 2 * (long)(mixed / 4 % (uint64_t)(op->parts / 2 + 1));
}

static int kind_of(const Operation* op, int sent, int block) {
  if (op->call != kAlltoallw) block = 0;
  return (int)(odt_mix((uint64_t)(op->key * 131 + sent * 17 + block)) % kKinds);
}

static void lay_out(const Topology* t, Operation* op, Side* side, int sent) {
  const int one = sent && gathers(op);
  side->blocks = one ? 1 : (sent ? t->outs : t->ins);
  long next = 0;
  for (int i = 0; i < side->blocks; i++) {
    const int peer = one ? 0 : (sent ? t->out[i] : t->in[i]);
    const int way = one ? 0 : (sent ? t->out_way[i] : t->in_way[i]);
    const long parts = sent ? parts_of(op, t->rank, peer, way) : parts_of(op, peer, t->rank, way);
    const int kind = side->kinds[i] = kind_of(op, sent, i);
    side->counts[i] = (int)(parts / kParts[kind]);
    side->types[i] = types[kind];
    if (op->call == kAlltoallw) next = (next + 3) / 4 * 4;
    side->places[i] = (MPI_Aint)(next * (long)sizeof(long));
    side->displs[i] = (int)(next / kExtent[kind]);
    next += (long)side->counts[i] * kExtent[kind];
    if (!equal(op) && i % 3 == 0) next += kExtent[kind];  // blocks need not follow each other
  }
  side->longs = next + 4;
  side->data = odt_memory((size_t)side->longs * sizeof(long));
}

static uint64_t side_key(const Topology* t, const Operation* op, int sent, int block) {
  if (sent && gathers(op)) return block_key(op, t->rank, 0, 0);
  return sent ? block_key(op, t->rank, t->out[block], t->out_way[block])
              : block_key(op, t->in[block], t->rank, t->in_way[block]);
}

// The content of a side: what is sent, or what must have come.
static void write_side(const Topology* t, const Operation* op, const Side* side, int sent,
                       long* data) {
  for (long i = 0; i < side->longs; i++) data[i] = kUntouched;
  for (int i = 0; i < side->blocks; i++) {
    const int nobody = !(sent && gathers(op)) && (sent ? t->out[i] : t->in[i]) == MPI_PROC_NULL;
    if (nobody) continue;
    const uint64_t key = side_key(t, op, sent, i);
    long* const block = data + side->places[i] / (MPI_Aint)sizeof(long);
    for (long p = 0; p < (long)side->counts[i] * kParts[side->kinds[i]]; p++) {
      block[place(side->kinds[i], p)] = (long)odt_word(key, (uint64_t)p);
    }
  }
}

static void prepare(const Topology* t, Operation* op) {
  write_side(t, op, &op->send, 1, op->send.data);
  for (long i = 0; i < op->recv.longs; i++) op->recv.data[i] = kUntouched;
}

static void check(const Topology* t, const Operation* op) {
  long* const expected = odt_memory((size_t)op->recv.longs * sizeof(long));
  write_side(t, op, &op->recv, 0, expected);
  long wrong = -1;
  for (long i = 0; i < op->recv.longs && wrong < 0; i++) {
    if (op->recv.data[i] != expected[i]) wrong = i;
  }
  CHECK(wrong < 0, "%s %s of %ld parts on a %s: wrong at %ld of %ld", kFormNames[op->form],
        kNames[op->call], op->parts, t->text, wrong, op->recv.longs);
  free(expected);
}

#if HAVE_PERSISTENT
#define PERSISTENT(name, comm, ...) \
  MPI_Neighbor_##name##_init(__VA_ARGS__, comm, MPI_INFO_NULL, &op->request)
#else
#define PERSISTENT(name, comm, ...) MPI_SUCCESS
#endif
#define CALL(number, name, ...)                                       \
  case number:                                                        \
    if (op->form == kBlocking) {                                      \
      MUST(MPI_Neighbor_##name(__VA_ARGS__, t->comm));                \
    } else if (op->form == kStarted) {                                \
      MUST(MPI_Ineighbor_##name(__VA_ARGS__, t->comm, &op->request)); \
    } else {                                                          \
      MUST(PERSISTENT(name, t->comm, __VA_ARGS__));                   \
    }                                                                 \
    return;

static void call(const Topology* t, Operation* op) {
  const Side *s = &op->send, *r = &op->recv;
  const MPI_Datatype send_type = types[kind_of(op, 1, 0)], recv_type = types[kind_of(op, 0, 0)];
  const int send_count = (int)(op->parts / kParts[kind_of(op, 1, 0)]);
  const int recv_count = (int)(op->parts / kParts[kind_of(op, 0, 0)]);
  switch (op->call) {
    CALL(kAllgather, allgather, s->data, send_count, send_type, r->data, recv_count, recv_type)
    CALL(kAllgatherv, allgatherv, s->data, s->counts[0], send_type, r->data, r->counts, r->displs,
         recv_type)
    CALL(kAlltoall, alltoall, s->data, send_count, send_type, r->data, recv_count, recv_type)
    CALL(kAlltoallv, alltoallv, s->data, s->counts, s->displs, send_type, r->data, r->counts,
         r->displs, recv_type)
    CALL(kAlltoallw, alltoallw, s->data, s->counts, s->places, s->types, r->data, r->counts,
         r->places, r->types)
    case kCalls:
      break;
  }
}

static void draw(OdtRandom* random, const Topology* t, Operation* op) {
  op->call = only >= 0 ? (Call)only : (Call)odt_below(random, kCalls);
  if (unique && op->call == kAlltoallw) op->call = kAlltoallv;  // MPICH 4.0: wrong on graphs
  op->form = (Form)odt_below(random, HAVE_PERSISTENT ? kForms : kPersistent);
  op->key = (long)(odt_next(random) % 1000000);
  static const long kPairs[] = {0, 1, 2, 7, 32, 200, 700, 3000, 20000};
  op->parts = 2 * kPairs[odt_below(random, 9)];
  if (op->parts > most_parts) op->parts = most_parts;
  op->request = MPI_REQUEST_NULL;
  lay_out(t, op, &op->send, 1);
  lay_out(t, op, &op->recv, 0);
}

static void run_case(OdtRandom* random, MPI_Comm parent) {
  Topology t;
  make_topology(random, parent, &t);
  for (int batch = 0; batch < 3; batch++) {
    Operation ops[kPending];
    const int count = 1 + (int)odt_below(random, kPending);
    const int wildcard = (int)odt_below(random, 2);
    const int next = (t.rank + 1) % t.size, before = (t.rank + t.size - 1) % t.size;
    int got = -1;
    MPI_Request any = MPI_REQUEST_NULL;
    if (wildcard) MUST(MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, kTag, t.comm, &any));
    for (int i = 0; i < count; i++) {
      draw(random, &t, &ops[i]);
      prepare(&t, &ops[i]);
      call(&t, &ops[i]);
      if (ops[i].form == kPersistent) MUST(MPI_Start(&ops[i].request));
    }
    if (wildcard) {
      MUST(MPI_Send(&t.rank, 1, MPI_INT, next, kTag, t.comm));
      MUST(MPI_Wait(&any, MPI_STATUS_IGNORE));
      CHECK(got == before, "from any rank came %d, not %d", got, before);
    }
    for (int i = 0; i < count; i++) {
      Operation* const op = &ops[(i + t.rank) % count];
      if (op->form != kBlocking) MUST(MPI_Wait(&op->request, MPI_STATUS_IGNORE));
      check(&t, op);
    }
    for (int i = 0; i < count; i++) {
      Operation* const op = &ops[i];
      if (op->form == kPersistent && !unique) {  // MPICH gets a second round wrong
        prepare(&t, op);
        MUST(MPI_Start(&op->request));
        MUST(MPI_Wait(&op->request, MPI_STATUS_IGNORE));
        check(&t, op);
      }
      if (op->form == kPersistent) MUST(MPI_Request_free(&op->request));
      free(op->send.data);
      free(op->recv.data);
    }
  }
  MUST(MPI_Comm_free(&t.comm));
}

static MPI_Comm parents[kMostThreads];
static long cases;

static void* run_cases(void* argument) {
  const long number = (long)(intptr_t)argument;
  OdtRandom random = odt_random((uint64_t)number);
  for (long i = 0; i < cases; i++) run_case(&random, parents[number]);
  return NULL;
}

int main(int argc, char** argv) {
  int threads = 1;
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--threads=", 10) == 0) threads = atoi(argv[i] + 10);
  }
  odt_start_as("neighbours", &argc, &argv, threads > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  if (threads > kMostThreads) threads = kMostThreads;
  if (threads > 1 && odt.provided < MPI_THREAD_MULTIPLE) {
    if (odt.rank == 0) printf("SKIP the host has no MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 0;
  }
  cases = odt_number("cases", 40);
  most_parts = 2 * odt_number("most", 20000);
  unique = (int)odt_number("unique", 0);
  for (int i = 0; i < kCalls; i++) {
    if (strcmp(odt_option("only", ""), kNames[i]) == 0) only = i;
  }
  unweighted = MPI_UNWEIGHTED;
  make_types();
  for (int i = 0; i < threads; i++) MUST(MPI_Comm_dup(MPI_COMM_WORLD, &parents[i]));
  if (threads > 1) {
    // Open MPI 4.1 loads its part for topologies with the first one, and crashes now and then where
    // two threads make that (mca_topo_base_lazy_init).
    int one = 1, zero = 0;
    MPI_Comm first;
    MUST(MPI_Cart_create(MPI_COMM_SELF, 1, &one, &zero, 0, &first));
    MUST(MPI_Comm_free(&first));
  }
  pthread_t ids[kMostThreads];
  for (int i = 1; i < threads; i++) {
    pthread_create(&ids[i], NULL, run_cases, (void*)(intptr_t)i);
  }
  run_cases((void*)0);
  for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
  for (int i = 0; i < threads; i++) MUST(MPI_Comm_free(&parents[i]));
  for (int i = 1; i < kKinds; i++) MUST(MPI_Type_free(&types[i]));
  return odt_finish();
}
