// Where the memory of a program lies: large blocks of every function of the malloc family and
// static data are in the reach file or not, as --heap and --static (yes, no) say; small blocks and
// the stack never are. Everything keeps its contents, and neighbours exchange it.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>

#include "odtest.h"
#include "where.h"

enum { kBytes = 3000000 };

static char zeroed[kBytes];
static int filled[100000] = {1, 2, 3};
static double before_init[50000];

static int want_heap;

static void check_block(char* block, size_t bytes, const char* what) {
  CHECK(block != NULL, "%s", what);
  if (block == NULL) return;
  CHECK(in_reach_file(block, bytes) == want_heap, "%s of %zu bytes", what, bytes);
  CHECK(((uintptr_t)block & 15) == 0, "%s is not aligned", what);
  CHECK(malloc_usable_size(block) >= bytes, "%s: %zu", what, malloc_usable_size(block));
}

static void exchange(void* out, void* in, size_t bytes, int peer, int tag) {
  odt_fill(out, bytes, odt_key(odt.rank, peer, tag, 0));
  MUST(MPI_Sendrecv(out, (int)bytes, MPI_BYTE, peer, tag, in, (int)bytes, MPI_BYTE, peer, tag,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK_DATA(in, bytes, odt_key(peer, odt.rank, tag, 0));
}

static void family(void) {
  char* block = malloc(kBytes);
  check_block(block, kBytes, "malloc");
  odt_fill(block, 1000, 1);
  char* grown = realloc(block, 4 * kBytes);
  check_block(grown, 4 * kBytes, "realloc, larger");
  CHECK_DATA(grown, 1000, 1);
  char* shrunk = realloc(grown, 100);
  CHECK(!in_reach_file(shrunk, 100) && shrunk != NULL, "realloc, small");
  CHECK_DATA(shrunk, 100, 1);
  grown = realloc(shrunk, 200000);
  check_block(grown, 200000, "realloc, large again");
  CHECK_DATA(grown, 100, 1);
  free(grown);
  for (int round = 0; round < 3; round++) {
    unsigned char* cleared = calloc(1000, 300);
    check_block((char*)cleared, 300000, "calloc");
    for (int i = 0; i < 300000; i++) CHECK(cleared[i] == 0, "calloc, byte %d", i);
    memset(cleared, 0xff, 300000);
    free(cleared);
  }
  void* aligned = NULL;
  CHECK(posix_memalign(&aligned, 1 << 16, 100000) == 0, "posix_memalign");
  CHECK(((uintptr_t)aligned & 0xffff) == 0, "posix_memalign: %p", aligned);
  check_block(aligned, 100000, "posix_memalign");
  free(aligned);
  CHECK(posix_memalign(&aligned, 3, 100000) == EINVAL, "posix_memalign with a bad alignment");
  aligned = aligned_alloc(1 << 21, 1 << 21);
  CHECK(((uintptr_t)aligned & 0x1fffff) == 0, "aligned_alloc: %p", aligned);
  check_block(aligned, 1 << 21, "aligned_alloc");
  free(aligned);
  // Beyond what the arena itself is aligned to. A small one may not have it.
  for (size_t alignment = 4 << 20; alignment <= 32 << 20; alignment *= 2) {
    aligned = memalign(alignment, 200000);
    // The C library may have no room for so much where the address space is limited.
    const int refused = aligned == NULL && !want_heap && errno == ENOMEM;
    CHECK(refused || (aligned != NULL && (uintptr_t)aligned % alignment == 0), "memalign: %p",
          aligned);
    free(aligned);
  }
  // No power of two: an error or rounded up, as the C library has it.
  void* library = want_heap ? dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD) : NULL;
  void* (*plain)(size_t, size_t) = NULL;
  if (library != NULL) *(void**)&plain = dlsym(library, "aligned_alloc");
  for (size_t alignment = 0; plain != NULL && alignment < 100; alignment += 24) {
    void* theirs = plain(alignment, 70000);
    aligned = aligned_alloc(alignment, 70000);
    CHECK((aligned == NULL) == (theirs == NULL), "aligned_alloc(%zu)", alignment);
    free(theirs);
    free(aligned);
  }
  aligned = memalign(256, 70000);
  check_block(aligned, 70000, "memalign");
  free(aligned);
  aligned = valloc(70000);
  check_block(aligned, 70000, "valloc");
  free(aligned);
  aligned = reallocarray(NULL, 1000, 100);
  check_block(aligned, 100000, "reallocarray");
  free(aligned);
  CHECK(reallocarray(NULL, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM, "reallocarray, overflow");
  volatile size_t too_much = SIZE_MAX / 2;
  errno = 0;
  CHECK(malloc(too_much) == NULL && errno == ENOMEM, "malloc of too much: %d", errno);
  CHECK(calloc(too_much, 4) == NULL, "calloc of too much");
  char* small = malloc(100);
  CHECK(small != NULL && !in_reach_file(small, 100), "a small block");
  free(small);
  free(NULL);
}

static void* churn(void* seed_pointer) {
  uint64_t state = (uint64_t)(uintptr_t)seed_pointer;
  char* blocks[16] = {0};
  size_t sizes[16] = {0};
  for (int i = 0; i < 3000; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int slot = (int)(state >> 60);
    size_t bytes = 1000 + (state >> 30) % 300000;
    if (blocks[slot] != NULL) {
      size_t last = sizes[slot] - 1;
      CHECK(blocks[slot][0] == (char)slot && blocks[slot][last] == (char)slot, "churn");
      if ((state >> 20 & 3) == 0) {
        blocks[slot] = realloc(blocks[slot], bytes);
        CHECK(blocks[slot][0] == (char)slot, "churn, realloc");
      } else {
        free(blocks[slot]);
        blocks[slot] = malloc(bytes);
      }
    } else {
      blocks[slot] = malloc(bytes);
    }
    sizes[slot] = bytes;
    blocks[slot][0] = blocks[slot][bytes - 1] = (char)slot;
  }
  for (int i = 0; i < 16; i++) free(blocks[i]);
  return NULL;
}

int main(int argc, char** argv) {
  before_init[40000] = 4.5;
  filled[7] = 8;
  char* early = malloc(kBytes);
  odt_fill(early, kBytes, 99);
  odt_start("reachable", &argc, &argv);
  want_heap = strcmp(odt_option("heap", "yes"), "yes") == 0;
  const int want_static = strcmp(odt_option("static", "yes"), "yes") == 0;
  const int peer = odt.rank ^ 1;
  CHECK(before_init[40000] == 4.5 && before_init[0] == 0, "bss");
  CHECK(filled[1] == 2 && filled[7] == 8 && filled[50] == 0, "data");
  CHECK(in_reach_file(zeroed, sizeof zeroed) == want_static, "bss");
  CHECK(in_reach_file(filled, sizeof filled) == want_static, "data");
  CHECK(in_reach_file(before_init, sizeof before_init) == want_static, "bss that was in use");
  check_block(early, kBytes, "malloc before MPI_Init");
  CHECK_DATA(early, kBytes, 99);
  char on_stack[1000];
  CHECK(!in_reach_file(on_stack, sizeof on_stack), "stack");
  family();
  pthread_t threads[4];
  const int thread_count = (int)odt_number("threads", 4);
  for (int i = 0; i < thread_count; i++) {
    pthread_create(&threads[i], NULL, churn, (void*)(uintptr_t)(i + 1));
  }
  for (int i = 0; i < thread_count; i++) pthread_join(threads[i], NULL);
  if (peer < odt.size) {
    char* late = malloc(kBytes);
    exchange(early, late, kBytes, peer, 1);
    exchange(zeroed, late, kBytes, peer, 2);
    exchange(late, zeroed, kBytes, peer, 3);
    exchange(filled, before_init, sizeof filled, peer, 4);
    free(late);
  }
  free(early);
  return odt_finish();
}
