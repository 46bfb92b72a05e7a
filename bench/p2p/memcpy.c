// What two processes can do without any message library: the sender tells that its buffer is
// ready, the receiver copies it with memcpy from the shared page into its own heap. The yardstick
// for long messages; same shapes as latency.c.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "od_p2p.h"
#include "probe.h"

enum { kHead = 4096, kSpinsBeforeYield = 20000 };

typedef struct {
  _Atomic uint64_t
      ready;  // messages that are in the buffer behind this page, counted from the start
} Head;

typedef struct {
  Head *own, *peer;
  char *source, *peer_source, *target;
  size_t bytes;
  uint64_t turn, seed, sum, expected;
  int app, first;
} Copying;

static void* MapFile(int fd, const char* path) {
  int file = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : fd;
  void* mapped = file >= 0
                     ? mmap(NULL, kHead + kMaxBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                     : MAP_FAILED;
  if (path != NULL && file >= 0) close(file);
  if (mapped == MAP_FAILED) {
    fputs("od_p2p: the two processes cannot share memory\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return mapped;
}

static void Connect(const Bench* bench, Copying* c) {
  int fd = memfd_create("od_p2p", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kHead + kMaxBytes) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
  long own[2] = {getpid(), fd}, peer[2];
  MPI_Sendrecv(own, 2, MPI_LONG, 1 - bench->rank, 9, peer, 2, MPI_LONG, 1 - bench->rank, 9,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  char path[64];
  snprintf(path, sizeof(path), "/proc/%ld/fd/%ld", peer[0], peer[1]);
  c->own = MapFile(fd, NULL);
  c->peer = MapFile(-1, path);
  c->source = (char*)c->own + kHead;
  c->peer_source = (char*)c->peer + kHead;
  c->target = malloc(kMaxBytes);
  if (c->target == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  memset(c->source, 1, kMaxBytes);
  memset(c->target, 1, kMaxBytes);
}

static void SendIt(Copying* c, uint64_t seed) {
  Message message = {c->source, (int)c->bytes, MPI_BYTE, c->bytes, c->bytes, c->bytes};
  if (c->app) Fill(&message, seed);
  // Release: the peer sees what was filled in.
  atomic_store_explicit(&c->own->ready, c->turn, memory_order_release);
}

static void ReceiveIt(Copying* c, uint64_t seed) {
  Message message = {c->target, (int)c->bytes, MPI_BYTE, c->bytes, c->bytes, c->bytes};
  unsigned spins = 0;
  while (atomic_load_explicit(&c->peer->ready, memory_order_acquire) < c->turn) {
    if (++spins % kSpinsBeforeYield == 0) usleep(0);
  }
  memcpy(c->target, c->peer_source, c->bytes);
  if (!c->app) return;
  c->sum += Checksum(&message);
  c->expected += ExpectedChecksum(c->bytes, seed);
}

static void RunCopies(void* context, int64_t iterations) {
  Copying* c = context;
  for (int64_t i = 0; i < iterations; ++i) {
    uint64_t seed = ++c->seed;
    ++c->turn;
    if (c->first) SendIt(c, seed);
    ReceiveIt(c, seed);
    if (!c->first) SendIt(c, seed);
  }
  if (c->sum != c->expected) {
    fprintf(stderr, "od_p2p: wrong checksum of a copy of %zu bytes\n", c->bytes);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
}

void RunMemcpy(const Bench* bench) {
  static const char* const kShapes[] = {"usual", "app"};
  static int64_t iterations[2][kMaxSizes];
  static Copying copying;
  if (bench->ranks != 2) return;
  if (copying.own == NULL) Connect(bench, &copying);
  copying.first = bench->rank == 0;
  for (int shape = 0; shape < 2; ++shape) {
    if (!Listed(bench->shapes, kShapes[shape])) continue;
    copying.app = shape == 1;
    for (int i = 0; i < bench->size_count; ++i) {
      copying.bytes = bench->sizes[i];
      Label label = {"memcpy", kShapes[shape], "-", "heap", "us", bench->sizes[i]};
      Sample(bench, &label, RunCopies, &copying, &iterations[shape][i], HalfRoundTripMicroseconds);
    }
  }
}
