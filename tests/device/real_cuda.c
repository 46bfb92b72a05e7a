// The functions that test programs expect of a stand-in (stand_in.h), over a real CUDA driver and a
// real device: the same programs then run with memory that only a device can reach.
//
// Memory of a device comes in turn from everything that CUDA has: cuMemAlloc, the pool of a stream,
// and physical memory mapped by hand, of which the last two belong to no context. Pinned memory is
// allocated or registered in turn.
//
// The driver is loaded when the program says so (stand_in_start), as a linked CUDA runtime does it.
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))

typedef int Result;
typedef uint64_t Address;

enum Kind { DEVICE, MANAGED, PINNED };
enum Way { ALLOCATED, POOL, MAPPED, UNIFIED, HOST, REGISTERED };
enum { MOST_BLOCKS = 4096, MOST_DEVICES = 16 };
enum { LOCATION_DEVICE = 1, PINNED_ALLOCATION = 1, READ_AND_WRITE = 3, ATTACH_GLOBAL = 1 };

// As the driver's header lays them out.
typedef struct {
  int type;
  int id;
} Location;
typedef struct {
  int type;
  int handle_types;
  Location location;
  void* windows_handle;
  unsigned char flags[8];
} AllocationProperties;
typedef struct {
  Location location;
  int flags;
} Access;

static struct {
  Result (*init)(unsigned);
  Result (*device_count)(int*);
  Result (*retain)(void**, int);
  Result (*set_current)(void*);
  Result (*get_current)(void**);
  Result (*synchronise)(void);
  Result (*alloc)(Address*, size_t);
  Result (*free)(Address);
  Result (*alloc_managed)(Address*, size_t, unsigned);
  Result (*alloc_host)(void**, size_t, unsigned);
  Result (*free_host)(void*);
  Result (*register_host)(void*, size_t, unsigned);
  Result (*unregister_host)(void*);
  Result (*alloc_async)(Address*, size_t, void*);
  Result (*free_async)(Address, void*);
  Result (*granularity)(size_t*, const AllocationProperties*, int);
  Result (*create)(uint64_t*, size_t, const AllocationProperties*, uint64_t);
  Result (*release)(uint64_t);
  Result (*reserve)(Address*, size_t, size_t, Address, uint64_t);
  Result (*unreserve)(Address, size_t);
  Result (*map)(Address, size_t, size_t, uint64_t, uint64_t);
  Result (*unmap)(Address, size_t);
  Result (*set_access)(Address, size_t, const Access*, size_t);
  Result (*copy)(Address, Address, size_t);
} cuda;

typedef struct {
  char* address;  // null: unused
  size_t bytes;
  enum Way way;
  int device;
  uint64_t physical;
} Block;

static Block blocks[MOST_BLOCKS];
static int devices;
static void* contexts[MOST_DEVICES];
static unsigned turn;  // of the ways to allocate
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void must(Result result, const char* what) {
  if (result == 0) return;
  fprintf(stderr, "%s: error %d of the CUDA driver\n", what, result);
  abort();
}

static void look_up(void* library, const char* name, void* function) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "the CUDA driver has no %s\n", name);
    exit(2);
  }
  *(void**)function = found;
}

EXPORT void stand_in_start(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(2);
  }
  look_up(library, "cuInit", &cuda.init);
  look_up(library, "cuDeviceGetCount", &cuda.device_count);
  look_up(library, "cuDevicePrimaryCtxRetain", &cuda.retain);
  look_up(library, "cuCtxSetCurrent", &cuda.set_current);
  look_up(library, "cuCtxGetCurrent", &cuda.get_current);
  look_up(library, "cuCtxSynchronize", &cuda.synchronise);
  look_up(library, "cuMemAlloc_v2", &cuda.alloc);
  look_up(library, "cuMemFree_v2", &cuda.free);
  look_up(library, "cuMemAllocManaged", &cuda.alloc_managed);
  look_up(library, "cuMemHostAlloc", &cuda.alloc_host);
  look_up(library, "cuMemFreeHost", &cuda.free_host);
  look_up(library, "cuMemHostRegister_v2", &cuda.register_host);
  look_up(library, "cuMemHostUnregister", &cuda.unregister_host);
  look_up(library, "cuMemAllocAsync", &cuda.alloc_async);
  look_up(library, "cuMemFreeAsync", &cuda.free_async);
  look_up(library, "cuMemGetAllocationGranularity", &cuda.granularity);
  look_up(library, "cuMemCreate", &cuda.create);
  look_up(library, "cuMemRelease", &cuda.release);
  look_up(library, "cuMemAddressReserve", &cuda.reserve);
  look_up(library, "cuMemAddressFree", &cuda.unreserve);
  look_up(library, "cuMemMap", &cuda.map);
  look_up(library, "cuMemUnmap", &cuda.unmap);
  look_up(library, "cuMemSetAccess", &cuda.set_access);
  look_up(library, "cuMemcpy", &cuda.copy);
  must(cuda.init(0), "cuInit");
  must(cuda.device_count(&devices), "cuDeviceGetCount");
  if (devices > MOST_DEVICES) devices = MOST_DEVICES;
  for (int i = 0; i < devices; ++i) must(cuda.retain(&contexts[i], i), "cuDevicePrimaryCtxRetain");
}

// The program's own context, which must stay what it is. With one device, that one.
EXPORT void stand_in_enter(int device) {
  must(cuda.set_current(contexts[device % devices]), "cuCtxSetCurrent");
}
EXPORT void stand_in_check(int device) {
  void* current = NULL;
  must(cuda.get_current(&current), "cuCtxGetCurrent");
  if (current != contexts[device % devices]) {
    fprintf(stderr, "the context was changed\n");
    abort();
  }
}

static void map_by_hand(Block* block) {
  AllocationProperties properties = {.type = PINNED_ALLOCATION,
                                     .location = {LOCATION_DEVICE, block->device}};
  size_t unit = 0;
  must(cuda.granularity(&unit, &properties, 0), "cuMemGetAllocationGranularity");
  block->bytes = (block->bytes + unit - 1) / unit * unit;
  Address address = 0;
  must(cuda.create(&block->physical, block->bytes, &properties, 0), "cuMemCreate");
  must(cuda.reserve(&address, block->bytes, 0, 0, 0), "cuMemAddressReserve");
  must(cuda.map(address, block->bytes, 0, block->physical, 0), "cuMemMap");
  Access access = {properties.location, READ_AND_WRITE};
  must(cuda.set_access(address, block->bytes, &access, 1), "cuMemSetAccess");
  block->address = (char*)(uintptr_t)address;
}

static void allocate(Block* block) {
  Address address = 0;
  void* host = NULL;
  switch (block->way) {
    case ALLOCATED:
      must(cuda.alloc(&address, block->bytes), "cuMemAlloc");
      break;
    case POOL:
      must(cuda.alloc_async(&address, block->bytes, NULL), "cuMemAllocAsync");
      must(cuda.synchronise(), "cuCtxSynchronize");
      break;
    case MAPPED:
      map_by_hand(block);
      return;
    case UNIFIED:
      must(cuda.alloc_managed(&address, block->bytes, ATTACH_GLOBAL), "cuMemAllocManaged");
      break;
    case HOST:
      must(cuda.alloc_host(&host, block->bytes, 0), "cuMemHostAlloc");
      address = (uintptr_t)host;
      break;
    case REGISTERED:
      block->bytes = (block->bytes + 4095) / 4096 * 4096;
      host = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      must(cuda.register_host(host, block->bytes, 0), "cuMemHostRegister");
      address = (uintptr_t)host;
      break;
  }
  block->address = (char*)(uintptr_t)address;
}

EXPORT void* stand_in_alloc(size_t bytes, int kind) {
  void* before = NULL;
  must(cuda.get_current(&before), "cuCtxGetCurrent");
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < MOST_BLOCKS && blocks[i].address != NULL) ++i;
  if (i == MOST_BLOCKS) {
    fprintf(stderr, "too many blocks\n");
    abort();
  }
  Block* block = &blocks[i];
  ++turn;
  block->bytes = bytes == 0 ? 1 : bytes;
  block->device = (int)(turn % (unsigned)devices);
  block->way = kind == DEVICE ? (enum Way)(turn % 3) : kind == MANAGED ? UNIFIED : HOST + turn % 2;
  must(cuda.set_current(contexts[block->device]), "cuCtxSetCurrent");
  allocate(block);
  char* address = block->address;
  pthread_mutex_unlock(&mutex);
  must(cuda.set_current(before), "cuCtxSetCurrent");
  return address;
}

EXPORT void stand_in_free(void* address) {
  void* before = NULL;
  must(cuda.get_current(&before), "cuCtxGetCurrent");
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < MOST_BLOCKS && blocks[i].address != address) ++i;
  if (i == MOST_BLOCKS) {
    fprintf(stderr, "free of what is no block\n");
    abort();
  }
  Block* block = &blocks[i];
  const Address at = (uintptr_t)address;
  must(cuda.set_current(contexts[block->device]), "cuCtxSetCurrent");
  switch (block->way) {
    case ALLOCATED:
    case UNIFIED:
      must(cuda.free(at), "cuMemFree");
      break;
    case POOL:
      must(cuda.free_async(at, NULL), "cuMemFreeAsync");
      must(cuda.synchronise(), "cuCtxSynchronize");
      break;
    case MAPPED:
      must(cuda.unmap(at, block->bytes), "cuMemUnmap");
      must(cuda.unreserve(at, block->bytes), "cuMemAddressFree");
      must(cuda.release(block->physical), "cuMemRelease");
      break;
    case HOST:
      must(cuda.free_host(address), "cuMemFreeHost");
      break;
    case REGISTERED:
      must(cuda.unregister_host(address), "cuMemHostUnregister");
      munmap(address, block->bytes);
      break;
  }
  block->address = NULL;
  pthread_mutex_unlock(&mutex);
  must(cuda.set_current(before), "cuCtxSetCurrent");
}

// A copy may return before the device has it; Overdrive's streams wait for no other stream.
static void copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  must(cuda.copy((uintptr_t)to, (uintptr_t)from, bytes), "cuMemcpy");
  must(cuda.synchronise(), "cuCtxSynchronize");
}
EXPORT void stand_in_write(void* to, const void* from, size_t bytes) { copy(to, from, bytes); }
EXPORT void stand_in_read(void* to, const void* from, size_t bytes) { copy(to, from, bytes); }

// Nobody counts them here.
EXPORT long stand_in_questions(void) { return 0; }
