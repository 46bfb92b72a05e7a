// Buffers in memory of every kind: in a block of malloc, in static data, in what the program has
// mapped, on the stack, in a read-only mapping.
//
// Ranks exchange in pairs, each message is checked. An odd rank alone at the end has nothing to do.
// --kinds=N: only the first N kinds. --windows=N: also N blocks 256 MiB apart, round and round.
// --fork: a child is made between messages, writes into its buffers and ends.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBytes = 300000, kRounds = 4 };

static int me, peer, bad;
static unsigned char static_data[kBytes];

static unsigned char pattern(int sender, int round, size_t i) {
  return (unsigned char)(sender * 57 + round * 31 + i * 7 + (i >> 9));
}

static void fill(unsigned char* data, size_t bytes, int round) {
  for (size_t i = 0; i < bytes; ++i) data[i] = pattern(me, round, i);
}

static void expect(const char* kind, const unsigned char* data, size_t bytes, int round) {
  for (size_t i = 0; i < bytes; ++i) {
    if (data[i] == pattern(peer, round, i)) continue;
    if (bad++ < 5) {
      fprintf(stderr, "FAIL rank %d: %s, round %d, byte %zu of %zu\n", me, kind, round, i, bytes);
    }
    return;
  }
}

static void child_writes(unsigned char* data, size_t bytes) {
  const pid_t child = fork();
  if (child == 0) {
    memset(data, 0xee, bytes);
    _exit(0);
  }
  int status = 1;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    fprintf(stderr, "FAIL rank %d: fork\n", me);
    ++bad;
  }
}

static void talk(const char* kind, unsigned char* data, size_t bytes, int round) {
  MPI_Status status;
  for (int turn = 0; turn < 2; ++turn) {
    if ((me & 1) == turn) {
      fill(data, bytes, round);
      MPI_Send(data, (int)bytes, MPI_BYTE, peer, round, MPI_COMM_WORLD);
    } else {
      memset(data, 0, bytes);
      MPI_Recv(data, (int)bytes, MPI_BYTE, peer, round, MPI_COMM_WORLD, &status);
      expect(kind, data, bytes, round);
    }
  }
  // Both at once, in halves of the buffer.
  const size_t half = bytes / 2;
  fill(data, half, round + 1);
  MPI_Request requests[2];
  MPI_Irecv(data + half, (int)half, MPI_BYTE, peer, 99, MPI_COMM_WORLD, &requests[0]);
  MPI_Isend(data, (int)half, MPI_BYTE, peer, 99, MPI_COMM_WORLD, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  expect(kind, data + half, half, round + 1);
}

static void on_stack(void) {
  unsigned char data[kBytes];
  for (int round = 0; round < kRounds; ++round) talk("stack", data, kBytes - 1000 * round, round);
}

static unsigned char* mapped(size_t bytes, int access) {
  unsigned char* data =
      mmap(NULL, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    perror("FAIL mmap");
    exit(1);
  }
  return data;
}

static void read_only(void) {
  unsigned char* data = mapped(kBytes, PROT_READ | PROT_WRITE);
  unsigned char* received = mapped(kBytes, PROT_READ | PROT_WRITE);
  fill(data, kBytes, 3);
  if (mprotect(data, kBytes, PROT_READ) != 0) perror("FAIL mprotect");
  MPI_Sendrecv(data, kBytes, MPI_BYTE, peer, 5, received, kBytes, MPI_BYTE, peer, 5, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  expect("read-only", received, kBytes, 3);
}

static void many_windows(int count) {
  const size_t apart = (size_t)256 << 20;
  unsigned char* data = mapped(apart * (size_t)count, PROT_READ | PROT_WRITE);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < count; ++i) talk("window", data + apart * (size_t)i, 100000, round);
  }
}

int main(int argc, char** argv) {
  int kinds = 5, windows = 0, forks = 0, size;
  for (int i = 1; i < argc; ++i) {
    sscanf(argv[i], "--kinds=%d", &kinds);
    sscanf(argv[i], "--windows=%d", &windows);
    if (strcmp(argv[i], "--fork") == 0) forks = 1;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  peer = me ^ 1;
  if (peer < size) {
    unsigned char* block = malloc(kBytes);
    unsigned char* map = mapped(kBytes, PROT_READ | PROT_WRITE);
    for (int round = 0; round < kRounds; ++round) {
      if (kinds > 0) talk("malloc", block, (size_t)(kBytes - 1000 * round), round);
      if (kinds > 1) talk("static data", static_data, (size_t)(kBytes - 1000 * round), round);
      if (kinds > 2) talk("mmap", map, (size_t)(kBytes - 1000 * round), round);
      if (forks) child_writes(block, kBytes);
    }
    if (kinds > 3) on_stack();
    if (kinds > 4) read_only();
    if (windows > 0) many_windows(windows);
    free(block);
  }
  int all = 0;
  MPI_Reduce(&bad, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0 && all == 0) printf("PASS everywhere\n");
  MPI_Finalize();
  return all != 0 || bad != 0;
}
