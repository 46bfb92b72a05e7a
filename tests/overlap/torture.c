// Collectives whose data may still be on its way when they return, and everything that a program
// may do with the memory next: what it sees must be what it would see if they had been complete.
//
//   --rounds=N   calls (200)
//   --largest=N  bytes that a rank receives, at most (3 MiB)
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "odtest.h"

enum { kLargest = 3 << 20, kMostRanks = 16, kPage = 4096 };

static char g_static[kLargest + kPage];
static int g_file = -1;

static unsigned char pattern(int from, int to, long round, long i) {
  return (unsigned char)(i * 7 + (i >> 9) + from * 31 + to * 57 + round * 13 + 1);
}

static void fill(char* at, long bytes, int from, int to, long round) {
  for (long i = 0; i < bytes; i++) at[i] = (char)pattern(from, to, round, i);
}

static long first_wrong(const char* at, long bytes, int from, int to, long round) {
  for (long i = 0; i < bytes; i++) {
    if ((unsigned char)at[i] != pattern(from, to, round, i)) return i;
  }
  return -1;
}

// A block of the receive buffer and what it has to hold.
typedef struct {
  char* at;
  long bytes;
  int from;
  int to;
} Block;

typedef struct {
  Block blocks[kMostRanks];
  int count;
  long round;
  char* start;  // the whole receive buffer
  long bytes;
  char* allocated;  // to be freed, if it was allocated
} Received;

static void check_blocks(const Received* got, OdtRandom* random) {
  const int first = (int)odt_below(random, got->count);
  for (int k = 0; k < got->count; k++) {
    const Block* block = &got->blocks[(first + k) % got->count];
    const long wrong = first_wrong(block->at, block->bytes, block->from, block->to, got->round);
    CHECK(wrong < 0, "round %ld, block from %d of %ld bytes differs at %ld", got->round,
          block->from, block->bytes, wrong);
  }
}

static void check_copy(const Received* got, const char* copy) {
  for (int k = 0; k < got->count; k++) {
    const Block* block = &got->blocks[k];
    const char* at = copy + (block->at - got->start);
    const long wrong = first_wrong(at, block->bytes, block->from, block->to, got->round);
    CHECK(wrong < 0, "round %ld, copy of the block from %d differs at %ld", got->round, block->from,
          wrong);
  }
}

static const Received* g_seen;
static volatile long g_wrong_in_handler;

static void on_signal(int number) {
  (void)number;
  const Block* block = &g_seen->blocks[g_seen->count - 1];
  g_wrong_in_handler = first_wrong(block->at, block->bytes, block->from, block->to, g_seen->round);
}

typedef struct {
  const Received* got;
  int block;
  long wrong;
} Reader;

static void* read_in_thread(void* argument) {
  Reader* reader = argument;
  const Block* block = &reader->got->blocks[reader->block];
  reader->wrong = first_wrong(block->at, block->bytes, block->from, block->to, reader->got->round);
  return NULL;
}

static void through_file(const Received* got, int how) {
  char* copy = malloc((size_t)got->bytes);
  const size_t bytes = (size_t)got->bytes;
  const size_t half = bytes / 2;
  struct iovec parts[2] = {{got->start, half}, {got->start + half, bytes - half}};
  ssize_t written = -1;
  lseek(g_file, 0, SEEK_SET);
  if (how == 0) {
    written = write(g_file, got->start, bytes);
  } else if (how == 1) {
    written = writev(g_file, parts, 2);
  } else if (how == 2) {
    written = pwrite(g_file, got->start, bytes, 0);
  } else if (how == 3) {
    written = pwritev(g_file, parts, 2, 0);
  } else {
    FILE* file = fdopen(dup(g_file), "r+");
    written = (ssize_t)fwrite(got->start, 1, bytes, file);
    fclose(file);
  }
  CHECK(written == (ssize_t)bytes, "wrote %zd of %zu bytes, way %d", written, bytes, how);
  const ssize_t read_back = pread(g_file, copy, bytes, 0);
  CHECK(read_back == (ssize_t)bytes, "read %zd of %zu bytes", read_back, bytes);
  check_copy(got, copy);
  free(copy);
}

// What comes from elsewhere replaces what is on its way, which must not come after it.
static void overwrite(const Received* got, int how) {
  char* other = malloc((size_t)got->bytes);
  const size_t bytes = (size_t)got->bytes;
  memset(other, 0x5a, bytes);
  CHECK(pwrite(g_file, other, bytes, 0) == (ssize_t)bytes, "%s", "a file is written");
  ssize_t done = (ssize_t)bytes;
  if (how == 0) {
    done = pread(g_file, got->start, bytes, 0);
  } else if (how == 1) {
    lseek(g_file, 0, SEEK_SET);
    done = read(g_file, got->start, bytes);
  } else if (how == 2) {
    FILE* file = fdopen(dup(g_file), "r");
    rewind(file);
    done = (ssize_t)fread(got->start, 1, bytes, file);
    fclose(file);
  } else {
    memset(got->start, 0x5a, bytes);
  }
  CHECK(done == (ssize_t)bytes, "got %zd of %zu bytes, way %d", done, bytes, how);
  usleep(2000);
  CHECK(memcmp(other, got->start, bytes) == 0, "round %ld, way %d: overwritten later", got->round,
        how);
  free(other);
}

static void through_socket(const Received* got) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
  char* copy = malloc((size_t)got->bytes);
  // Little enough for the socket's buffer, from the end of the memory.
  const long most = got->bytes < 65536 ? got->bytes : 65536;
  char* from = got->start + got->bytes - most;
  struct iovec part = {from, (size_t)most};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  memcpy(copy, got->start, (size_t)(got->bytes - most));
  const ssize_t sent =
      got->round % 2 ? send(ends[0], from, (size_t)most, 0) : sendmsg(ends[0], &message, 0);
  CHECK(sent == most, "sent %zd of %ld bytes", sent, most);
  long received = 0;
  while (received < sent) {
    const ssize_t now =
        recv(ends[1], copy + got->bytes - most + received, (size_t)(most - received), 0);
    if (now <= 0) break;
    received += now;
  }
  check_copy(got, copy);
  close(ends[0]);
  close(ends[1]);
  free(copy);
}

static void in_child(const Received* got) {
  const pid_t child = fork();
  if (child == 0) {
    long wrong = 0;
    for (int k = 0; k < got->count; k++) {
      const Block* block = &got->blocks[k];
      if (first_wrong(block->at, block->bytes, block->from, block->to, got->round) >= 0) wrong = 1;
    }
    _exit(wrong ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "round %ld: a child sees other data, %x",
        got->round, (unsigned)status);
}

static void in_threads(const Received* got) {
  enum { kReaders = 2 };
  pthread_t threads[kReaders];
  Reader readers[kReaders];
  for (int k = 0; k < kReaders; k++) {
    readers[k] = (Reader){got, (k * (got->count - 1)) % got->count, -1};
    pthread_create(&threads[k], NULL, read_in_thread, &readers[k]);
  }
  for (int k = 0; k < kReaders; k++) {
    pthread_join(threads[k], NULL);
    CHECK(readers[k].wrong < 0, "round %ld: thread %d", got->round, k);
  }
}

// What the program does when the call has returned; all ranks the same.
static void use(Received* got, OdtRandom* shared, OdtRandom* random) {
  const int how = (int)odt_below(shared, 20);
  const int variant = (int)odt_below(shared, 5);
  switch (how) {
    case 0:
      through_file(got, variant);
      break;
    case 1:
      overwrite(got, variant % 4);
      return;
    case 2:
      through_socket(got);
      break;
    case 3:
      if (variant == 0) in_child(got);
      break;
    case 4:
      in_threads(got);
      break;
    case 5:
      g_seen = got;
      g_wrong_in_handler = -1;
      raise(SIGUSR1);
      CHECK(g_wrong_in_handler < 0, "round %ld: in a handler at %ld", got->round,
            (long)g_wrong_in_handler);
      break;
    case 6:  // MPI on the buffer
      if (odt.size > 1) {
        char* copy = malloc((size_t)got->bytes);
        const int right = (odt.rank + 1) % odt.size;
        const int left = (odt.rank + odt.size - 1) % odt.size;
        long theirs = 0;
        MUST(MPI_Sendrecv(&got->bytes, 1, MPI_LONG, right, 1, &theirs, 1, MPI_LONG, left, 1,
                          MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        char* other = malloc((size_t)theirs + 1);
        MUST(MPI_Sendrecv(got->start, (int)got->bytes, MPI_BYTE, right, 2, other, (int)theirs,
                          MPI_BYTE, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        free(other);
        free(copy);
      }
      break;
    case 7:
      MPI_Wtime();
      if (got->allocated != NULL && variant < 3) {
        char* moved = realloc(got->allocated, (size_t)(got->bytes + (3 << 20)));
        const long shift = moved - got->allocated;
        for (int k = 0; k < got->count; k++) got->blocks[k].at += shift;
        got->start += shift;
        got->allocated = moved;
      }
      break;
    case 8:
      if (got->allocated != NULL) {  // freed while it is on its way, and used again
        free(got->allocated);
        got->allocated = malloc((size_t)got->bytes + kPage);
        memset(got->allocated, 0x33, (size_t)got->bytes + kPage);
        usleep(2000);
        for (long i = 0; i < got->bytes + kPage; i++) {
          if (got->allocated[i] != 0x33) {
            CHECK(0, "round %ld: new memory changed at %ld", got->round, i);
            break;
          }
        }
        return;
      }
      break;
    case 9: {
      char* page = (char*)(((uintptr_t)got->start + kPage - 1) / kPage * kPage);
      if (page + kPage <= got->start + got->bytes) {
        CHECK(mprotect(page, kPage, PROT_READ) == 0, "%s", "pages are closed for writing");
        check_blocks(got, random);
        CHECK(mprotect(page, kPage, PROT_READ | PROT_WRITE) == 0, "%s", "and opened");
      }
      break;
    }
    case 10:
      return;  // nobody looks
    case 11:
      MUST(MPI_Barrier(MPI_COMM_WORLD));
      break;
    case 12: {
      MPI_Comm other;
      MUST(MPI_Comm_dup(MPI_COMM_WORLD, &other));
      MUST(MPI_Comm_free(&other));
      break;
    }
    default:
      break;
  }
  check_blocks(got, random);
}

static char* memory_for(Received* got, long bytes, int kind, long shift) {
  got->allocated = NULL;
  got->bytes = bytes;
  if (kind == 0) {
    got->start = g_static + shift;
  } else {
    got->allocated = malloc((size_t)bytes + kPage);
    got->start = got->allocated + shift;
  }
  return got->start;
}

int main(int argc, char** argv) {
  odt_start("torture", &argc, &argv);
  const long rounds = odt_number("rounds", 200);
  long largest = odt_number("largest", kLargest);
  if (largest > kLargest) largest = kLargest;
  const int size = odt.size;
  OdtRandom shared = odt_random(1);
  OdtRandom own = odt_random(100 + (uint64_t)odt.rank);
  char name[] = "/tmp/odtorture-XXXXXX";
  g_file = mkstemp(name);
  unlink(name);
  struct sigaction action = {.sa_handler = on_signal};
  sigfillset(&action.sa_mask);
  sigaction(SIGUSR1, &action, NULL);
  MPI_Comm reversed;
  MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, -odt.rank, &reversed));

  for (long round = 0; round < rounds; round++) {
    const MPI_Comm comm = odt_below(&shared, 4) == 0 ? reversed : MPI_COMM_WORLD;
    int rank;
    MPI_Comm_rank(comm, &rank);
    const int what = (int)odt_below(&shared, 6);
    const long most = what == 0 ? largest : largest / size;
    long bytes = odt_below(&shared, 3) == 0 ? odt_below(&shared, most)
                                            : most / 2 + odt_below(&shared, most / 2);
    // Blocks of a few pages, which are not cut.
    if (odt_below(&shared, 6) == 0) bytes = odt_below(&shared, most < 65536 ? most : 65536);
    if (odt_below(&shared, 4) == 0) bytes = bytes / kPage * kPage;
    const int kind = (int)odt_below(&own, 3);
    const long shift = odt_below(&own, 2) ? 0 : odt_below(&own, kPage);
    Received got = {.round = round};
    char* input = NULL;
    int counts[kMostRanks], places[kMostRanks], sent[kMostRanks], from[kMostRanks];
    if (what == 0) {
      const int root = (int)odt_below(&shared, size);
      char* to = memory_for(&got, bytes, kind, shift);
      if (rank == root) fill(to, bytes, root, 0, round);
      MUST(MPI_Bcast(to, (int)bytes, MPI_BYTE, root, comm));
      got.blocks[got.count++] = (Block){to, bytes, root, 0};
    } else if (what <= 2) {  // allgather, and in place
      char* to = memory_for(&got, bytes * size, kind, shift);
      if (what == 1) {
        input = malloc((size_t)bytes + 1);
        fill(input, bytes, rank, 0, round);
        MUST(MPI_Allgather(input, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, comm));
        memset(input, 0x77, (size_t)bytes);
      } else {
        fill(to + rank * bytes, bytes, rank, 0, round);
        MUST(MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, to, (int)bytes, MPI_BYTE, comm));
      }
      for (int k = 0; k < size; k++) {
        got.blocks[got.count++] = (Block){to + k * bytes, bytes, k, 0};
      }
    } else if (what == 3) {  // allgatherv with gaps
      long total = 0;
      for (int k = 0; k < size; k++) {
        counts[k] = (int)(bytes - (bytes * k) / (2 * size));
        places[k] = (int)total;
        total += counts[k] + (k % 2 ? 100 : 0);
      }
      char* to = memory_for(&got, total, kind, shift);
      input = malloc((size_t)counts[rank] + 1);
      fill(input, counts[rank], rank, 0, round);
      for (int k = 1; k < size; k += 2) memset(to + places[k] + counts[k], 0, 100);
      MUST(MPI_Allgatherv(input, counts[rank], MPI_BYTE, to, counts, places, MPI_BYTE, comm));
      memset(input, 0x77, (size_t)counts[rank]);
      for (int k = 0; k < size; k++) {
        got.blocks[got.count++] = (Block){to + places[k], counts[k], k, 0};
      }
    } else if (what == 4) {
      char* to = memory_for(&got, bytes * size, kind, shift);
      input = malloc((size_t)(bytes * size) + 1);
      for (int k = 0; k < size; k++) fill(input + k * bytes, bytes, rank, k, round);
      MUST(MPI_Alltoall(input, (int)bytes, MPI_BYTE, to, (int)bytes, MPI_BYTE, comm));
      memset(input, 0x77, (size_t)(bytes * size));
      for (int k = 0; k < size; k++) {
        got.blocks[got.count++] = (Block){to + k * bytes, bytes, k, rank};
      }
    } else {  // alltoallv, blocks in reverse order
      long in = 0, out = 0;
      for (int k = 0; k < size; k++) {
        sent[k] = (int)(bytes / (1 + (rank + 2 * k) % 3));
        from[k] = (int)in;
        in += sent[k];
      }
      for (int k = size - 1; k >= 0; k--) {
        counts[k] = (int)(bytes / (1 + (k + 2 * rank) % 3));
        places[k] = (int)out;
        out += counts[k];
      }
      char* to = memory_for(&got, out, kind, shift);
      input = malloc((size_t)in + 1);
      for (int k = 0; k < size; k++) fill(input + from[k], sent[k], rank, k, round);
      MUST(MPI_Alltoallv(input, sent, from, MPI_BYTE, to, counts, places, MPI_BYTE, comm));
      memset(input, 0x77, (size_t)in);
      for (int k = 0; k < size; k++) {
        got.blocks[got.count++] = (Block){to + places[k], counts[k], k, rank};
      }
    }
    use(&got, &shared, &own);
    free(input);
    free(got.allocated);
  }
  MUST(MPI_Comm_free(&reversed));
  return odt_finish();
}
