/* Broadcasts, allreduces, reductions, allgathers and barriers of many lengths on communicators of
 * all ranks and of every other one, in two orders; every word of every result is compared with what
 * it must be. Ends with 1 if any is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRounds = 40, kMostWords = 20000 };

static long wrong;

static void check(long got, long wanted) { wrong += got != wanted; }

/* A sum of the program's own: inside a node it goes another way than MPI_SUM. */
static MPI_Op own_sum;

static void add(void* in, void* inout, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; ++i) ((long*)inout)[i] += ((long*)in)[i];
}

/* Both kinds of sums follow each other, also at roots that have had another form than the rest. */
static void reduce(MPI_Comm comm, MPI_Op op, int root, int in_place, int words, long* in,
                   long* out) {
  int rank, ranks;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  for (int i = 0; i < words; ++i) out[i] = in[i] = rank * 10L + i;
  if (in_place && rank == root) {
    MPI_Reduce(MPI_IN_PLACE, out, words, MPI_LONG, op, root, comm);
  } else {
    MPI_Reduce(in, out, words, MPI_LONG, op, root, comm);
  }
  for (int i = 0; i < words && rank == root; ++i) {
    check(out[i], 5L * ranks * (ranks - 1) + (long)ranks * i);
  }
}

static void use(MPI_Comm comm, int round, int words) {
  int rank, ranks;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  long* in = malloc((size_t)(words + 1) * sizeof(long));
  long* out = malloc((size_t)(words + 1) * (size_t)ranks * sizeof(long));
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < words; ++i) in[i] = rank * 1000 + i + turn;
    for (int own = 0; own < 2; ++own) {
      MPI_Allreduce(in, out, words, MPI_LONG, own ? own_sum : MPI_SUM, comm);
      for (int i = 0; i < words; ++i) {
        check(out[i], 500L * ranks * (ranks - 1) + (long)ranks * (i + turn));
      }
    }
    reduce(comm, turn == 1 ? own_sum : MPI_SUM, 0, turn == 1, words, in, out);
    const int root = (round + turn) % ranks;
    if (rank == root) {
      for (int i = 0; i < words; ++i) in[i] = i * 7L + round;
    } else {
      memset(in, 0, (size_t)words * sizeof(long));
    }
    MPI_Bcast(in, words, MPI_LONG, root, comm);
    for (int i = 0; i < words; ++i) check(in[i], i * 7L + round);
    for (int i = 0; i < words; ++i) in[i] = rank * 31L + i;
    MPI_Allgather(in, words, MPI_LONG, out, words, MPI_LONG, comm);
    for (int from = 0; from < ranks; ++from) {
      for (int i = 0; i < words; ++i) check(out[from * (long)words + i], from * 31L + i);
    }
    MPI_Barrier(comm);
  }
  free(in);
  free(out);
}

int main(int argc, char** argv) {
  int rank;
  long all = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Op_create(add, 1, &own_sum);
  for (int round = 0; round < kRounds; ++round) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, round % 3 == 0 ? 0 : rank % 2, round % 2 ? rank : -rank, &comm);
    use(comm, round, round * round * 37 % kMostWords);
    MPI_Comm_free(&comm);
  }
  MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  MPI_Op_free(&own_sum);
  if (rank == 0) printf(all == 0 ? "PASS %ld words wrong\n" : "FAIL %ld words wrong\n", all);
  MPI_Finalize();
  return all != 0;
}
