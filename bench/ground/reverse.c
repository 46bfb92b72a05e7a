// A sender polls over many pending sends which their receiver takes in the reverse order.
//
//   reverse [some|any|all|wait] [messages] [bytes] [rounds] [in order: 0 or 1]
//
// One line: milliseconds for a round, and how often the sender asked in one.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char* how;
  int messages;
  int bytes;
  int in_order;
  char* data;
  MPI_Request* requests;
  int* indices;
} Series;

static char* place(const Series* s, int i) { return s->data + (size_t)i * (size_t)s->bytes; }

static long complete(const Series* s) {
  long polls = 0;
  for (int left = s->messages; left > 0;) {
    int done = 0, index = 0;
    polls++;
    if (strcmp(s->how, "some") == 0) {
      MPI_Testsome(s->messages, s->requests, &done, s->indices, MPI_STATUSES_IGNORE);
    } else if (strcmp(s->how, "any") == 0) {
      MPI_Testany(s->messages, s->requests, &index, &done, MPI_STATUS_IGNORE);
    } else {
      done = strcmp(s->how, "all") != 0;
      if (done) MPI_Waitall(s->messages, s->requests, MPI_STATUSES_IGNORE);
      if (!done) MPI_Testall(s->messages, s->requests, &done, MPI_STATUSES_IGNORE);
      done *= left;
    }
    left -= done;
  }
  return polls;
}

static long exchange(const Series* s, int rank) {
  for (int i = 0; i < s->messages; i++) {
    const int tag = rank == 0 || s->in_order ? i : s->messages - 1 - i;
    if (rank == 0) {
      MPI_Isend(place(s, i), s->bytes, MPI_BYTE, 1, tag, MPI_COMM_WORLD, &s->requests[i]);
    } else if (rank == 1) {
      MPI_Recv(place(s, tag), s->bytes, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
  return rank == 0 ? complete(s) : 0;
}

static int number(int argc, char** argv, int at, int otherwise) {
  return argc > at ? atoi(argv[at]) : otherwise;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Series s = {.how = argc > 1 ? argv[1] : "some",
              .messages = number(argc, argv, 2, 500),
              .bytes = number(argc, argv, 3, 20000),
              .in_order = number(argc, argv, 5, 0)};
  const int rounds = number(argc, argv, 4, 10);
  const size_t total = (size_t)s.messages * (size_t)s.bytes;
  s.data = malloc(total);
  s.requests = malloc((size_t)s.messages * sizeof *s.requests);
  s.indices = malloc((size_t)s.messages * sizeof *s.indices);
  memset(s.data, 1, total);
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  long polls = 0;
  for (int round = 0; round < rounds; round++) {
    polls += exchange(&s, rank);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0) {
    printf("%s %d %d: %.2f ms a round, %.0f polls\n", s.how, s.messages, s.bytes,
           (MPI_Wtime() - began) / rounds * 1e3, (double)polls / rounds);
  }
  MPI_Finalize();
  return 0;
}
