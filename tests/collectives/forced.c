// Every collective in its blocking form, also in place and with an operation that does not commute,
// on all ranks and on all but the last; every word of every result is compared with what it must
// be. For tests that force an algorithm and look which one served: rank 0 prints how often each
// kind of call was made, as
//   CALLS collective ranks plain|commutes|ordered number
// With --first-root=1 the root of reductions in place is rank 0.
// Block sizes are odd where the collective permits it, and the longest vector makes two segments.
#include "names.h"
#include "odtest.h"

typedef enum { kPlain, kCommutes, kOrdered, kKinds } Kind;
static const char* const kKindNames[kKinds] = {"plain", "commutes", "ordered"};

enum { kMostRanks = 8, kPrime = 10007, kFew = 7, kMany = 40000 };

static int calls[2][kCollectives][kKinds];  // [1]: on all ranks
static MPI_Comm comm;
static int rank, size, whole;
static long *in, *out;

static void count(Collective collective, Kind kind) { ++calls[whole][collective][kind]; }

// --- data that only move: the word number i that `from` has for `to` ----------------------------

static long word(int from, int to, long i) { return (from * 100L + to) * 1000000 + i; }

static void fill(long* at, int from, int to, long words) {
  for (long i = 0; i < words; ++i) at[i] = word(from, to, i);
}

static void expect(const char* what, const long* at, int from, int to, long words) {
  for (long i = 0; i < words; ++i) {
    if (at[i] == word(from, to, i)) continue;
    CHECK(0, "%s of %ld words on %d ranks: word %ld from %d is %ld", what, words, size, i, from,
          at[i]);
    return;
  }
  CHECK(1, "%s", what);
}

// Words that the blocks of the forms with counts have: they differ, and one is empty.
static int uneven(int block, int words) { return block == 1 ? 0 : words + block; }

// Blocks with a word between them.
static void place_blocks(int* counts, int* places, int words) {
  for (int i = 0, next = 0; i < size; ++i) {
    counts[i] = uneven(i, words);
    places[i] = next;
    next += counts[i] + 1;
  }
}

static void move_to_all(int words, int in_place) {
  int counts[kMostRanks], places[kMostRanks];
  place_blocks(counts, places, words);
  memset(out, 0, (size_t)(words + size + 1) * (size_t)size * sizeof *out);
  fill(in_place ? out + (long)rank * words : in, rank, 0, words);
  MUST(MPI_Allgather(in_place ? MPI_IN_PLACE : in, words, MPI_LONG, out, words, MPI_LONG, comm));
  count(k_allgather, kPlain);
  for (int i = 0; i < size; ++i) expect("allgather", out + (long)i * words, i, 0, words);
  memset(out, 0, (size_t)(words + size + 1) * (size_t)size * sizeof *out);
  fill(in_place ? out + places[rank] : in, rank, 0, counts[rank]);
  MUST(MPI_Allgatherv(in_place ? MPI_IN_PLACE : in, counts[rank], MPI_LONG, out, counts, places,
                      MPI_LONG, comm));
  count(k_allgatherv, kPlain);
  for (int i = 0; i < size; ++i) expect("allgatherv", out + places[i], i, 0, counts[i]);
}

static void move_from_and_to_root(int words, int root) {
  int counts[kMostRanks], places[kMostRanks];
  place_blocks(counts, places, words);
  fill(out, rank, 0, words);
  MUST(MPI_Bcast(out, words, MPI_LONG, root, comm));
  count(k_bcast, kPlain);
  expect("bcast", out, root, 0, words);

  fill(in, rank, root, words + size);
  MUST(MPI_Gather(in, words, MPI_LONG, out, words, MPI_LONG, root, comm));
  count(k_gather, kPlain);
  for (int i = 0; i < size && rank == root; ++i) {
    expect("gather", out + (long)i * words, i, root, words);
  }
  MUST(MPI_Gatherv(in, counts[rank], MPI_LONG, out, counts, places, MPI_LONG, root, comm));
  count(k_gatherv, kPlain);
  for (int i = 0; i < size && rank == root; ++i) {
    expect("gatherv", out + places[i], i, root, counts[i]);
  }

  for (int i = 0; i < size; ++i) fill(in + (long)i * words, rank, i, words);
  MUST(MPI_Scatter(in, words, MPI_LONG, out, words, MPI_LONG, root, comm));
  count(k_scatter, kPlain);
  expect("scatter", out, root, rank, words);
  for (int i = 0; i < size; ++i) fill(in + places[i], rank, i, counts[i]);
  MUST(MPI_Scatterv(in, counts, places, MPI_LONG, out, counts[rank], MPI_LONG, root, comm));
  count(k_scatterv, kPlain);
  expect("scatterv", out, root, rank, counts[rank]);
}

static void exchange(int words) {
  int sent[kMostRanks], from[kMostRanks], got[kMostRanks], to[kMostRanks];
  int sent_bytes[kMostRanks], got_bytes[kMostRanks];
  MPI_Datatype types[kMostRanks];
  int next_from = 0, next_to = 0;
  for (int i = 0; i < size; ++i) {
    sent[i] = uneven((rank + i) % size, words);  // the same in both directions
    got[i] = sent[i];
    from[i] = next_from;
    to[i] = next_to;
    next_from += sent[i] + 1;
    next_to += got[i] + 1;
    sent_bytes[i] = from[i] * (int)sizeof(long);
    got_bytes[i] = to[i] * (int)sizeof(long);
    types[i] = MPI_LONG;
  }
  for (int i = 0; i < size; ++i) fill(in + (long)i * words, rank, i, words);
  MUST(MPI_Alltoall(in, words, MPI_LONG, out, words, MPI_LONG, comm));
  count(k_alltoall, kPlain);
  for (int i = 0; i < size; ++i) expect("alltoall", out + (long)i * words, i, rank, words);
  for (int i = 0; i < size; ++i) fill(in + from[i], rank, i, sent[i]);
  memset(out, 0, (size_t)next_to * sizeof *out);
  MUST(MPI_Alltoallv(in, sent, from, MPI_LONG, out, got, to, MPI_LONG, comm));
  count(k_alltoallv, kPlain);
  for (int i = 0; i < size; ++i) expect("alltoallv", out + to[i], i, rank, got[i]);
  memset(out, 0, (size_t)next_to * sizeof *out);
  MUST(MPI_Alltoallw(in, sent, sent_bytes, types, out, got, got_bytes, types, comm));
  count(k_alltoallw, kPlain);
  for (int i = 0; i < size; ++i) expect("alltoallw", out + to[i], i, rank, got[i]);
}

// --- reductions of pairs: sums, or x -> a x + b applied one after the other ---------------------

typedef struct {
  long a, b;
} Pair;

static MPI_Datatype pair_type;
static MPI_Op add_op, chain_op;  // the former commutes

static Pair joined(Kind kind, Pair left, Pair right) {
  if (kind == kCommutes) return (Pair){left.a + right.a, left.b + right.b};
  return (Pair){left.a * right.a % kPrime, (left.b * right.a + right.b) % kPrime};
}

static void add(void* left, void* right, int* length, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *length; ++i) {
    ((Pair*)right)[i] = joined(kCommutes, ((Pair*)left)[i], ((Pair*)right)[i]);
  }
}

static void chain(void* left, void* right, int* length, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *length; ++i) {
    ((Pair*)right)[i] = joined(kOrdered, ((Pair*)left)[i], ((Pair*)right)[i]);
  }
}

static Pair own(int from, long i) { return (Pair){2 + (from * 7 + i) % 11, from + i % 101}; }

static void fill_pairs(long* at, long units) {
  for (long i = 0; i < units; ++i) ((Pair*)at)[i] = own(rank, i);
}

// `units` of the result from unit `first` on must be the pairs of the ranks before `end`, joined.
static void expect_pairs(const char* what, Kind kind, const long* at, long first, long units,
                         int end) {
  for (long i = 0; i < units; ++i) {
    const Pair is = ((const Pair*)at)[i];
    Pair should = own(0, first + i);
    for (int from = 1; from < end; ++from) should = joined(kind, should, own(from, first + i));
    if (is.a == should.a && is.b == should.b) continue;
    CHECK(0, "%s (%s) on %d ranks: unit %ld of %ld from %ld is %ld, %ld instead of %ld, %ld", what,
          kKindNames[kind], size, i, units, first, is.a, is.b, should.a, should.b);
    return;
  }
  CHECK(1, "%s", what);
}

// Sums of numbers, the library's own kernels, instead of the program's operation on pairs.
typedef struct {
  Kind kind;
  MPI_Op op;
  MPI_Datatype type;
  int per_unit;
} Sum;

static void reduce(const Sum* sum, int units, int root, int in_place) {
  if (in_place && odt_number("first-root", 0) != 0) root = 0;
  const int n = units * sum->per_unit, at_root = rank == root;
  long* const vector = in_place ? out : in;
  fill_pairs(in_place && !at_root ? in : vector, units);
  MUST(MPI_Reduce(in_place && at_root ? MPI_IN_PLACE : in, out, n, sum->type, sum->op, root, comm));
  count(k_reduce, sum->kind);
  if (at_root) expect_pairs("reduce", sum->kind, out, 0, units, size);
  fill_pairs(vector, units);
  MUST(MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, n, sum->type, sum->op, comm));
  count(k_allreduce, sum->kind);
  expect_pairs("allreduce", sum->kind, out, 0, units, size);
  fill_pairs(vector, units);
  MUST(MPI_Scan(in_place ? MPI_IN_PLACE : in, out, n, sum->type, sum->op, comm));
  count(k_scan, sum->kind);
  expect_pairs("scan", sum->kind, out, 0, units, rank + 1);
  fill_pairs(vector, units);
  MUST(MPI_Exscan(in_place ? MPI_IN_PLACE : in, out, n, sum->type, sum->op, comm));
  count(k_exscan, sum->kind);
  if (rank > 0) expect_pairs("exscan", sum->kind, out, 0, units, rank);
}

static void reduce_and_scatter(const Sum* sum, int units) {
  int counts[kMostRanks], first = 0, all = 0;
  for (int i = 0; i < size; ++i) {
    const int mine = uneven(i, units / size);
    counts[i] = mine * sum->per_unit;
    if (i < rank) first += mine;
    all += mine;
  }
  fill_pairs(in, all);
  MUST(MPI_Reduce_scatter(in, out, counts, sum->type, sum->op, comm));
  count(k_reduce_scatter, sum->kind);
  expect_pairs("reduce_scatter", sum->kind, out, first, counts[rank] / sum->per_unit, size);
  const int block = units / size + 1;
  fill_pairs(in, (long)block * size);
  MUST(MPI_Reduce_scatter_block(in, out, block * sum->per_unit, sum->type, sum->op, comm));
  count(k_reduce_scatter_block, sum->kind);
  expect_pairs("reduce_scatter_block", sum->kind, out, (long)block * rank, block, size);
}

static void all_of_them(int words, int in_place) {
  const int root = in_place ? size - 1 : 1 % size;
  const Sum sums[] = {{kCommutes, MPI_SUM, MPI_LONG, 2},
                      {kCommutes, add_op, pair_type, 1},
                      {kOrdered, chain_op, pair_type, 1}};
  MUST(MPI_Barrier(comm));
  count(k_barrier, kPlain);
  move_from_and_to_root(words, root);
  move_to_all(words / size + 1, in_place);
  exchange(words / size + 1);
  for (size_t i = 0; i < sizeof sums / sizeof sums[0]; ++i) {
    reduce(&sums[i], words, root, in_place);
    reduce_and_scatter(&sums[i], words);
  }
}

int main(int argc, char** argv) {
  odt_start("forced", &argc, &argv);
  if (odt.size > kMostRanks) MPI_Abort(MPI_COMM_WORLD, 2);
  MUST(MPI_Type_contiguous(2, MPI_LONG, &pair_type));
  MUST(MPI_Type_commit(&pair_type));
  MUST(MPI_Op_create(add, 1, &add_op));
  MUST(MPI_Op_create(chain, 0, &chain_op));
  const size_t most = (size_t)(kMany + 2 * kMostRanks) * kMostRanks * sizeof(Pair);
  in = odt_memory(most);
  out = odt_memory(most);
  MPI_Comm fewer;
  MUST(MPI_Comm_split(MPI_COMM_WORLD, odt.rank < odt.size - 1 ? 0 : MPI_UNDEFINED, 0, &fewer));
  for (whole = 0; whole < 2; ++whole) {
    comm = whole ? MPI_COMM_WORLD : fewer;
    if (comm == MPI_COMM_NULL) continue;
    MUST(MPI_Comm_rank(comm, &rank));
    MUST(MPI_Comm_size(comm, &size));
    all_of_them(kFew, 0);
    all_of_them(kMany, 1);
  }
  if (fewer != MPI_COMM_NULL) MUST(MPI_Comm_free(&fewer));
  MUST(MPI_Op_free(&add_op));
  MUST(MPI_Op_free(&chain_op));
  MUST(MPI_Type_free(&pair_type));
  free(in);
  free(out);
  ++calls[1][k_allreduce][kCommutes];  // in odt_finish
  for (int all = 0; odt.rank == 0 && all < 2; ++all) {
    for (int c = 0; c < kCollectives; ++c) {
      for (int k = 0; k < kKinds; ++k) {
        if (calls[all][c][k] == 0) continue;
        printf("CALLS %s %d %s %d\n", kNames[c], odt.size - 1 + all, kKindNames[k],
               calls[all][c][k]);
      }
    }
  }
  return odt_finish();
}
