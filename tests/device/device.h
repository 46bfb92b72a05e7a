// Buffers of test programs, in host memory of every kind or on a "device" (stand_in.h).
//
// --library=PATH is the stand-in; --when=before or after MPI_Init says when it is loaded.
#ifndef TESTS_DEVICE_DEVICE_H_
#define TESTS_DEVICE_DEVICE_H_

#include <dlfcn.h>
#include <sys/mman.h>

#include "odtest.h"

// The first three as the stand-in numbers them. MAPPED is memory that nobody knows anything about.
enum Place { DEVICE, MANAGED, PINNED, MAPPED, HEAP, PLACES };
static const char* const kPlaceNames[] = {"device", "managed", "pinned", "mapped", "heap"};

static struct {
  void (*start)(void);
  void* (*alloc)(size_t bytes, int kind);
  void (*free)(void* address);
  void (*write)(void* to, const void* from, size_t bytes);
  void (*read)(void* to, const void* from, size_t bytes);
  void (*enter)(int device);
  void (*check)(int device);
  long (*questions)(void);
} runtime;

static void* runtime_function(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  return found;
}

static void load_runtime(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  *(void**)&runtime.start = runtime_function(library, "stand_in_start");
  *(void**)&runtime.alloc = runtime_function(library, "stand_in_alloc");
  *(void**)&runtime.free = runtime_function(library, "stand_in_free");
  *(void**)&runtime.write = runtime_function(library, "stand_in_write");
  *(void**)&runtime.read = runtime_function(library, "stand_in_read");
  *(void**)&runtime.enter = runtime_function(library, "stand_in_enter");
  *(void**)&runtime.check = runtime_function(library, "stand_in_check");
  *(void**)&runtime.questions = runtime_function(library, "stand_in_questions");
  runtime.start();
  runtime.enter(1);
}

static void device_start(const char* name, int* argc, char*** argv, int threads) {
  odt.argc = *argc;
  odt.argv = *argv;
  const char* path = odt_option("library", NULL);
  const int before = strcmp(odt_option("when", "before"), "before") == 0;
  if (path != NULL && before) load_runtime(path);
  odt_start_as(name, argc, argv, threads);
  // The first messages tell Overdrive that there is no runtime.
  int token = odt.rank;
  MUST(MPI_Bcast(&token, 1, MPI_INT, 0, MPI_COMM_WORLD));
  if (path != NULL && !before) load_runtime(path);
}

__attribute__((unused)) static int device_finish(void) {
  runtime.check(1);
  return odt_finish();
}

// --- buffers
typedef struct {
  enum Place place;
  char* data;
  size_t bytes;
} Buffer;

__attribute__((unused)) static Buffer buffer_make(enum Place place, size_t bytes) {
  Buffer buffer = {place, NULL, bytes};
  if (place == HEAP) {
    buffer.data = malloc(bytes + 1);
  } else if (place == MAPPED) {
    buffer.data = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  } else {
    buffer.data = runtime.alloc(bytes + 1, place);
  }
  return buffer;
}
__attribute__((unused)) static void buffer_drop(Buffer* buffer) {
  if (buffer->place == HEAP) {
    free(buffer->data);
  } else if (buffer->place == MAPPED) {
    munmap(buffer->data, buffer->bytes + 1);
  } else {
    runtime.free(buffer->data);
  }
  buffer->data = NULL;
}
// Everything from the beginning.
__attribute__((unused)) static void buffer_put(const Buffer* buffer, const void* from,
                                               size_t bytes) {
  if (buffer->place <= PINNED) {
    runtime.write(buffer->data, from, bytes);
  } else {
    memcpy(buffer->data, from, bytes);
  }
}
__attribute__((unused)) static void buffer_get(const Buffer* buffer, void* to, size_t bytes) {
  if (buffer->place <= PINNED) {
    runtime.read(to, buffer->data, bytes);
  } else {
    memcpy(to, buffer->data, bytes);
  }
}

#endif  // TESTS_DEVICE_DEVICE_H_
