// The program gives pages of shared blocks and static data back, maps other things over them,
// unmaps, moves and protects them: the effects are those on private memory, messages carry what the
// program sees, a forked child has it too, and freed blocks can be used anew. Also when the program
// has closed the descriptor of the memory (--lost=1).
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odtest.h"
#include "where.h"

enum { kPage = 4096, kPages = 256, kBytes = kPages * kPage };

static char fixed[kBytes + kPage];  // .bss
static char* got;

static int all(const char* start, size_t bytes, char value) {
  for (size_t i = 0; i < bytes; i++) {
    if (start[i] != value) return 0;
  }
  return 1;
}

// What rank 0 has there arrives at rank 1.
static void arrives(const char* what, char* start, size_t bytes) {
  if (odt.rank == 0) {
    MUST(MPI_Send(start, (int)bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
  } else {
    memset(got, 0x55, bytes);
    MUST(MPI_Recv(got, (int)bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(memcmp(got, start, bytes) == 0, "%s: what arrives is not what the sender has", what);
  }
}

static int in_child(int (*test)(char*), char* start) {
  pid_t child = fork();
  if (child == 0) _exit(test(start));
  int status = -1;
  while (waitpid(child, &status, 0) < 0) {
  }
  return status;
}
static int hole_is_zero(char* start) { return !all(start + 8 * kPage, 8 * kPage, 0); }
static int foreign_is_five(char* start) { return !all(start + 8 * kPage, 8 * kPage, 5); }

static void give_back(const char* what, char* start) {
  static const int kAdvice[] = {MADV_DONTNEED, MADV_FREE};
  for (int a = 0; a < 2; a++) {
    memset(start, 7, kBytes);
    CHECK(madvise(start + 8 * kPage, 8 * kPage, kAdvice[a]) == 0, "%s: advice %d", what,
          kAdvice[a]);
    CHECK(all(start, 8 * kPage, 7) && all(start + 16 * kPage, kBytes - 16 * kPage, 7),
          "%s: beside it", what);
    if (kAdvice[a] == MADV_DONTNEED)
      CHECK(all(start + 8 * kPage, 8 * kPage, 0), "%s: not zero", what);
    if (kAdvice[a] == MADV_FREE) memset(start + 8 * kPage, 0, 8 * kPage);
    arrives(what, start, kBytes);
    CHECK(in_child(hole_is_zero, start) == 0, "%s: the child sees something else", what);
  }
}

static void map_over(const char* what, char* start) {
  char* part = start + 8 * kPage;
  memset(start, 7, kBytes);
  // Fresh memory.
  CHECK(mmap(part, 8 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == part,
        "%s: map", what);
  CHECK(all(part, 8 * kPage, 0) && all(start, 8 * kPage, 7), "%s: fresh memory", what);
  arrives(what, start, kBytes);
  // A file.
  int fd = memfd_create("tests", 0);
  CHECK(fd >= 0 && ftruncate(fd, 8 * kPage) == 0, "%s: no file", what);
  CHECK(mmap(part, 8 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == part,
        "%s: map", what);
  memset(part, 5, 8 * kPage);
  char byte = 0;
  CHECK(pread(fd, &byte, 1, kPage) == 1 && byte == 5, "%s: the file was not written", what);
  CHECK(madvise(part, kPage, MADV_DONTNEED) == 0 && part[0] == 5, "%s: the file has a hole", what);
  arrives(what, start, kBytes);
  CHECK(in_child(foreign_is_five, start) == 0, "%s: the child sees something else", what);
  close(fd);
  // Memory again.
  CHECK(mmap(part, 8 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == part,
        "%s: map", what);
  CHECK(all(part, 8 * kPage, 0), "%s: not zero", what);
  arrives(what, start, kBytes);
}

static int is_guarded(char* start) {
  // Reading a page that is protected fails in the kernel, too.
  int ends[2];
  if (pipe(ends) != 0) return 2;
  return write(ends[1], start + 8 * kPage, 1) >= 0 || start[0] != 7;
}

static void protect(const char* what, char* start) {
  memset(start, 7, kBytes);
  CHECK(mprotect(start + 8 * kPage, kPage, PROT_NONE) == 0, "%s: protect", what);
  CHECK(in_child(is_guarded, start) == 0, "%s: the child has no guard", what);
  CHECK(mprotect(start + 8 * kPage, kPage, PROT_READ | PROT_WRITE) == 0, "%s: protect", what);
  CHECK(all(start, kBytes, 7), "%s: contents", what);
}

// What programs do that close all descriptors that they do not know: here those of memory alone,
// because launchers hand down some that the MPI library needs.
static void lose_descriptors(void) {
  free(malloc(kBytes));
  for (int fd = 3; fd < 1024; fd++) {
    char link[64], path[64] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "memfd:") != NULL) close(fd);
  }
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[argc - 1], "--lost=1") == 0) lose_descriptors();
  odt_start("pages", &argc, &argv);
  got = malloc(kBytes);
  char* bss = (char*)(((uintptr_t)fixed + kPage - 1) / kPage * kPage);
  char* block = aligned_alloc(kPage, kBytes);
  if (odt_number("shared", 1)) CHECK(in_reach_file(block, kBytes), "the block is not shared");
  give_back("block", block);
  give_back("static data", bss);
  protect("block", block);
  protect("static data", bss);
  map_over("block", block);
  map_over("static data", bss);
  // Freed as it is: who gets the memory next must not notice.
  CHECK(mprotect(block + kPage, kPage, PROT_NONE) == 0, "protect");
  CHECK(munmap(block + 20 * kPage, 4 * kPage) == 0, "unmap");
  CHECK(madvise(block, kPage, MADV_NORMAL) == 0, "advice");
  free(block);
  for (int i = 0; i < 3; i++) {
    char* again = aligned_alloc(kPage, kBytes);
    memset(again, 3, kBytes);
    CHECK(all(again, kBytes, 3), "used anew");
    arrives("used anew", again, kBytes);
    free(again);
  }
  // Moved away.
  block = aligned_alloc(kPage, kBytes);
  memset(block, 9, kBytes);
  char* moved = mremap(block, 16 * kPage, 32 * kPage, MREMAP_MAYMOVE);
  CHECK(moved != MAP_FAILED && moved != block && all(moved, 16 * kPage, 9) &&
            all(moved + 16 * kPage, 16 * kPage, 0),
        "moved");
  CHECK(all(block + 16 * kPage, kBytes - 16 * kPage, 9), "what stays");
  munmap(moved, 32 * kPage);
  free(block);
  free(got);
  return odt_finish();
}
