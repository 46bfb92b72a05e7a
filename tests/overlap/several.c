// Collectives that follow each other at once, on several communicators, into buffers that nobody
// looks at before all of them have been called; with --level=multiple the program asks for
// MPI_THREAD_MULTIPLE and calls them from two threads as well.
//
//   --rounds=N  (6)
#include <pthread.h>

#include "odtest.h"

enum { kBlock = 96 << 10, kComms = 3, kKinds = 3 };

typedef struct {
  MPI_Comm comm;
  int rank, size;
  char* send;
  char* receive[kKinds];
} Place;

static unsigned char value(int from, long round, long i) {
  return (unsigned char)(i * 5 + (i >> 8) + from * 31 + round * 13 + 1);
}

static void fill(char* at, int from, long round) {
  for (long i = 0; i < kBlock; i++) at[i] = (char)value(from, round, i);
}

static void check(const char* at, int from, long round, const char* what) {
  long wrong = 0;
  while (wrong < kBlock && (unsigned char)at[wrong] == value(from, round, wrong)) wrong++;
  CHECK(wrong == kBlock, "%s of round %ld, block from %d differs at %ld", what, round, from, wrong);
}

static void make_place(Place* place, MPI_Comm comm) {
  place->comm = comm;
  MUST(MPI_Comm_rank(comm, &place->rank));
  MUST(MPI_Comm_size(comm, &place->size));
  const size_t bytes = (size_t)place->size * kBlock;
  place->send = malloc(bytes);
  for (int k = 0; k < kKinds; k++) place->receive[k] = malloc(bytes);
}

static void start(Place* place, long round) {
  const int root = (int)(round % place->size);
  for (int to = 0; to < place->size; to++) fill(place->send + to * kBlock, place->rank, round);
  MUST(MPI_Alltoall(place->send, kBlock, MPI_BYTE, place->receive[0], kBlock, MPI_BYTE,
                    place->comm));
  memset(place->send, 0, (size_t)place->size * kBlock);  // the program may do so
  fill(place->send, place->rank, round);
  MUST(MPI_Allgather(place->send, kBlock, MPI_BYTE, place->receive[1], kBlock, MPI_BYTE,
                     place->comm));
  if (place->rank == root) fill(place->receive[2], root, round);
  MUST(MPI_Bcast(place->receive[2], kBlock, MPI_BYTE, root, place->comm));
}

static void look(const Place* place, long round) {
  for (int from = place->size - 1; from >= 0; from--) {
    check(place->receive[0] + from * kBlock, from, round, "all-to-all");
    check(place->receive[1] + from * kBlock, from, round, "allgather");
  }
  check(place->receive[2], (int)(round % place->size), round, "broadcast");
}

typedef struct {
  Place* place;
  long rounds;
} Work;

static void* in_thread(void* argument) {
  const Work* work = argument;
  for (long round = 0; round < work->rounds; round++) {
    start(work->place, round);
    look(work->place, round);
  }
  return NULL;
}

int main(int argc, char** argv) {
  const int multiple = argc > 1 && strcmp(argv[1], "--level=multiple") == 0;
  odt_start_as("several", &argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  const long rounds = odt_number("rounds", 6);
  Place places[kComms];
  MPI_Comm dup, backwards;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
  MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, -odt.rank, &backwards));
  make_place(&places[0], MPI_COMM_WORLD);
  make_place(&places[1], dup);
  make_place(&places[2], backwards);
  for (long round = 0; round < rounds; round++) {
    for (int k = 0; k < kComms; k++) start(&places[k], round);
    for (int k = kComms - 1; k >= 0; k--) look(&places[k], round);
  }
  if (multiple && odt.provided == MPI_THREAD_MULTIPLE) {
    pthread_t threads[2];
    Work works[2] = {{&places[1], rounds}, {&places[2], rounds}};
    for (int k = 0; k < 2; k++) pthread_create(&threads[k], NULL, in_thread, &works[k]);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
  }
  MUST(MPI_Comm_free(&dup));
  MUST(MPI_Comm_free(&backwards));
  return odt_finish();
}
