// Collectives with any of their buffers on devices: every collective, blocking, non-blocking and
// persistent, in place and not, in all mixtures of places over the ranks. --device=0 leaves out the
// buffers that the host must not touch, for hosts alone; --forms=1 takes blocking calls only.
#include "device.h"

enum { MOST_RANKS = 8 };
enum Form { BLOCKING, STARTED, PERSISTENT, FORMS };
static const char* const kForms[] = {"blocking", "started", "persistent"};

static int device_buffers = 1;
static int rank_salt;  // changes which rank's buffers are where

static enum Place place_of(int rank, int which) {
  static const enum Place kPlaces[] = {DEVICE, HEAP, DEVICE, MAPPED, DEVICE, MANAGED};
  enum Place place = kPlaces[odt_mix((uint64_t)(rank * 31 + which * 7 + rank_salt)) % 6];
  return place == DEVICE && !device_buffers ? HEAP : place;
}

// Integers, so that sums are exact.
static int value(int rank, long i, int salt) {
  return (int)(odt_word((uint64_t)(rank * 100 + salt), (uint64_t)i) % 1000);
}

typedef struct {
  Buffer buffer;
  int* expected;
  long count;
} Ints;

static Ints ints_make(int which, long count) {
  Ints ints = {buffer_make(place_of(odt.rank, which), (size_t)count * sizeof(int)),
               malloc((size_t)count * sizeof(int) + 1), count};
  return ints;
}
static void ints_put(Ints* ints) {
  buffer_put(&ints->buffer, ints->expected, (size_t)ints->count * sizeof(int));
}
static void ints_check(Ints* ints, const char* what, enum Form form) {
  int* found = malloc((size_t)ints->count * sizeof(int) + 1);
  buffer_get(&ints->buffer, found, (size_t)ints->count * sizeof(int));
  long at = 0;
  while (at < ints->count && found[at] == ints->expected[at]) at++;
  CHECK(at == ints->count, "%s %s: %s memory: element %ld of %ld is %d, not %d", kForms[form], what,
        kPlaceNames[ints->buffer.place], at, ints->count, at < ints->count ? found[at] : 0,
        at < ints->count ? ints->expected[at] : 0);
  free(found);
}
static void ints_drop(Ints* ints) {
  buffer_drop(&ints->buffer);
  free(ints->expected);
}

static void add(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; i++) ((int*)inout)[i] += ((int*)in)[i];
}

// One call in one form: the names of the three functions, the arguments before the communicator.
// `ready` fills the buffers; a persistent call is started twice.
#if MPI_VERSION >= 4
#define PERSISTENT_CALL(name, arguments, ready)                                     \
  MUST(MPI_##name##_init(LIST arguments, MPI_COMM_WORLD, MPI_INFO_NULL, &request)); \
  for (int round = 0; round < 2; round++) {                                         \
    ready;                                                                          \
    MUST(MPI_Start(&request));                                                      \
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));                                    \
  }                                                                                 \
  MUST(MPI_Request_free(&request))
#else
#define PERSISTENT_CALL(name, arguments, ready) \
  ready;                                        \
  MUST(MPI_##name(LIST arguments, MPI_COMM_WORLD))
#endif
#define LIST(...) __VA_ARGS__
#define CALL(form, name, iname, arguments, ready)                  \
  do {                                                             \
    MPI_Request request = MPI_REQUEST_NULL;                        \
    if ((form) == BLOCKING) {                                      \
      ready;                                                       \
      MUST(MPI_##name(LIST arguments, MPI_COMM_WORLD));            \
    } else if ((form) == STARTED) {                                \
      ready;                                                       \
      MUST(MPI_##iname(LIST arguments, MPI_COMM_WORLD, &request)); \
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));                 \
    } else {                                                       \
      PERSISTENT_CALL(name, arguments, ready);                     \
    }                                                              \
  } while (0)

// --- reductions: in place `in` is not used
enum Reduction {
  ALLREDUCE,
  REDUCE,
  SCAN,
  EXSCAN,
  REDUCE_SCATTER_BLOCK,
  REDUCE_SCATTER,
  REDUCTIONS
};
static const char* const kReductions[] = {
    "allreduce", "reduce", "scan", "exscan", "reduce_scatter_block", "reduce_scatter"};

static void reduction(enum Reduction kind, enum Form form, int in_place, long count, MPI_Op op) {
  const int salt = rank_salt, size = odt.size, root = rank_salt % odt.size;
  int counts[MOST_RANKS];
  long inputs = count, first = 0, outputs = count;
  if (kind >= REDUCE_SCATTER_BLOCK) {
    inputs = 0;
    for (int r = 0; r < size; r++) {
      counts[r] = (int)(kind == REDUCE_SCATTER ? count + r : count);
      if (r < odt.rank) first += counts[r];
      inputs += counts[r];
    }
    outputs = counts[odt.rank];
  }
  if (kind == REDUCE && odt.rank != root) in_place = 0;
  Ints in = ints_make(0, inputs), out = ints_make(1, in_place ? inputs : outputs);
  const void* from = in_place ? MPI_IN_PLACE : (const void*)in.buffer.data;
  void* to = out.buffer.data;
  Ints* source = in_place ? &out : &in;
#define FILL                                                                        \
  for (long i = 0; i < out.count; i++) out.expected[i] = -1;                        \
  ints_put(&out);                                                                   \
  for (long i = 0; i < inputs; i++) source->expected[i] = value(odt.rank, i, salt); \
  ints_put(source)
  const int n = (int)count;
  switch (kind) {
    case ALLREDUCE:
      CALL(form, Allreduce, Iallreduce, (from, to, n, MPI_INT, op), FILL);
      break;
    case REDUCE:
      CALL(form, Reduce, Ireduce, (from, to, n, MPI_INT, op, root), FILL);
      break;
    case SCAN:
      CALL(form, Scan, Iscan, (from, to, n, MPI_INT, op), FILL);
      break;
    case EXSCAN:
      CALL(form, Exscan, Iexscan, (from, to, n, MPI_INT, op), FILL);
      break;
    case REDUCE_SCATTER_BLOCK:
      CALL(form, Reduce_scatter_block, Ireduce_scatter_block, (from, to, n, MPI_INT, op), FILL);
      break;
    default:
      CALL(form, Reduce_scatter, Ireduce_scatter, (from, to, counts, MPI_INT, op), FILL);
      break;
  }
  int begin = 0, end = size;
  if (kind == SCAN) end = odt.rank + 1;
  if (kind == EXSCAN) end = odt.rank;
  const int written = kind == REDUCE ? odt.rank == root : kind != EXSCAN || odt.rank != 0;
  if (written) {
    for (long i = 0; i < outputs; i++) {
      out.expected[i] = 0;
      for (int r = begin; r < end; r++) out.expected[i] += value(r, first + i, salt);
    }
    // What lies behind the result of a reduce-scatter in place is not fixed.
    if (in_place) out.count = outputs;
    ints_check(&out, kReductions[kind], form);
  }
  if (!in_place) ints_check(&in, "input", form);
  ints_drop(&in);
  ints_drop(&out);
#undef FILL
}

// --- blocks: each rank's data for each rank
enum Movement {
  BCAST,
  GATHER,
  GATHERV,
  SCATTER,
  SCATTERV,
  ALLGATHER,
  ALLGATHERV,
  ALLTOALL,
  ALLTOALLV,
  ALLTOALLW,
  MOVEMENTS
};
static const char* const kMovements[] = {"bcast",     "gather",    "gatherv",    "scatter",
                                         "scatterv",  "allgather", "allgatherv", "alltoall",
                                         "alltoallv", "alltoallw"};

static void movement(enum Movement kind, enum Form form, int in_place, long count) {
  const int salt = rank_salt, size = odt.size, root = rank_salt % odt.size, me = odt.rank;
  const int at_root = me == root;
  const int vectors = kind == GATHERV || kind == SCATTERV || kind == ALLGATHERV ||
                      kind == ALLTOALLV || kind == ALLTOALLW;
  const int to_all = kind >= ALLTOALL;
  const int gathers = kind == GATHER || kind == GATHERV;
  const int scatters = kind == SCATTER || kind == SCATTERV;
  if (kind == BCAST || ((gathers || scatters) && !at_root)) in_place = 0;
  // Blocks lie apart and in reverse order where the collective knows places.
  const long apart = vectors ? count + 3 : count;
  int counts[MOST_RANKS], places[MOST_RANKS], bytes_apart[MOST_RANKS];
  MPI_Datatype types[MOST_RANKS];
  for (int r = 0; r < size; r++) {
    counts[r] = (int)count;
    places[r] = (int)(apart * (vectors ? size - 1 - r : r));
    bytes_apart[r] = places[r] * (int)sizeof(int);
    types[r] = MPI_INT;
  }
  const long many = apart * size;
  Ints in = ints_make(2, scatters || to_all ? many : count);
  Ints out =
      ints_make(3, gathers || to_all || kind == ALLGATHER || kind == ALLGATHERV ? many : count);
  void* from = in.buffer.data;
  void* to = out.buffer.data;
  void* const given_from = in_place && !scatters ? MPI_IN_PLACE : from;
  void* const given_to = in_place && scatters ? MPI_IN_PLACE : to;
  const int n = (int)count;
  // What rank r has for rank s begins at place_in; in place it lies in the output.
#define FILL                                                                      \
  for (long i = 0; i < in.count; i++) in.expected[i] = -2;                        \
  for (long i = 0; i < out.count; i++) out.expected[i] = -1;                      \
  for (int s = 0; s < size; s++) {                                                \
    if (to_all || scatters) {                                                     \
      int* block = (in_place && to_all ? out.expected : in.expected) + places[s]; \
      for (long i = 0; i < count; i++) block[i] = value(me * 10 + s, i, salt);    \
    }                                                                             \
  }                                                                               \
  if (!to_all && !scatters) {                                                     \
    int* block = kind == BCAST ? out.expected                                     \
                 : in_place    ? out.expected + places[me]                        \
                               : in.expected;                                        \
    for (long i = 0; i < count; i++) block[i] = value(me * 10, i, salt);          \
  }                                                                               \
  ints_put(&in);                                                                  \
  ints_put(&out)
  switch (kind) {
    case BCAST:
      CALL(form, Bcast, Ibcast, (to, n, MPI_INT, root), FILL);
      break;
    case GATHER:
      CALL(form, Gather, Igather, (given_from, n, MPI_INT, to, n, MPI_INT, root), FILL);
      break;
    case GATHERV:
      CALL(form, Gatherv, Igatherv, (given_from, n, MPI_INT, to, counts, places, MPI_INT, root),
           FILL);
      break;
    case SCATTER:
      CALL(form, Scatter, Iscatter, (from, n, MPI_INT, given_to, n, MPI_INT, root), FILL);
      break;
    case SCATTERV:
      CALL(form, Scatterv, Iscatterv, (from, counts, places, MPI_INT, given_to, n, MPI_INT, root),
           FILL);
      break;
    case ALLGATHER:
      CALL(form, Allgather, Iallgather, (given_from, n, MPI_INT, to, n, MPI_INT), FILL);
      break;
    case ALLGATHERV:
      CALL(form, Allgatherv, Iallgatherv, (given_from, n, MPI_INT, to, counts, places, MPI_INT),
           FILL);
      break;
    case ALLTOALL:
      CALL(form, Alltoall, Ialltoall, (given_from, n, MPI_INT, to, n, MPI_INT), FILL);
      break;
    case ALLTOALLV:
      CALL(form, Alltoallv, Ialltoallv,
           (given_from, counts, places, MPI_INT, to, counts, places, MPI_INT), FILL);
      break;
    default:
      CALL(form, Alltoallw, Ialltoallw,
           (given_from, counts, bytes_apart, types, to, counts, bytes_apart, types), FILL);
      break;
  }
#undef FILL
  for (int r = 0; r < size; r++) {
    if (scatters || kind == BCAST) {
      if (r != root) continue;
      if (in_place) break;
      for (long i = 0; i < count; i++) {
        out.expected[i] = value(r * 10 + (scatters ? me : 0), i, salt);
      }
    } else if (!gathers || at_root) {
      for (long i = 0; i < count; i++) {
        out.expected[places[r] + i] = value(r * 10 + (to_all ? me : 0), i, salt);
      }
    }
  }
  ints_check(&out, kMovements[kind], form);
  ints_check(&in, "input", form);
  ints_drop(&in);
  ints_drop(&out);
}

// Derived datatypes at some ranks, plain ones at others.
static void mixed_types(long count) {
  MPI_Datatype apart;
  MPI_Type_vector(1, 1, 2, MPI_INT, &apart);
  MPI_Datatype spread;
  MPI_Type_create_resized(apart, 0, 2 * sizeof(int), &spread);
  MPI_Type_commit(&spread);
  MPI_Type_free(&apart);
  const int strided = odt.rank % 2;
  Ints data = ints_make(4, count * (strided ? 2 : 1));
  const int step = strided ? 2 : 1;
  for (long i = 0; i < data.count; i++) data.expected[i] = -3;
  if (odt.rank == 0) {
    for (long i = 0; i < count; i++) data.expected[i * step] = value(0, i, rank_salt);
  }
  ints_put(&data);
  MUST(MPI_Bcast(data.buffer.data, (int)count, strided ? spread : MPI_INT, 0, MPI_COMM_WORLD));
  for (long i = 0; i < count; i++) data.expected[i * step] = value(0, i, rank_salt);
  ints_check(&data, "bcast of mixed types", BLOCKING);
  ints_drop(&data);
  MPI_Type_free(&spread);
}

int main(int argc, char** argv) {
  device_start("collectives", &argc, &argv, MPI_THREAD_SINGLE);
  device_buffers = (int)odt_number("device", 1);
  const int rounds = (int)odt_number("rounds", 2);
  const int forms = (int)odt_number("forms", FORMS);
  MPI_Op own, ordered;
  MPI_Op_create(add, 1, &own);
  MPI_Op_create(add, 0, &ordered);
  static const long kCounts[] = {1, 0, 11, 700, 5000, 60000};
  for (int round = 0; round < rounds; round++) {
    for (int c = 0; c < 6; c++) {
      for (int form = 0; form < forms; form++) {
        for (int in_place = 0; in_place < 2; in_place++) {
          for (int kind = 0; kind < REDUCTIONS; kind++) {
            rank_salt++;
            // Where the host has to compute, what does not block is the host's from the start.
            MPI_Op op = MPI_SUM;
            if (form == BLOCKING && rank_salt % 5 == 3) op = own;
            if (form == BLOCKING && rank_salt % 5 == 4) op = ordered;
            reduction(kind, form, in_place, kCounts[c], op);
          }
          for (int kind = 0; kind < MOVEMENTS; kind++) {
            rank_salt++;
            movement(kind, form, in_place, kCounts[c]);
          }
        }
      }
      mixed_types(kCounts[c]);
    }
  }
  MPI_Op_free(&own);
  MPI_Op_free(&ordered);
  return device_finish();
}
