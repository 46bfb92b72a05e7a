// Round trips of messages and of views between ranks 0 and 1: views --sizes=8,4096 --part=0.1
// --rewrite=1
//
// Prints lines "size,read,rewrite,way,microseconds" with the time of one direction, the median of
// batches; message and view take turns in batches, so both see the same distance of the cores. What
// a receiver reads (all, a part, nothing) is summed up; with rewriting the sender writes all of its
// buffer before each send. The first and the last line tell how long a cache line takes from core
// to core ("line_ns,N").
#define _GNU_SOURCE
#include <fcntl.h>
#include <overdrive/smpi.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kBatches = 9 };

static int g_rank;
static volatile uint64_t g_sum;

static void read_some(const void* data, size_t bytes) {
  const uint64_t* words = data;
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes / 8; i++) sum += words[i];
  g_sum += sum;
}

static void write_all(void* data, size_t bytes, uint64_t value) {
  uint64_t* words = data;
  for (size_t i = 0; i < bytes / 8; i++) words[i] = value + i;
}

// One direction of a round trip by message.
static void message_out(char* out, size_t bytes, int rewrite, uint64_t value) {
  if (rewrite) write_all(out, bytes, value);
  MPI_Send(out, (int)bytes, MPI_BYTE, 1 - g_rank, 1, MPI_COMM_WORLD);
}
static void message_in(char* in, size_t bytes, size_t seen) {
  MPI_Recv(in, (int)bytes, MPI_BYTE, 1 - g_rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  read_some(in, seen);
}

static void view_out(char* out, size_t bytes, int rewrite, uint64_t value) {
  if (rewrite) {
    SMPI_Reclaim(out);
    write_all(out, bytes, value);
  }
  SMPI_Send(out, (MPI_Count)bytes, MPI_BYTE, 1 - g_rank, 1, MPI_COMM_WORLD);
}
static void view_in(size_t bytes, size_t seen) {
  SMPI_View view;
  const void* data;
  SMPI_Recv(&view, (MPI_Count)bytes, MPI_BYTE, 1 - g_rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
  read_some(data, seen);
  SMPI_View_release(&view);
}

static double batch(int views, char* out, char* in, size_t bytes, size_t seen, int rewrite,
                    int rounds) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < rounds; i++) {
    for (int turn = 0; turn < 2; turn++) {
      if (turn == g_rank) {
        if (views) {
          view_out(out, bytes, rewrite, (uint64_t)i);
        } else {
          message_out(out, bytes, rewrite, (uint64_t)i);
        }
      } else if (views) {
        view_in(bytes, seen);
      } else {
        message_in(in, bytes, seen);
      }
    }
  }
  return (MPI_Wtime() - begin) / rounds / 2 * 1e6;
}

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

// How long a cache line takes from core to core, in ns; over memory of its own, so that jobs with
// and without Overdrive are told near or far alike.
static double line_ns(void) {
  enum { kRounds = 20000, kApart = 16, kBytes = 4096 };
  int place[2] = {getpid(), -1};
  char path[64];
  if (g_rank == 0) {
    place[1] = memfd_create("line", 0);
    if (place[1] < 0 || ftruncate(place[1], kBytes) != 0) MPI_Abort(MPI_COMM_WORLD, 2);
  }
  MPI_Bcast(place, 2, MPI_INT, 0, MPI_COMM_WORLD);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", place[0], place[1]);
  const int file = open(path, O_RDWR);
  uint64_t* words = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file < 0 || words == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 2);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (uint64_t i = 1; i <= kRounds; i++) {
    uint64_t *own = words + (g_rank == 0 ? 0 : kApart), *other = words + (g_rank == 0 ? kApart : 0);
    if (g_rank == 0) __atomic_store_n(own, i, __ATOMIC_RELEASE);
    for (long spins = 0; __atomic_load_n(other, __ATOMIC_ACQUIRE) < i;) {
      if (++spins > 10000) sched_yield();
    }
    if (g_rank == 1) __atomic_store_n(own, i, __ATOMIC_RELEASE);
  }
  const double ns = (MPI_Wtime() - begin) / kRounds / 2 * 1e9;
  MPI_Barrier(MPI_COMM_WORLD);
  munmap(words, kBytes);
  close(file);
  if (g_rank == 0) close(place[1]);
  return ns;
}

int main(int argc, char** argv) {
  size_t sizes[32];
  int count = 0, rewrite = 0;
  double budget = 0.01;  // seconds for a batch
  const char* list = "8,64,512,4096,32768,262144,2097152,16777216,67108864";
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--sizes=", 8) == 0) list = argv[i] + 8;
    if (strncmp(argv[i], "--rewrite=", 10) == 0) rewrite = atoi(argv[i] + 10);
    if (strncmp(argv[i], "--budget=", 9) == 0) budget = atof(argv[i] + 9);
  }
  for (const char* at = list; at != NULL && count < 32; at = strchr(at, ',')) {
    if (*at == ',') at++;
    sizes[count++] = (size_t)atol(at);
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  SMPI_Comm_attach(MPI_COMM_WORLD);
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  if (CPU_COUNT(&all) >= 2) {
    int nth = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
      if (!CPU_ISSET(cpu, &all) || nth++ != g_rank) continue;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
    }
  }
  const double before_ns = line_ns();
  if (g_rank == 0) printf("line_ns,%.0f\n", before_ns);
  for (int s = 0; s < count; s++) {
    const size_t bytes = sizes[s];
    char *out = NULL, *plain_out = malloc(bytes), *in = malloc(bytes);
    SMPI_Alloc((MPI_Aint)bytes, &out);
    write_all(out, bytes, 1);
    write_all(plain_out, bytes, 1);
    write_all(in, bytes, 1);
    static const char* const kNames[] = {"nothing", "tenth", "all"};
    for (int part = 0; part < 3; part++) {
      const size_t seen = part == 0 ? 0 : part == 1 ? bytes / 10 : bytes;
      double times[2][kBatches];
      int rounds[2];
      for (int way = 0; way < 2; way++) {
        batch(way, way ? out : plain_out, in, bytes, seen, rewrite, 2);
        double one_way = batch(way, way ? out : plain_out, in, bytes, seen, rewrite, 3);
        MPI_Bcast(&one_way, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        rounds[way] = 1 + (int)(budget * 1e6 / (2 * one_way + 0.01));
        if (rounds[way] > 20000) rounds[way] = 20000;
      }
      for (int b = 0; b < kBatches; b++) {
        for (int way = 0; way < 2; way++) {
          times[way][b] = batch(way, way ? out : plain_out, in, bytes, seen, rewrite, rounds[way]);
        }
      }
      for (int way = 0; way < 2 && g_rank == 0; way++) {
        qsort(times[way], kBatches, sizeof(double), by_value);
        printf("%zu,%s,%d,%s,%.4f\n", bytes, kNames[part], rewrite, way ? "view" : "message",
               times[way][kBatches / 2]);
      }
    }
    SMPI_Reclaim(out);
    SMPI_Free(out);
    free(plain_out);
    free(in);
  }
  const double after_ns = line_ns();
  if (g_rank == 0) printf("line_ns,%.0f\n", after_ns);
  MPI_Finalize();
  return 0;
}
