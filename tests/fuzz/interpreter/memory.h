// Buffers of random programs: on the heap, on the stack, in static data, mapped, and one behind the
// other in the same pages; with bytes around them that nobody may change.
//
// `mem=KIND:OFFSET`: h heap block, g piece of one long heap block, k of the stack, d of static
// data, m pages of its own. The offset moves the buffer away from alignment.
#ifndef MEMORY_H_
#define MEMORY_H_

#include <sys/mman.h>

#include "layout.h"

enum { kGuard = 16, kArenaBytes = 6 << 20, kUntouched = 0xC3 };

typedef struct {
  char *begin, *next, *end;
} Arena;

typedef struct {
  Arena heap, stack, data;
} Arenas;

typedef struct {
  char* region;  // everything that is checked, guards too
  long bytes;
  char* address;  // what MPI is given
  void* block;    // to be freed; NULL: of an arena
  long mapped;    // bytes of a mapping
} Buffer;

static char static_data[kMostStrands][kArenaBytes];

static char* arena_take(Arena* arena, long bytes) {
  if (arena->end - arena->next < bytes) return NULL;
  char* found = arena->next;
  arena->next += bytes;
  return found;
}

static Buffer buffer_of_bytes(const Op* op, Arenas* arenas, const char* mem, long lower,
                              long upper) {
  const long inside = upper - lower, bytes = inside + 2 * kGuard;
  const char kind = mem != NULL ? mem[0] : 'h';
  const long offset = mem != NULL && mem[1] == ':' ? atol(mem + 2) : 0;
  Buffer b = {.bytes = bytes};
  char* start = NULL;
  if (kind == 'g') start = arena_take(&arenas->heap, bytes + offset);
  if (kind == 'k') start = arena_take(&arenas->stack, bytes + offset);
  if (kind == 'd') start = arena_take(&arenas->data, bytes + offset);
  if (kind == 'm') {
    b.mapped = bytes + offset;
    b.block =
        mmap(NULL, (size_t)b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(op, b.block != MAP_FAILED, "no memory to map");
    start = (char*)b.block;
  }
  if (start == NULL) b.block = start = (char*)need_memory((size_t)(bytes + offset));
  b.region = start + offset;
  b.address = b.region + kGuard - lower;
  memset(b.region, kUntouched, (size_t)bytes);
  return b;
}

// A buffer for `elements` basic elements in this layout.
static Buffer buffer_make(const Op* op, Arenas* arenas, const char* mem, const Layout* l,
                          long elements) {
  const long count = layout_count(l, elements);
  if (count == 0) return buffer_of_bytes(op, arenas, mem, 0, 0);
  // The extent of a type that lies partly before its address is positive as well.
  return buffer_of_bytes(op, arenas, mem, l->lower, (count - 1) * l->extent + l->upper);
}

static void buffer_free(Buffer* b) {
  if (b->mapped > 0) {
    munmap(b->block, (size_t)b->mapped);
  } else {
    free(b->block);
  }
  memset(b, 0, sizeof *b);
}

// Begins an image of what the buffer must hold; write to image + (address - region).
static char* image_begin(const Buffer* b) {
  char* image = (char*)need_memory((size_t)b->bytes);
  memset(image, kUntouched, (size_t)b->bytes);
  return image;
}

// Where the image differs from the buffer, relative to the address; LONG_MIN: nowhere.
static long image_difference(const Buffer* b, const char* image) {
  if (memcmp(b->region, image, (size_t)b->bytes) == 0) return INT64_MIN;
  long i = 0;
  while (b->region[i] == image[i]) i++;
  return i - (b->address - b->region);
}

// Demands that the buffer is as in the image, and lets go of the image.
static void image_check(const Op* op, const Buffer* b, char* image, const char* what) {
  const long at = image_difference(b, image);
  if (at != INT64_MIN) {
    const unsigned char is = (unsigned char)b->address[at];
    const unsigned char must = (unsigned char)image[at + (b->address - b->region)];
    fail(op, "%s: byte %ld of %ld is 0x%02x, not 0x%02x%s", what, at, b->bytes - 2 * kGuard, is,
         must, must == kUntouched ? " (must stay untouched)" : "");
  }
  free(image);
}

// What a sender leaves in its buffer once it may be used again.
static void buffer_spoil(Buffer* b) {
  memset(b->region + kGuard, 0x5A, (size_t)(b->bytes - 2 * kGuard));
}

#endif  // MEMORY_H_
