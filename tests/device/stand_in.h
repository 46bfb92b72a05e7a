// A device runtime that needs no device: CUDA's driver library, HIP's library or Level Zero's
// loader, with as much of each as Overdrive and these tests use. Included by one source for each of
// them, which says by STAND_IN_CUDA, _ROCM or _ZE what it wants to be.
//
// Memory of a "device" is mapped without any access where the program sees it, and a second time
// elsewhere for this library alone. Whoever touches it otherwise is ended by a segmentation fault,
// as on a real machine. The library is stricter than the real ones where a mistake would only show
// now and then: copies are made when the stream is synchronised and not before, a stream belongs to
// the device whose memory it copies, and the calling thread's device or context must be left as it
// was (stand_in_check).
//
// Test programs use the stand_in_* functions, which are the same in all three.
#ifndef TESTS_DEVICE_STAND_IN_H_
#define TESTS_DEVICE_STAND_IN_H_

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum Kind { DEVICE, MANAGED, PINNED };
enum { MOST_BLOCKS = 4096, DEVICES = 2, HOST = -1 };

typedef struct {
  char* address;  // of the program; null: unused
  char* alias;    // of ours
  size_t bytes;
  enum Kind kind;
  int device;
} Block;

static Block blocks[MOST_BLOCKS];
static int highest;  // one above the last block that was ever used
static int next_device;
static int started;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static __thread long questions;  // that the calling thread asked about addresses

static void fail(const char* what) {
  fprintf(stderr, "stand-in runtime: %s\n", what);
  abort();
}

// --- what test programs use ----------------------------------------------------------------------

EXPORT void stand_in_start(void) { started = 1; }

EXPORT void* stand_in_alloc(size_t bytes, int kind) {
  size_t rounded = (bytes + 4096) / 4096 * 4096;
  int fd = memfd_create("stand-in", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)rounded) != 0) fail("no memory");
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < MOST_BLOCKS && blocks[i].address != NULL) ++i;
  if (i == MOST_BLOCKS) fail("too many blocks");
  int access = kind == DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE;
  blocks[i].alias = mmap(NULL, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  blocks[i].bytes = rounded;
  blocks[i].kind = (enum Kind)kind;
  blocks[i].device = kind == DEVICE ? next_device++ % DEVICES : 0;
  blocks[i].address = mmap(NULL, rounded, access, MAP_SHARED, fd, 0);
  if (i >= highest) highest = i + 1;
  pthread_mutex_unlock(&mutex);
  close(fd);
  return blocks[i].address;
}

static Block* find(const void* address) {
  for (int i = 0; i < highest; ++i) {
    const char* start = blocks[i].address;
    if (start != NULL && (const char*)address >= start &&
        (const char*)address < start + blocks[i].bytes) {
      return &blocks[i];
    }
  }
  return NULL;
}

EXPORT void stand_in_free(void* address) {
  pthread_mutex_lock(&mutex);
  Block* block = find(address);
  if (block == NULL || block->address != address) fail("free of what is no block");
  munmap(block->address, block->bytes);
  munmap(block->alias, block->bytes);
  block->address = NULL;
  pthread_mutex_unlock(&mutex);
}

// What the program does with its device.
static char* reach(const void* address) {
  Block* block = find(address);
  return block != NULL ? block->alias + ((const char*)address - block->address) : (char*)address;
}
EXPORT void stand_in_write(void* to, const void* from, size_t bytes) {
  pthread_mutex_lock(&mutex);
  memcpy(reach(to), from, bytes);
  pthread_mutex_unlock(&mutex);
}
EXPORT void stand_in_read(void* to, const void* from, size_t bytes) {
  pthread_mutex_lock(&mutex);
  memcpy(to, reach(from), bytes);
  pthread_mutex_unlock(&mutex);
}

EXPORT long stand_in_questions(void) { return questions; }

// --- copies --------------------------------------------------------------------------------------

typedef struct {
  char* to;
  char* from;
  size_t bytes;
} Copy;

typedef struct {
  int device;
  Copy* copies;
  int count;
  int room;
} Stream;

// Whether a stream of `device` may touch the bytes; -1 host memory only.
static int device_of(const void* address, size_t bytes) {
  Block* block = find(address);
  if (block == NULL) return HOST;
  if ((const char*)address + bytes > block->address + block->bytes) fail("a copy leaves its block");
  return block->kind == DEVICE ? block->device : HOST;
}

static int enqueue(Stream* stream, void* to, const void* from, size_t bytes) {
  int one = device_of(to, bytes), other = device_of(from, bytes);
  if ((one != HOST && one != stream->device) || (other != HOST && other != stream->device))
    return 1;
  if (stream->count == stream->room) {
    stream->room = stream->room == 0 ? 64 : 2 * stream->room;
    stream->copies = realloc(stream->copies, (size_t)stream->room * sizeof(Copy));
  }
  stream->copies[stream->count++] = (Copy){to, (char*)from, bytes};
  return 0;
}

static void synchronise(Stream* stream) {
  for (int i = 0; i < stream->count; ++i) {
    memcpy(reach(stream->copies[i].to), reach(stream->copies[i].from), stream->copies[i].bytes);
  }
  stream->count = 0;
}

static Stream* new_stream(int device) {
  Stream* stream = calloc(1, sizeof *stream);
  stream->device = device;
  return stream;
}

#ifdef STAND_IN_CUDA

enum { NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, INVALID_VALUE = 1, INVALID_HANDLE = 400 };
static int context_marks[DEVICES];  // a context is the address of its device's mark
static __thread void* context_stack[16];
static __thread int depth;

static int context_device(void) {
  return depth == 0 ? -1 : (int)((int*)context_stack[depth - 1] - context_marks);
}

// The program's own context must be what it was.
EXPORT void stand_in_enter(int device) {
  depth = 1;
  context_stack[0] = &context_marks[device];
}
EXPORT void stand_in_check(int device) {
  if (depth != 1 || context_stack[0] != &context_marks[device]) fail("the context was changed");
}

EXPORT int cuPointerGetAttributes(unsigned count, int* names, void** values, uint64_t pointer) {
  ++questions;
  if (!started) return NOT_INITIALIZED;
  pthread_mutex_lock(&mutex);
  Block* block = find((void*)pointer);
  for (unsigned i = 0; i < count; ++i) {
    switch (names[i]) {
      case 1:  // context; memory of pools has none
        *(void**)values[i] =
            block != NULL && block->device == 0 ? (void*)&context_marks[block->device] : NULL;
        break;
      case 2:  // memory type: managed memory is the device's as well
        *(unsigned*)values[i] = block == NULL ? 0 : block->kind == PINNED ? 1 : 2;
        break;
      case 8:
        *(unsigned*)values[i] = block != NULL && block->kind == MANAGED;
        break;
      case 9:
        *(int*)values[i] = block == NULL ? -2 : block->device;
        break;
      default:
        fail("unknown attribute");
    }
  }
  pthread_mutex_unlock(&mutex);
  return 0;
}
EXPORT int cuCtxPushCurrent_v2(void* context) {
  if (context == NULL || depth == 16) return INVALID_CONTEXT;
  context_stack[depth++] = context;
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void** context) {
  if (depth == 0) return INVALID_CONTEXT;
  *context = context_stack[--depth];
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (device < 0 || device >= DEVICES) return INVALID_VALUE;
  *context = &context_marks[device];
  return 0;
}
EXPORT int cuStreamCreate(void** stream, unsigned flags) {
  if (flags != 1) return INVALID_VALUE;
  if (depth == 0) return INVALID_CONTEXT;
  *stream = new_stream(context_device());
  return 0;
}
static int usable(Stream* stream) { return depth != 0 && stream->device == context_device(); }
EXPORT int cuStreamSynchronize(void* stream) {
  if (!usable(stream)) return INVALID_HANDLE;
  pthread_mutex_lock(&mutex);
  synchronise(stream);
  pthread_mutex_unlock(&mutex);
  return 0;
}
EXPORT int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  if (!usable(stream)) return INVALID_HANDLE;
  pthread_mutex_lock(&mutex);
  int error = enqueue(stream, (void*)to, (void*)from, bytes) ? INVALID_VALUE : 0;
  pthread_mutex_unlock(&mutex);
  return error;
}

typedef struct {
  size_t x, y;
  unsigned type;
  const void* host;
  uint64_t device;
  void* array;
  size_t pitch;
} Side;
typedef struct {
  Side source, target;
  size_t width, height;
} Copy2d;

EXPORT int cuMemcpy2DAsync_v2(const Copy2d* copy, void* stream) {
  if (!usable(stream) || copy->width > copy->source.pitch || copy->width > copy->target.pitch) {
    return INVALID_VALUE;
  }
  char* to = copy->target.type == 1 ? (char*)copy->target.host : (char*)copy->target.device;
  char* from = copy->source.type == 1 ? (char*)copy->source.host : (char*)copy->source.device;
  int error = 0;
  pthread_mutex_lock(&mutex);
  for (size_t i = 0; i < copy->height && error == 0; ++i) {
    error =
        enqueue(stream, to + i * copy->target.pitch, from + i * copy->source.pitch, copy->width);
  }
  pthread_mutex_unlock(&mutex);
  return error ? INVALID_VALUE : 0;
}

#elif defined(STAND_IN_ROCM)

static __thread int current_device;  // of the calling thread
static __thread int last_error;

EXPORT void stand_in_enter(int device) { current_device = device; }
EXPORT void stand_in_check(int device) {
  if (current_device != device) fail("the device was changed");
  if (last_error != 0) fail("an error was left for the program");
}

typedef struct {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
  int is_managed;
  unsigned flags;
} Attributes;

static int version(void) {
  const char* text = getenv("STAND_IN_VERSION");
  return text != NULL ? atoi(text) : 60000000;
}
static int note(int error) {
  if (error != 0) last_error = error;
  return error;
}
EXPORT int hipRuntimeGetVersion(int* number) {
  *number = version();
  return 0;
}
EXPORT int hipPeekAtLastError(void) { return last_error; }
EXPORT int hipGetLastError(void) {
  int error = last_error;
  last_error = 0;
  return error;
}
EXPORT int hipPointerGetAttributes(Attributes* attributes, const void* address) {
  ++questions;
  const int six = version() >= 60000000;
  pthread_mutex_lock(&mutex);
  Block* block = find(address);
  if (block != NULL) {
    const int type = block->kind == PINNED ? 0 : 1;
    *attributes = (Attributes){.type = type + six,
                               .device = block->device,
                               .device_pointer = (void*)address,
                               .is_managed = block->kind == MANAGED};
  } else if (six) {
    *attributes = (Attributes){.type = 0, .device = -1};
  }
  pthread_mutex_unlock(&mutex);
  return note(block == NULL && !six ? 1 : 0);
}
EXPORT int hipGetDevice(int* device) {
  *device = current_device;
  return 0;
}
EXPORT int hipSetDevice(int device) {
  if (device < 0 || device >= DEVICES) return note(101);
  current_device = device;
  return 0;
}
EXPORT int hipStreamCreateWithFlags(void** stream, unsigned flags) {
  if (flags != 1) return note(1);
  *stream = new_stream(current_device);
  return 0;
}
EXPORT int hipStreamSynchronize(void* stream) {
  pthread_mutex_lock(&mutex);
  synchronise(stream);
  pthread_mutex_unlock(&mutex);
  return 0;
}
EXPORT int hipMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void* stream) {
  pthread_mutex_lock(&mutex);
  int error = kind != 4 || enqueue(stream, to, from, bytes);
  pthread_mutex_unlock(&mutex);
  return note(error);
}
EXPORT int hipMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                            size_t width, size_t height, int kind, void* stream) {
  if (width > to_pitch || width > from_pitch || kind != 4) return note(1);
  int error = 0;
  pthread_mutex_lock(&mutex);
  for (size_t i = 0; i < height && error == 0; ++i) {
    error = enqueue(stream, (char*)to + i * to_pitch, (const char*)from + i * from_pitch, width);
  }
  pthread_mutex_unlock(&mutex);
  return note(error);
}

#elif defined(STAND_IN_ZE)

enum { UNINITIALIZED = 0x78000001, INVALID_ARGUMENT = 0x78000004 };
static int driver_mark, context_mark, device_marks[DEVICES];

// The calling thread has no state of its own.
EXPORT void stand_in_enter(int device) { (void)device; }
EXPORT void stand_in_check(int device) { (void)device; }

typedef struct {
  unsigned stype;
  void* next;
  unsigned type;
  uint64_t id;
  uint64_t page_bytes;
} Properties;
typedef struct {
  unsigned stype;
  const void* next;
  unsigned ordinal, index, flags, mode, priority;
} QueueDescription;

EXPORT unsigned zeDriverGet(uint32_t* count, void** drivers) {
  if (!started) return UNINITIALIZED;
  if (*count != 0 && drivers != NULL) drivers[0] = &driver_mark;
  *count = 1;
  return 0;
}
EXPORT unsigned zeContextCreate(void* driver, const unsigned* description, void** context) {
  if (driver != &driver_mark || description[0] != 0xd) return INVALID_ARGUMENT;
  *context = &context_mark;
  return 0;
}
EXPORT unsigned zeMemGetAllocProperties(void* context, const void* address, Properties* properties,
                                        void** device) {
  ++questions;
  if (context != &context_mark || properties->stype != 0x17) return INVALID_ARGUMENT;
  pthread_mutex_lock(&mutex);
  Block* block = find(address);
  properties->type = block == NULL ? 0 : block->kind == DEVICE ? 2 : block->kind == MANAGED ? 3 : 1;
  *device = block != NULL ? &device_marks[block->device] : NULL;
  pthread_mutex_unlock(&mutex);
  return 0;
}
EXPORT unsigned zeCommandListCreateImmediate(void* context, void* device,
                                             const QueueDescription* description, void** list) {
  if (context != &context_mark || description->stype != 0xe || description->mode != 1) {
    return INVALID_ARGUMENT;
  }
  *list = new_stream((int)((int*)device - device_marks));
  return 0;
}
EXPORT unsigned zeCommandListAppendMemoryCopy(void* list, void* to, const void* from, size_t bytes,
                                              void* event, uint32_t waits, void** events) {
  if (event != NULL || waits != 0 || events != NULL) return INVALID_ARGUMENT;
  pthread_mutex_lock(&mutex);
  int error = enqueue(list, to, from, bytes);
  if (!error) synchronise(list);
  pthread_mutex_unlock(&mutex);
  return error ? INVALID_ARGUMENT : 0;
}

#else
#error "which runtime?"
#endif

#endif  // TESTS_DEVICE_STAND_IN_H_
