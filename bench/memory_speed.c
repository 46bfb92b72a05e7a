// How fast a program computes in its own memory: run once as it is and once with Overdrive's heap.
//
// Prints one line per figure: name, value, unit; larger is better. Needs no MPI: the heap serves
// every process that looks like a rank. memory_speed.py runs and compares.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// Whether the figure is among those asked for (--only=part,part).
static const char* only = NULL;
static int wanted(const char* name) {
  if (only == NULL) return 1;
  for (const char* part = only; *part != '\0';) {
    const size_t length = strcspn(part, ",");
    if (length > 0 && strncmp(name, part, length) == 0) return 1;
    part += length + (part[length] == ',');
  }
  return 0;
}

static void report(const char* name, double value, const char* unit) {
  printf("%s %.6g %s\n", name, value, unit);
  fflush(stdout);
}

static uint64_t next_random(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

// a = b + s * c over three arrays of their own.
static void triad(const char* name, size_t bytes, int rounds) {
  if (!wanted(name)) return;
  const size_t count = bytes / sizeof(double);
  double* a = malloc(bytes);
  double* b = malloc(bytes);
  double* c = malloc(bytes);
  for (size_t i = 0; i < count; i++) {
    a[i] = 0;
    b[i] = 1;
    c[i] = 2;
  }
  const int inner = bytes < (4u << 20) ? (int)((16u << 20) / bytes) : 1;
  double best = 1e30;
  for (int round = 0; round < rounds; round++) {
    const double begin = seconds();
    for (int i = 0; i < inner; i++) {
      const double scale = 3.0 + i;
      for (size_t k = 0; k < count; k++) a[k] = b[k] + scale * c[k];
      __asm__ volatile("" : : "r"(a) : "memory");
    }
    const double time = (seconds() - begin) / inner;
    if (time < best) best = time;
  }
  report(name, 3e-9 * (double)bytes / best, "GB/s");
  free(a);
  free(b);
  free(c);
}

// Random updates of a table, as HPC Challenge's RandomAccess.
static void updates(const char* name, size_t bytes, int rounds) {
  if (!wanted(name)) return;
  const size_t mask = bytes / sizeof(uint64_t) - 1;
  uint64_t* table = malloc(bytes);
  for (size_t i = 0; i <= mask; i++) table[i] = i;
  double best = 1e30;
  const int count = 2000000;
  uint64_t state = 88172645463325252u;
  for (int round = 0; round < rounds; round++) {
    const double begin = seconds();
    for (int i = 0; i < count; i++) {
      const uint64_t value = next_random(&state);
      table[value & mask] ^= value;
    }
    const double time = seconds() - begin;
    if (time < best) best = time;
  }
  report(name, 1e-6 * count / best, "Mupdates/s");
  free(table);
}

enum { kSlots = 1024 };

struct Mix {
  size_t least;
  size_t most;
  int count;
};

static void* mix_body(void* argument) {
  const struct Mix* mix = argument;
  void* slots[kSlots] = {0};
  uint64_t state = 1234567 + (uintptr_t)argument;
  for (int i = 0; i < mix->count; i++) {
    const uint64_t value = next_random(&state);
    const int slot = (int)(value % kSlots);
    free(slots[slot]);
    char* block = malloc(mix->least + (value >> 20) % (mix->most - mix->least));
    block[0] = 1;
    slots[slot] = block;
  }
  for (int i = 0; i < kSlots; i++) free(slots[i]);
  return NULL;
}

static void mix(const char* name, size_t least, size_t most, int count, int threads) {
  if (!wanted(name)) return;
  struct Mix body = {least, most, count};
  double best = 1e30;
  for (int round = 0; round < 7; round++) {
    const double begin = seconds();
    pthread_t ids[8];
    for (int i = 1; i < threads; i++) pthread_create(&ids[i], NULL, mix_body, &body);
    mix_body(&body);
    for (int i = 1; i < threads; i++) pthread_join(ids[i], NULL);
    const double time = seconds() - begin;
    if (time < best) best = time;
  }
  report(name, 1e-6 * count * threads / best, "Mpairs/s");
}

// The same block again and again.
static void pairs(const char* name, size_t bytes, int count) {
  if (!wanted(name)) return;
  double best = 1e30;
  for (int round = 0; round < 15; round++) {
    const double begin = seconds();
    for (int i = 0; i < count; i++) {
      void* volatile block = malloc(bytes);
      free(block);
    }
    const double time = seconds() - begin;
    if (time < best) best = time;
  }
  report(name, 1e-6 * count / best, "Mpairs/s");
}

// A block that is written once and given back: what work arrays in a subroutine do.
static void work_arrays(const char* name, size_t bytes, int count) {
  if (!wanted(name)) return;
  double best = 1e30;
  for (int round = 0; round < 3; round++) {
    const double begin = seconds();
    for (int i = 0; i < count; i++) {
      char* block = malloc(bytes);
      memset(block, i, bytes);
      __asm__ volatile("" : : "r"(block) : "memory");
      free(block);
    }
    const double time = seconds() - begin;
    if (time < best) best = time;
  }
  report(name, 1e-9 * (double)bytes * count / best, "GB/s");
}

// Memory that the process has never had, from malloc on.
static void first_touch(const char* name, size_t bytes) {
  if (!wanted(name)) return;
  const double begin = seconds();
  char* block = malloc(bytes);
  memset(block, 1, bytes);
  report(name, 1e-9 * (double)bytes / (seconds() - begin), "GB/s");
  // Kept, so that the next figure gets fresh memory as well.
}

// The same in many blocks.
static void first_touches(const char* name, size_t bytes, int count) {
  if (!wanted(name)) return;
  const double begin = seconds();
  for (int i = 0; i < count; i++) {
    char* block = malloc(bytes);
    memset(block, 1, bytes);
    __asm__ volatile("" : : "r"(block) : "memory");
  }
  report(name, 1e-9 * (double)bytes * count / (seconds() - begin), "GB/s");
}

static void growing(const char* name, size_t most) {
  if (!wanted(name)) return;
  double best = 1e30;
  for (int round = 0; round < 3; round++) {
    const double begin = seconds();
    char* block = NULL;
    size_t had = 0;
    for (size_t bytes = 4096; bytes <= most; bytes += bytes / 2) {
      block = realloc(block, bytes);
      memset(block + had, 1, bytes - had);
      had = bytes;
    }
    free(block);
    const double time = seconds() - begin;
    if (time < best) best = time;
  }
  report(name, 1e-9 * (double)most / best, "GB/s");
}

// A virtual machine may have given memory that lay unused back to its host, which takes
// milliseconds per huge page to return it: whoever comes first would pay for everybody. Touched and
// freed here.
static void warm(size_t bytes) {
  char* memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  madvise(memory, bytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < bytes; i += 4096) memory[i] = 1;
  munmap(memory, bytes);
}

int main(int argc, char** argv) {
  int quick = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--quick") == 0) quick = 1;
    if (strncmp(argv[i], "--only=", 7) == 0) only = argv[i] + 7;
    if (strncmp(argv[i], "--warm=", 7) == 0) {
      warm((size_t)atol(argv[i] + 7) << 20);
      return 0;
    }
  }
  const size_t large = quick ? 16u << 20 : 128u << 20;
  pairs("malloc_32B", 32, 1000000);
  pairs("malloc_1KiB", 1024, 1000000);
  pairs("malloc_4KiB", 4096, 1000000);
  pairs("malloc_16KiB", 16384, 1000000);
  pairs("malloc_64KiB", 65536, 500000);
  pairs("malloc_1MiB", 1 << 20, 500000);
  mix("mix_16B_1KiB", 16, 1024, 1000000, 1);
  mix("mix_16B_64KiB", 16, 65536, 200000, 1);
  mix("mix_32KiB_1MiB", 32768, 1 << 20, 20000, 1);
  mix("mix_16B_1KiB_2_threads", 16, 1024, 500000, 2);
  mix("mix_32KiB_1MiB_2_threads", 32768, 1 << 20, 20000, 2);
  first_touch("first_touch_64MiB", 64u << 20);
  first_touches("first_touch_200KiB", 200000, 320);
  work_arrays("work_array_1MiB", 1 << 20, 200);
  work_arrays("work_array_64MiB", 64u << 20, 4);
  growing("realloc_growing", 64u << 20);
  triad("triad_48KiB", 48 << 10, 40);
  triad("triad_1MiB", 1 << 20, 40);
  triad("triad_large", large, 8);
  updates("updates_1MiB", 1 << 20, 5);
  updates("updates_large", large, 3);
  return 0;
}
