// How much of a collective is hidden behind the computation that follows it.
//
//   --what=LIST     of bcast, allgather, alltoall, alltoallv (all)
//   --bytes=LIST    of sub-messages (1 MiB)
//   --comm-ms=LIST  how long each blocking call takes, by call and then by size, for the amounts of
//                   computation; without it they follow from what is measured here
//
// One line per point: what,bytes,kind,part,ms of computation,ms of the call,ms of the whole
//   kind `none`: no computation, the received data is read at once; `unrelated`: computation of
//   `part` times the blocking call, then the received data is read; `related`: every page of the
//   received data is read, with so much computation spread over them. A rank's own block, which has
//   not travelled, is left out: half of what two ranks get. `computation`: nothing else; where
//   there are more ranks than cores it takes longer.
// Computation is counted in processor time of the thread, so that other processes do not shorten
// it. Medians over repetitions of the slowest rank.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kMostRepetitions = 11, kPage = 4096, kMostParts = 128, kMostPoints = 64 };
static const double kPointMs = 200;  // repetitions of a point take about that long
static const double kParts[] = {0.5, 1.0, 2.0};

static int g_rank, g_size;
static long g_bytes;
static const char* g_what;
static char *g_send, *g_recv;
static int *g_counts, *g_places;
static volatile unsigned long g_sum;
static int g_repetitions = 5;

static double thread_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

// What one computation takes too long the next one takes less.
static double g_ahead_ms;
static void compute(double ms) {
  const double begin = thread_ms();
  const double end = begin + ms - g_ahead_ms;
  unsigned long sum = g_sum;
  double now = begin;
  while (now < end) {
    for (int i = 0; i < 500; i++) sum = sum * 3 + 1;
    now = thread_ms();
  }
  g_sum = sum;
  g_ahead_ms = now - end;
}

static void call(void) {
  const int n = (int)g_bytes;
  if (strcmp(g_what, "bcast") == 0) {
    MPI_Bcast(g_recv, n, MPI_BYTE, 0, MPI_COMM_WORLD);
  } else if (strcmp(g_what, "allgather") == 0) {
    MPI_Allgather(g_send, n, MPI_BYTE, g_recv, n, MPI_BYTE, MPI_COMM_WORLD);
  } else if (strcmp(g_what, "alltoall") == 0) {
    MPI_Alltoall(g_send, n, MPI_BYTE, g_recv, n, MPI_BYTE, MPI_COMM_WORLD);
  } else {
    MPI_Alltoallv(g_send, g_counts, g_places, MPI_BYTE, g_recv, g_counts, g_places, MPI_BYTE,
                  MPI_COMM_WORLD);
  }
}

// Blocks of other ranks in their order; of a broadcast there is one.
static void read_all(double ms) {
  const int alone = strcmp(g_what, "bcast") == 0;
  const int blocks = alone ? 1 : g_size;
  const long pages = g_bytes / kPage;
  const long parts = pages < kMostParts ? pages : kMostParts;
  const double part_ms = ms / (double)parts / (alone ? 1 : g_size - 1);
  for (int block = 0; block < blocks; block++) {
    const char* at = g_recv + (long)block * g_bytes;
    if (!alone && block == g_rank) continue;
    for (long part = 0; part < parts; part++) {
      for (long page = pages * part / parts; page < pages * (part + 1) / parts; page++) {
        g_sum += (unsigned char)at[page * kPage];
      }
      if (ms > 0) compute(part_ms);
    }
  }
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// Returns the median whole.
static double measure(const char* kind, double part, double ms) {
  double calls[kMostRepetitions], wholes[kMostRepetitions];
  for (int i = -1; i < g_repetitions; i++) {
    memset(g_send, i + 2, (size_t)(g_bytes * g_size));
    g_ahead_ms = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    if (strcmp(kind, "computation") != 0) call();
    const double returned = MPI_Wtime();
    if (strcmp(kind, "unrelated") == 0 || strcmp(kind, "computation") == 0) compute(ms);
    if (strcmp(kind, "computation") != 0) read_all(strcmp(kind, "related") == 0 ? ms : 0);
    double mine[2] = {returned - begin, MPI_Wtime() - begin};
    double all[2];
    MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i < 0) continue;
    calls[i] = all[0] * 1e3;
    wholes[i] = all[1] * 1e3;
  }
  qsort(calls, (size_t)g_repetitions, sizeof(double), ascending);
  qsort(wholes, (size_t)g_repetitions, sizeof(double), ascending);
  const double whole_ms = wholes[g_repetitions / 2];
  if (g_rank == 0) {
    printf("%s,%ld,%s,%.2f,%.3f,%.3f,%.3f\n", g_what, g_bytes, kind, part, ms,
           calls[g_repetitions / 2], whole_ms);
    fflush(stdout);
  }
  return whole_ms;
}

static void measure_call(const char* what, long bytes, double comm_ms) {
  g_what = what;
  g_bytes = bytes;
  for (int i = 0; i < g_size; i++) {
    g_counts[i] = (int)bytes;
    g_places[i] = (int)bytes * i;
  }
  g_repetitions = 3;
  double whole_ms = measure("warm", 0, 0);
  if (comm_ms > 0) whole_ms = comm_ms;
  MPI_Bcast(&whole_ms, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  // Odd, so that there is a median.
  g_repetitions = (int)(kPointMs / whole_ms / 2) * 2 + 1;
  if (g_repetitions < 3) g_repetitions = 3;
  if (g_repetitions > kMostRepetitions) g_repetitions = kMostRepetitions;
  const double own_ms = measure("none", 0, 0);
  if (comm_ms == 0) comm_ms = own_ms;
  MPI_Bcast(&comm_ms, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  for (unsigned i = 0; i < sizeof kParts / sizeof kParts[0]; i++) {
    measure("computation", kParts[i], kParts[i] * comm_ms);
    measure("unrelated", kParts[i], kParts[i] * comm_ms);
    measure("related", kParts[i], kParts[i] * comm_ms);
  }
}

// The words of a list; it is changed.
static int split(char* list, char** words) {
  int count = 0;
  for (char* word = strtok(list, ","); word != NULL && count < kMostPoints;
       word = strtok(NULL, ",")) {
    words[count++] = word;
  }
  return count;
}

int main(int argc, char** argv) {
  static char whats[] = "bcast,allgather,alltoall,alltoallv", sizes[] = "1048576", times[] = "";
  char *what_list = whats, *size_list = sizes, *time_list = times;
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--bytes=", 8) == 0) size_list = argv[i] + 8;
    if (strncmp(argv[i], "--what=", 7) == 0) what_list = argv[i] + 7;
    if (strncmp(argv[i], "--comm-ms=", 10) == 0) time_list = argv[i] + 10;
  }
  char *what[kMostPoints], *size[kMostPoints], *comm[kMostPoints];
  const int what_count = split(what_list, what);
  const int size_count = split(size_list, size);
  const int comm_count = split(time_list, comm);
  long longest = 0;
  for (int i = 0; i < size_count; i++) {
    if (atol(size[i]) > longest) longest = atol(size[i]);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  g_send = malloc((size_t)(longest * g_size));
  g_recv = malloc((size_t)(longest * g_size));
  memset(g_recv, 0, (size_t)(longest * g_size));
  g_counts = malloc(sizeof(int) * (size_t)g_size);
  g_places = malloc(sizeof(int) * (size_t)g_size);
  for (int i = 0; i < what_count; i++) {
    for (int k = 0; k < size_count; k++) {
      const int point = i * size_count + k;
      measure_call(what[i], atol(size[k]), point < comm_count ? atof(comm[point]) : 0);
    }
  }
  MPI_Finalize();
  return 0;
}
