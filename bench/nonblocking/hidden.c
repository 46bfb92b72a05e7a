// How much of a non-blocking collective is hidden behind computation, by the definition of the OSU
// benchmarks: 1 - (time of the start + time of the wait) / time of start and wait back to back,
// with computation in between that takes a rank as long as these, and no call of MPI in it.
//
//   --what=LIST    of ibcast, iallgather, ialltoall, iallreduce (all)
//   --sizes=LIST   bytes: of the vector, or of the block that goes from one rank to one rank
//
// One line per point: what,bytes,ms back to back,ms of the start,ms of the computation,ms of the
// wait,hidden share. Each is the median over repetitions of the mean of the ranks. Computation is a
// fixed amount of work, measured while all ranks compute.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRepetitions = 7, kMostSizes = 16, kTimes = 4 };
typedef enum { kBcast, kAllgather, kAlltoall, kAllreduce, kWhats } What;
static const char* const kNames[kWhats] = {"ibcast", "iallgather", "ialltoall", "iallreduce"};

static int g_rank, g_size;
static char *g_send, *g_recv;
static double g_loops_per_second;
static volatile unsigned long g_sum;

static void loops(double count) {
  unsigned long sum = g_sum;
  for (double done = 0; done < count; done += 1000) {
    for (int i = 0; i < 1000; i++) sum = sum * 3 + 1;
    g_sum = sum;
  }
}

static void calibrate(void) {
  double per_second = 1e8;
  for (int i = 0; i < 3; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    loops(per_second * 0.05);
    per_second = per_second * 0.05 / (MPI_Wtime() - begin);
  }
  MPI_Allreduce(&per_second, &g_loops_per_second, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  g_loops_per_second /= g_size;
}

static void start(What what, int bytes, MPI_Request* request) {
  switch (what) {
    case kBcast:
      MPI_Ibcast(g_recv, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, request);
      return;
    case kAllgather:
      MPI_Iallgather(g_send, bytes, MPI_BYTE, g_recv, bytes, MPI_BYTE, MPI_COMM_WORLD, request);
      return;
    case kAlltoall:
      MPI_Ialltoall(g_send, bytes, MPI_BYTE, g_recv, bytes, MPI_BYTE, MPI_COMM_WORLD, request);
      return;
    default:
      MPI_Iallreduce(g_send, g_recv, bytes / (int)sizeof(double), MPI_DOUBLE, MPI_SUM,
                     MPI_COMM_WORLD, request);
  }
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// Times of start, computation and wait, and of all of it: medians of the means over the ranks.
// Returns the median of all of it on this rank.
static double measure(What what, int bytes, double compute, double* times) {
  double all[kTimes][kRepetitions], own[kRepetitions];
  for (int i = -1; i < kRepetitions; i++) {
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    start(what, bytes, &request);
    const double started = MPI_Wtime();
    if (compute > 0) loops(compute * g_loops_per_second);
    const double computed = MPI_Wtime();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    const double end = MPI_Wtime();
    const double mine[kTimes] = {started - begin, computed - started, end - computed, end - begin};
    double sum[kTimes];
    MPI_Allreduce(mine, sum, kTimes, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int t = 0; t < kTimes && i >= 0; t++) all[t][i] = sum[t] / g_size;
    if (i >= 0) own[i] = end - begin;
  }
  for (int t = 0; t < kTimes; t++) {
    qsort(all[t], kRepetitions, sizeof(double), ascending);
    times[t] = all[t][kRepetitions / 2];
  }
  qsort(own, kRepetitions, sizeof(double), ascending);
  return own[kRepetitions / 2];
}

int main(int argc, char** argv) {
  const char *whats = "ibcast,iallgather,ialltoall,iallreduce", *list = "65536";
  long sizes[kMostSizes], most = 0;
  int count = 0;
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--what=", 7) == 0) whats = argv[i] + 7;
    if (strncmp(argv[i], "--sizes=", 8) == 0) list = argv[i] + 8;
  }
  while (count < kMostSizes && *list != '\0') {
    char* end;
    sizes[count] = strtol(list, &end, 10);
    if (sizes[count] > most) most = sizes[count];
    count++;
    list = *end == ',' ? end + 1 : end;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &g_size);
  g_send = calloc((size_t)most, (size_t)g_size);
  g_recv = calloc((size_t)most, (size_t)g_size);
  memset(g_send, 1, (size_t)(most * g_size));
  for (What what = kBcast; what < kWhats; what++) {
    if (strstr(whats, kNames[what]) == NULL) continue;
    for (int i = 0; i < count; i++) {
      double pure[kTimes], with[kTimes];
      const double own = measure(what, (int)sizes[i], 0, pure);
      calibrate();
      measure(what, (int)sizes[i], own, with);
      if (g_rank == 0) {
        const double hidden = 1 - (with[0] + with[2]) / pure[3];
        printf("%s,%ld,%.3f,%.3f,%.3f,%.3f,%.3f\n", kNames[what], sizes[i], pure[3] * 1e3,
               with[0] * 1e3, with[1] * 1e3, with[2] * 1e3, hidden > 0 ? hidden : 0);
        fflush(stdout);
      }
    }
  }
  MPI_Finalize();
  return 0;
}
