/* What programs of collectives to which ranks come at different times share: calls by chance. */
#ifndef OVERDRIVE_TESTS_COLLECTIVES_BY_CHANCE_H_
#define OVERDRIVE_TESTS_COLLECTIVES_BY_CHANCE_H_

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { kComms = 4 };

static int rank, ranks;
static const char* nodes = "";
static uint64_t seed = 1;
static long delayed;

static void Fail(const char* what, int64_t number) {
  fprintf(stderr, "rank %d: %s (%lld)\n", rank, what, (long long)number);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t Draw(uint64_t* state) {
  *state += 0x9e3779b97f4a7c15u;
  uint64_t value = *state;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

/* How many calls of all ranks had the right result, and before how many a rank waited. */
static void Report(int calls) {
  long mine[2] = {calls, delayed}, all[2];
  MPI_Reduce(mine, all, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("CALLS %d RESULTS %ld DELAYED %ld\n", calls, all[0], all[1]);
}

/* Comes late by chance. */
static void Dawdle(uint64_t* own) {
  if (Draw(own) % 2 != 0) return;
  ++delayed;
  usleep((useconds_t)(Draw(own) % 1500));
}

/* The world, a copy of it, one in reverse order, and one without a rank. */
static void MakeComms(MPI_Comm* comms) {
  comms[0] = MPI_COMM_WORLD;
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
  MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &comms[2]);
  MPI_Comm_split(MPI_COMM_WORLD, rank == ranks - 2, rank, &comms[3]);
}

static void FreeComms(MPI_Comm* comms) {
  for (int i = 1; i < kComms; ++i) MPI_Comm_free(&comms[i]);
}

#endif /* OVERDRIVE_TESTS_COLLECTIVES_BY_CHANCE_H_ */
