// How much of a collective is hidden behind the computation that follows it.
//
//   --bytes=N  sub-message (1 MiB)      --what=bcast|allgather|alltoall|alltoallv
//   --comm-ms=T  how long the blocking call takes, for the amounts of computation (0: measured
//   here)
//
// One line per point: what,bytes,kind,part,ms of computation,ms of the call,ms of the whole
//   kind `none`: no computation; `unrelated`: so much computation, then the received data is read;
//   `related`: every page of the received data is read, with so much computation spread over them.
// Computation is counted in processor time of the thread, so that other processes do not shorten
// it. Medians over repetitions of the slowest rank.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kRepetitions = 7, kPage = 4096 };

static int g_rank, g_size;
static long g_bytes = 1 << 20;
static const char* g_what = "alltoall";
static char *g_send, *g_recv;
static long g_recv_bytes;
static int *g_counts, *g_places;
static volatile unsigned long g_sum;

static double thread_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void compute(double ms) {
  const double end = thread_ms() + ms;
  unsigned long sum = g_sum;
  while (thread_ms() < end) {
    for (int i = 0; i < 2000; i++) sum = sum * 3 + 1;
  }
  g_sum = sum;
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

static void read_all(double ms) {
  const long pages = g_recv_bytes / kPage;
  // In sixteen parts: the clock costs more than a page.
  for (int part = 0; part < 16; part++) {
    for (long page = pages * part / 16; page < pages * (part + 1) / 16; page++) {
      g_sum += (unsigned char)g_recv[page * kPage];
    }
    if (ms > 0) compute(ms / 16);
  }
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// The median call and the median whole.
static void measure(const char* kind, double part, double ms, double* whole_ms) {
  double calls[kRepetitions], wholes[kRepetitions];
  for (int i = -1; i < kRepetitions; i++) {
    memset(g_send, i + 2, (size_t)(g_bytes * g_size));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    call();
    const double returned = MPI_Wtime();
    if (strcmp(kind, "related") != 0) compute(ms);
    read_all(strcmp(kind, "related") == 0 ? ms : 0);
    double mine[2] = {returned - begin, MPI_Wtime() - begin};
    double all[2];
    MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i < 0) continue;
    calls[i] = all[0] * 1e3;
    wholes[i] = all[1] * 1e3;
  }
  qsort(calls, kRepetitions, sizeof(double), ascending);
  qsort(wholes, kRepetitions, sizeof(double), ascending);
  *whole_ms = wholes[kRepetitions / 2];
  if (g_rank == 0) {
    printf("%s,%ld,%s,%.2f,%.3f,%.3f,%.3f\n", g_what, g_bytes, kind, part, ms,
           calls[kRepetitions / 2], *whole_ms);
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  double comm_ms = 0;
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--bytes=", 8) == 0) g_bytes = atol(argv[i] + 8);
    if (strncmp(argv[i], "--what=", 7) == 0) g_what = argv[i] + 7;
    if (strncmp(argv[i], "--comm-ms=", 10) == 0) comm_ms = atof(argv[i] + 10);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  g_recv_bytes = strcmp(g_what, "bcast") == 0 ? g_bytes : g_bytes * g_size;
  g_send = malloc((size_t)(g_bytes * g_size));
  g_recv = malloc((size_t)(g_bytes * g_size));
  memset(g_recv, 0, (size_t)(g_bytes * g_size));
  g_counts = malloc(sizeof(int) * (size_t)g_size);
  g_places = malloc(sizeof(int) * (size_t)g_size);
  for (int i = 0; i < g_size; i++) {
    g_counts[i] = (int)g_bytes;
    g_places[i] = (int)g_bytes * i;
  }
  double whole;
  measure("none", 0, 0, &whole);
  if (comm_ms == 0) comm_ms = whole;
  MPI_Bcast(&comm_ms, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  static const double kParts[] = {0.25, 0.5, 0.75, 1.0, 1.5, 2.0};
  for (unsigned i = 0; i < sizeof kParts / sizeof kParts[0]; i++) {
    measure("unrelated", kParts[i], kParts[i] * comm_ms, &whole);
    measure("related", kParts[i], kParts[i] * comm_ms, &whole);
  }
  MPI_Finalize();
  return 0;
}
