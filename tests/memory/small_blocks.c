// Small blocks of all sizes in several threads: contents, alignment and sizes are right, blocks may
// be freed by another thread, and threads that end leave nothing behind. With --twice the program
// frees a block twice, which must end it.
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "odtest.h"

enum { kSlots = 2000, kRounds = 30, kShort = 2000 };

struct Slot {
  unsigned char* block;
  size_t bytes;
};
static struct Slot slots[kSlots];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void check(const struct Slot* slot) {
  for (size_t i = 0; i < slot->bytes; i += 7) {
    if (slot->block[i] == (unsigned char)(slot->bytes + i)) continue;
    CHECK(0, "a block of %zu bytes has changed at %zu", slot->bytes, i);
    return;
  }
}

static struct Slot fresh(uint64_t value) {
  struct Slot slot;
  // Mostly small, some up to beyond what is shared.
  slot.bytes = value % 11 != 0 ? value % 1200 : value % 70000;
  const int how = (int)(value >> 33) % 4;
  if (how == 0) {
    slot.block = calloc(slot.bytes, 1);
    for (size_t i = 0; i < slot.bytes; i++) CHECK(slot.block[i] == 0, "calloc %zu", slot.bytes);
  } else if (how == 1) {
    slot.block = aligned_alloc(64, slot.bytes);
    CHECK(((uintptr_t)slot.block & 63) == 0, "aligned_alloc %zu", slot.bytes);
  } else {
    slot.block = malloc(slot.bytes);
    if (how == 2) slot.block = realloc(slot.block, slot.bytes = slot.bytes / 2 + 1);
  }
  CHECK(slot.block != NULL && ((uintptr_t)slot.block & 15) == 0, "%zu bytes", slot.bytes);
  CHECK(malloc_usable_size(slot.block) >= slot.bytes, "usable size of %zu", slot.bytes);
  for (size_t i = 0; i < slot.bytes; i++) slot.block[i] = (unsigned char)(slot.bytes + i);
  return slot;
}

static void* churn(void* seed) {
  uint64_t state = 88172645463325252u + (uintptr_t)seed * 7919;
  for (int i = 0; i < kRounds * kSlots; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    struct Slot mine = fresh(state >> 8);
    // Whoever comes by frees what another thread has made.
    pthread_mutex_lock(&lock);
    struct Slot other = slots[state % kSlots];
    slots[state % kSlots] = mine;
    pthread_mutex_unlock(&lock);
    if (other.block != NULL) check(&other);
    free(other.block);
  }
  return NULL;
}

static void* short_life(void* unused) {
  (void)unused;
  void* blocks[7 * 64];
  for (int i = 0; i < 7 * 64; i++) blocks[i] = malloc((size_t)(i / 7) * 16 + 8);
  for (int i = 0; i < 7 * 64; i++) free(blocks[i]);
  void* middle[8];
  for (int i = 0; i < 8; i++) middle[i] = malloc(2000u << i % 4);
  for (int i = 0; i < 8; i++) free(middle[i]);
  return NULL;
}

// The C library may be told to map small blocks by themselves. They hold less than others of their
// size, so they must not be handed out for them.
static void mapped_by_themselves(void) {
  mallopt(M_MMAP_THRESHOLD, 4000);
  for (size_t page = 4096; page <= 60000; page += 4096) {
    free(malloc(page - 16));
    char* block = malloc(page - 8);
    CHECK(malloc_usable_size(block) >= page - 8, "%zu of %zu bytes", malloc_usable_size(block),
          page - 8);
    free(block);
  }
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
}

static long resident_kib(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
  if (file != NULL) fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int argc, char** argv) {
  odt_start("small_blocks", &argc, &argv);
  if (odt_number("twice", 0)) {
    void* volatile block = malloc(100);
    void* volatile again = block;
    free(block);
    free(again);
    odt_finish();
    return 0;
  }
  mapped_by_themselves();
  pthread_t threads[3];
  for (uintptr_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, churn, (void*)i);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < kSlots; i++) {
    if (slots[i].block != NULL) check(&slots[i]);
    free(slots[i].block);
  }
  long before = 0;
  for (int i = 0; i < kShort; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, short_life, NULL);
    pthread_join(thread, NULL);
    if (i == kShort / 10) before = resident_kib();
  }
  // Each left behind some 270 KiB if nobody gave its cache back.
  CHECK(resident_kib() < before + 64 * 1024, "%ld KiB more", resident_kib() - before);
  return odt_finish();
}
