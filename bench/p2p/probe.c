// Clock, pinning, start barrier and cache-line probe of the benchmark programs, over one small
// shared file, without MPI.
//
// The barrier counts arrivals monotonically: the n-th barrier is open when ranks*n have arrived, so
// nothing is ever reset. The probe exchanges monotone numbers for the same reason.
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
  kMaxRanks = 256,
  kBatches = 9,
  kRoundTripsPerBatch =
      48,  // ~5 us near, ~20 us far: short against a sample, long against the clock's ~20 ns
  kSpinsBeforeYield = 20000,
  kSpinsBeforeSleep = 16,
};

typedef struct {
  _Alignas(128) _Atomic uint64_t arrived;
  _Alignas(128) _Atomic uint64_t ball;
  _Alignas(128) _Atomic uint64_t ping;
  _Alignas(128) _Atomic uint64_t pong;
  _Alignas(128) _Atomic uint64_t parked;
  _Alignas(128) _Atomic uint64_t probes_done;
  _Alignas(128) double shared_value;
  double values[kMaxRanks];
} Page;

static Page* page;
static const od_probe_messages* messages;  // NULL where the page is shared
static int my_rank, rank_count, oversubscribed;
static uint64_t barriers, probes, ball_base, pair_base;

double od_probe_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double od_probe_waited_ns(void) {
  static int fd = -2;
  char text[128];
  unsigned long long ran, waited;
  if (fd == -2) fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  ssize_t length = fd >= 0 ? pread(fd, text, sizeof(text) - 1, 0) : -1;
  if (length <= 0) return 0;
  text[length] = '\0';
  return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? (double)waited : 0;
}

int od_probe_create(const char* folder, char* path, size_t capacity) {
  if (folder == NULL) folder = getenv("TMPDIR");
  int length = snprintf(path, capacity, "%s/od_probe_XXXXXX", folder != NULL ? folder : "/tmp");
  if (length < 0 || (size_t)length >= capacity) return -1;
  int fd = mkstemp(path);
  if (fd < 0) return -1;
  int failed = ftruncate(fd, sizeof(Page));
  close(fd);
  return failed;
}

int od_probe_attach(const char* path, int rank, int ranks) {
  if (ranks > kMaxRanks) return -1;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  page = mmap(NULL, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (page == MAP_FAILED) return -1;
  my_rank = rank;
  rank_count = ranks;
  oversubscribed = ranks > (int)sysconf(_SC_NPROCESSORS_ONLN);
  return 0;
}

void od_probe_unlink(const char* path) { unlink(path); }

void od_probe_use_messages(const od_probe_messages* used, int rank, int ranks) {
  messages = used;
  my_rank = rank;
  rank_count = ranks;
}

// The n-th core this process may use, whatever the launcher has bound it to; -1 if there are fewer.
static int NthCore(int n) {
  cpu_set_t before, all;
  if (sched_getaffinity(0, sizeof(before), &before) != 0) return -1;
  memset(&all, 0xff, sizeof(all));
  // The kernel cuts the full mask down to what cgroups permit; that, and not the launcher's mask,
  // is the choice.
  if (sched_setaffinity(0, sizeof(all), &all) != 0) return -1;
  sched_getaffinity(0, sizeof(all), &all);
  sched_setaffinity(0, sizeof(before), &before);
  for (size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &all) && n-- == 0) return (int)core;
  }
  return -1;
}

static int PinTo(int core) {
  cpu_set_t one;
  if (core < 0) return -1;
  CPU_ZERO(&one);
  CPU_SET((size_t)core, &one);
  return sched_setaffinity(0, sizeof(one), &one);
}

int od_probe_pin(int rank, int ranks) {
  if (NthCore(ranks - 1) < 0) {
    oversubscribed = 1;
    return 0;
  }
  oversubscribed = 0;
  return PinTo(NthCore(rank)) == 0;
}

void od_probe_apply_niceness(void) {
  int niceness = getpriority(PRIO_PROCESS, 0);
  if (niceness == 0) return;
  FILE* file = fopen("/proc/self/autogroup", "w");
  if (file == NULL) return;
  fprintf(file, "%d", niceness);
  fclose(file);
}

static void Relax(unsigned* spins) {
  if (oversubscribed) {
    // Where every rank has a session of its own a yield gives the core to none of the others; a
    // sleep does.
    if (++*spins % kSpinsBeforeSleep == 0) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
  } else if (++*spins % kSpinsBeforeYield == 0) {
    sched_yield();
  }
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Longer than ranks are apart that share a core, and far shorter than anybody waits in vain.
static const double kLateNs = 5e6;
static void (*drive_when_late)(void);

void od_probe_drive_when_late(void (*drive)(void)) { drive_when_late = drive; }

void od_probe_sync(void) { od_probe_sync_driving(NULL); }

void od_probe_sync_driving(void (*drive)(void)) {
  if (messages != NULL) {
    messages->sync();
    return;
  }
  uint64_t goal = (uint64_t)rank_count * ++barriers;
  unsigned spins = 0;
  const double start = od_probe_now_ns();
  // Release and acquire: what a rank wrote before the barrier is seen by every rank after it.
  atomic_fetch_add_explicit(&page->arrived, 1, memory_order_acq_rel);
  while (atomic_load_explicit(&page->arrived, memory_order_acquire) < goal) {
    // Not every time: who waits on a core of its own leaves at once.
    if (drive == NULL && spins % kSpinsBeforeSleep == 0 && od_probe_now_ns() - start > kLateNs) {
      drive = drive_when_late;
    }
    if (drive != NULL) drive();
    Relax(&spins);
  }
}

double od_probe_share(double value) {
  if (messages != NULL) return messages->share(value);
  if (my_rank == 0) page->shared_value = value;
  od_probe_sync();
  double result = page->shared_value;
  od_probe_sync();
  return result;
}

double od_probe_max(double value) {
  if (messages != NULL) return messages->max(value);
  page->values[my_rank] = value;
  od_probe_sync();
  double result = page->values[0];
  for (int i = 1; i < rank_count; ++i) {
    if (page->values[i] > result) result = page->values[i];
  }
  od_probe_sync();
  return result;
}

double od_probe_sum(double value) {
  if (messages != NULL) return messages->sum(value);
  page->values[my_rank] = value;
  od_probe_sync();
  double result = 0;
  for (int i = 0; i < rank_count; ++i) result += page->values[i];
  od_probe_sync();
  return result;
}

double od_probe_cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

double od_probe_busy_ns(void) {
  // user, nice, system, idle, waiting for I/O, interrupts (hard, soft), stolen by the hypervisor
  double ticks[8] = {0};
  FILE* file = fopen("/proc/stat", "r");
  if (file == NULL) return 0;
  int fields = fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2],
                      &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
  fclose(file);
  double busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
  return fields == 8 ? busy * 1e9 / (double)sysconf(_SC_CLK_TCK) : 0;
}

static int CompareDoubles(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void AwaitValue(_Atomic uint64_t* line, uint64_t value) {
  unsigned spins = 0;
  // Acquire pairs with the release stores of the partner in Exchange. No pause: this measures the
  // line, not the wait.
  while (atomic_load_explicit(line, memory_order_acquire) != value) {
    if (++spins % kSpinsBeforeYield == 0) sched_yield();
  }
}

static double ExchangeBatch(_Atomic uint64_t* to, _Atomic uint64_t* from, uint64_t* base) {
  double start = od_probe_now_ns();
  for (int i = 0; i < kRoundTripsPerBatch; ++i) {
    uint64_t ball = (*base += 2);
    if (my_rank == 0) {
      atomic_store_explicit(to, ball - 1, memory_order_release);
      AwaitValue(from, ball);
    } else {
      AwaitValue(from, ball - 1);
      atomic_store_explicit(to, ball, memory_order_release);
    }
  }
  return (od_probe_now_ns() - start) / (2.0 * kRoundTripsPerBatch);
}

double od_probe_exchange_ns(int two_lines) {
  double median = -1;
  if (rank_count < 2 || messages != NULL) return median;
  ++probes;
  od_probe_sync();
  if (my_rank >= 2) {
    atomic_fetch_add_explicit(&page->parked, 1, memory_order_release);
    // Sleep in the kernel, so that ranks 0 and 1 have the cores to themselves.
    struct timespec nap = {0, 100000};
    while (atomic_load_explicit(&page->probes_done, memory_order_acquire) < probes)
      nanosleep(&nap, NULL);
  } else {
    cpu_set_t before;
    sched_getaffinity(0, sizeof(before), &before);
    if (oversubscribed) PinTo(NthCore(my_rank));
    uint64_t goal = (uint64_t)(rank_count - 2) * probes;
    while (atomic_load_explicit(&page->parked, memory_order_acquire) < goal) sched_yield();
    double batch[kBatches];
    for (int i = 0; i < kBatches; ++i) {
      if (two_lines) {
        batch[i] = my_rank == 0 ? ExchangeBatch(&page->ping, &page->pong, &pair_base)
                                : ExchangeBatch(&page->pong, &page->ping, &pair_base);
      } else {
        batch[i] = ExchangeBatch(&page->ball, &page->ball, &ball_base);
      }
    }
    qsort(batch, kBatches, sizeof(batch[0]), CompareDoubles);
    median = batch[kBatches / 2];
    if (oversubscribed) sched_setaffinity(0, sizeof(before), &before);
  }
  if (my_rank == 0) atomic_store_explicit(&page->probes_done, probes, memory_order_release);
  return od_probe_share(median);
}
