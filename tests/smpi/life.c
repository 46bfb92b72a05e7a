// Blocks at the edges of their life:
// --what=many|large|foreign|exit|fork|viewer|owner|limit|touch.
#define _GNU_SOURCE
#include <errno.h>
#include <overdrive/smpi.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odtest.h"

// A million blocks under way at once, freed by the rank that received them.
static void many(void) {
  const long count = odt_number("count", 1000000);
  if (odt.rank == 0) {
    for (long i = 0; i < count; i++) {
      long* block = NULL;
      SMPI_Alloc(8, &block);
      *block = i;
      MPI_Request request;
      SMPI_Ipass(block, 1, MPI_LONG, 1, 1, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
  if (odt.rank == 0) MPI_Barrier(MPI_COMM_WORLD);
  if (odt.rank == 1) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = 0; i < count; i++) {
      long* block = NULL;
      SMPI_View view;
      SMPI_Recv(&view, 1, MPI_LONG, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      SMPI_View_own(&view, &block);
      if (*block != i) CHECK(0, "%ld, not %ld", *block, i);
      SMPI_Free(block);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(1, "done");
}

// Blocks of 100 MiB, far beyond every chunk, lent and passed again and again.
static void large(void) {
  enum { kBytes = 100 << 20 };
  for (int round = 0; round < 4; round++) {
    if (odt.rank == 0) {
      char* block = NULL;
      CHECK(SMPI_Alloc(kBytes, &block) == MPI_SUCCESS, "alloc");
      for (int i = 0; i < kBytes; i += 4096) block[i] = (char)(round + i / 4096);
      SMPI_Send(block, kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
      SMPI_Pass(block, kBytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    } else if (odt.rank == 1) {
      SMPI_View view;
      const char* data = NULL;
      char* block = NULL;
      SMPI_Recv(&view, kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
      for (int i = 0; i < kBytes; i += 4096) {
        if (data[i] != (char)(round + i / 4096)) CHECK(0, "byte %d", i);
      }
      SMPI_View_release(&view);
      SMPI_Recv(&view, kBytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      SMPI_View_own(&view, &block);
      CHECK(block[4096] == (char)(round + 1), "passed");
      SMPI_Free(block);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// Each block is freed by the rank behind the one that allocated it.
static void foreign(void) {
  const int next = (odt.rank + 1) % odt.size, before = (odt.rank + odt.size - 1) % odt.size;
  for (int round = 0; round < 2000; round++) {
    void* block = NULL;
    MPI_Request requests[2];
    SMPI_View view;
    const size_t bytes = (size_t)(round * 37 % 5000);
    SMPI_Alloc((MPI_Aint)bytes, &block);
    odt_fill(block, bytes, (uint64_t)round);
    SMPI_Irecv(&view, 5000, MPI_BYTE, before, 1, MPI_COMM_WORLD, &requests[0]);
    SMPI_Ipass(block, (MPI_Count)bytes, MPI_BYTE, next, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    SMPI_View_own(&view, &block);
    CHECK_DATA(block, bytes, (uint64_t)round);
    SMPI_Free(block);
  }
}

// The program ends while blocks are lent, passed, under way and looked at.
static void leave(void) {
  void *lent = NULL, *passed = NULL, *kept = NULL;
  const int next = (odt.rank + 1) % odt.size, before = (odt.rank + odt.size - 1) % odt.size;
  SMPI_View view;
  SMPI_Alloc(10000, &lent);
  SMPI_Alloc(100000, &passed);
  SMPI_Alloc(10, &kept);
  SMPI_Send(lent, 10000, MPI_BYTE, next, 1, MPI_COMM_WORLD);
  SMPI_Recv(&view, 10000, MPI_BYTE, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Request request;
  SMPI_Ipass(passed, 100000, MPI_BYTE, next, 2, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  SMPI_Recv(&view, 100000, MPI_BYTE, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  CHECK(view != SMPI_VIEW_NULL, "view");
}

// A child sees what there was, and what it does there is nobody else's business.
static void forked(void) {
  char* block = NULL;
  SMPI_View view = SMPI_VIEW_NULL;
  const char* data = NULL;
  SMPI_Alloc(5000, &block);
  odt_fill(block, 5000, 7);
  SMPI_Bcast(block, 5000, MPI_BYTE, 0, MPI_COMM_WORLD, &view);
  SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
  const pid_t child = fork();
  if (child == 0) {
    memset(block, 1, 5000);
    SMPI_View_release(&view);
    SMPI_Free(block);
    _exit(0);
  }
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  CHECK(status == 0, "child %d", status);
  CHECK_DATA(data, 5000, 7);
  CHECK_DATA(block, 5000, 7);
  MPI_Barrier(MPI_COMM_WORLD);
  int views = -1;
  SMPI_Lent(block, &views);
  CHECK(views == (odt.rank == 0 ? odt.size : 0), "%d views", views);
  MPI_Barrier(MPI_COMM_WORLD);
  SMPI_View_release(&view);
  SMPI_Reclaim(block);
  SMPI_Free(block);
}

// Rank 1 dies with a view; rank 0 waits for it.
static void viewer_dies(void) {
  enum { kBytes = 10000 };  // what is short might be copied
  if (odt.rank == 0) {
    void* block = NULL;
    SMPI_Alloc(kBytes, &block);
    SMPI_Send(block, kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    SMPI_Reclaim(block);
    printf("WRONG: reclaimed\n");
  } else if (odt.rank == 1) {
    SMPI_View view;
    SMPI_Recv(&view, kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    raise(SIGKILL);
  }
}

// Whether a process runs, or has not been taken notice of after its end.
static int runs(long pid) {
  char path[64], text[256] = "";
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE* file = fopen(path, "r");
  if (file == NULL) return 0;
  const size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  const char* state = strrchr(text, ')');
  return length > 0 && state != NULL && strchr("ZX", state[2]) == NULL;
}

// Rank 1 dies while rank 0 looks at what it has lent: the view stays whole, and who waits for the
// next message learns of the death.
static void owner_dies(void) {
  enum { kBytes = 300000 };
  if (odt.rank == 0) {
    SMPI_View view;
    const void* data = NULL;
    long pid = 0;
    MPI_Recv(&pid, 1, MPI_LONG, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SMPI_Recv(&view, kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
    MPI_Send(NULL, 0, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    while (runs(pid)) odt_sleep_ms(1);
    CHECK_DATA(data, kBytes, 9);
    SMPI_View_release(&view);
    SMPI_Recv(&view, kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("WRONG: received\n");
  } else if (odt.rank == 1) {
    const long pid = getpid();
    void* block = NULL;
    SMPI_Alloc(kBytes, &block);
    odt_fill(block, kBytes, 9);
    MPI_Send(&pid, 1, MPI_LONG, 0, 1, MPI_COMM_WORLD);
    SMPI_Send(block, kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    MPI_Recv(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    raise(SIGKILL);
  }
}

static void limited(void) {
  void *first = NULL, *second = NULL;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(SMPI_Alloc(700 << 10, &first) == MPI_SUCCESS, "first");
  CHECK(odt_class(SMPI_Alloc(700 << 10, &second)) == MPI_ERR_NO_MEM, "second");
  SMPI_Free(first);
  CHECK(SMPI_Alloc(700 << 10, &second) == MPI_SUCCESS, "again");
  SMPI_Free(second);
}

// Puts this rank on a processor, where there are several nodes of memory on one of a node of its
// own; returns that node.
static int settle_on_a_memory_node(void) {
  cpu_set_t allowed, one;
  unsigned node = 0, nodes[CPU_SETSIZE], cpus[CPU_SETSIZE];
  int count = 0;
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) continue;
    syscall(SYS_getcpu, NULL, &node, NULL);
    int known = 0;
    for (int i = 0; i < count; i++) known |= nodes[i] == node;
    if (!known) nodes[count] = node, cpus[count++] = (unsigned)cpu;
  }
  if (count == 0) return -1;
  CPU_ZERO(&one);
  CPU_SET(cpus[odt.rank % count], &one);
  sched_setaffinity(0, sizeof one, &one);
  return (int)nodes[odt.rank % count];
}

// How many of the pages that lie wholly within the memory exist, and how many of them elsewhere
// than on a node; -1: the kernel does not tell where they lie.
static long pages_there(const char* memory, size_t bytes, int node, long* elsewhere) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t first = ((uintptr_t)memory + page - 1) / page * page;
  const size_t count = ((uintptr_t)memory + bytes - first) / page;
  unsigned char* there = malloc(count);
  void** pages = malloc(count * sizeof *pages);
  int* at = malloc(count * sizeof *at);
  long found = 0;
  CHECK(mincore((void*)first, count * page, there) == 0, "%s", strerror(errno));
  for (size_t i = 0; i < count; i++) pages[i] = (void*)(first + i * page);
  *elsewhere = syscall(SYS_move_pages, 0, count, pages, NULL, at, 0) == 0 ? 0 : -1;
  for (size_t i = 0; i < count; i++) {
    found += there[i] & 1;
    if (*elsewhere >= 0) *elsewhere += at[i] >= 0 && at[i] != node;
  }
  free(there), free(pages), free(at);
  return found;
}

// Memory comes to be where its owner touches it first: neither allocating, lending, looking at a
// view nor passing does that for him.
static void touch(void) {
  enum { kBytes = 32 << 20, kFew = 32 };
  const int node = settle_on_a_memory_node();
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  long elsewhere = 0;
  SMPI_View view;
  char *block = NULL, *second = NULL;
  const char* data = NULL;
  if (odt.rank == 0) {
    SMPI_Alloc(kBytes, &block);
    SMPI_Alloc(kBytes, &second);
    CHECK(pages_there(block, kBytes, node, &elsewhere) <= kFew, "allocating");
    SMPI_Send(block, kBytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(pages_there(block, kBytes, node, &elsewhere) <= kFew, "lending");
    SMPI_Reclaim(block);
    memset(block, 1, kBytes);
    CHECK(pages_there(block, kBytes, node, &elsewhere) == (long)(kBytes / page) - 1 ||
              pages_there(block, kBytes, node, &elsewhere) == (long)(kBytes / page),
          "writing");
    CHECK(elsewhere <= 0, "%ld pages are not on node %d", elsewhere, node);
    SMPI_Pass(second, kBytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
    SMPI_Free(block);
  } else if (odt.rank == 1) {
    SMPI_Recv(&view, kBytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    SMPI_View_release(&view);
    SMPI_Recv(&view, kBytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    SMPI_View_own(&view, &second);
    CHECK(pages_there(second, kBytes, node, &elsewhere) <= kFew, "passing");
    memset(second, 2, kBytes);
    pages_there(second, kBytes, node, &elsewhere);
    // The front, which its home has written, may share the first page.
    CHECK(elsewhere <= kFew, "%ld pages are not on node %d", elsewhere, node);
    SMPI_Free(second);
  }
}

int main(int argc, char** argv) {
  odt_start("life", &argc, &argv);
  const char* what = odt_option("what", "foreign");
  CHECK(SMPI_Comm_attach(MPI_COMM_WORLD) == MPI_SUCCESS, "attach");
  if (strcmp(what, "many") == 0) many();
  if (strcmp(what, "large") == 0) large();
  if (strcmp(what, "foreign") == 0) foreign();
  if (strcmp(what, "exit") == 0) leave();
  if (strcmp(what, "fork") == 0) forked();
  if (strcmp(what, "viewer") == 0) viewer_dies();
  if (strcmp(what, "owner") == 0) owner_dies();
  if (strcmp(what, "limit") == 0) limited();
  if (strcmp(what, "touch") == 0) touch();
  return odt_finish();
}
