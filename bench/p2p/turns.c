// Turns among jobs over a shared file. Each job sleeps on a word of its own, so that passing the
// turn wakes nobody else: the word counts the turns the job has been given.
#define _GNU_SOURCE
#include "turns.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "probe.h"

enum { kMaxJobs = 32 };

typedef struct {
  _Alignas(128) _Atomic uint32_t given[kMaxJobs][32];  // one line pair per job, the rest unused
  _Alignas(128) _Atomic uint32_t arrived;
  _Alignas(128) _Atomic uint32_t ended;
  // Written and read by the job whose turn it is; the turn's hand-over orders the accesses.
  _Alignas(128) int32_t decided_round;
  int32_t go_on;
} Turns;

static Turns* turns;
static int me, job_count;
static uint32_t taken;  // turns this job has had or is having

int od_turns_attach(const char* path, int mine, int jobs) {
  if (jobs < 1 || jobs > kMaxJobs || mine < 0 || mine >= jobs) return -1;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  if (ftruncate(fd, sizeof(Turns)) != 0) {
    close(fd);
    return -1;
  }
  void* mapped = mmap(NULL, sizeof(Turns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED) return -1;
  turns = mapped;
  me = mine;
  job_count = jobs;
  return 0;
}

// The job at a position of a visit: a shuffle that every job computes for itself.
static int JobAt(uint32_t visit, int position) {
  int order[kMaxJobs] = {0};
  uint64_t state = 0x9e3779b97f4a7c15u * (visit + 1u);
  for (int i = 0; i < job_count; ++i) order[i] = i;
  for (int i = job_count - 1; i > 0; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    int other = (int)((state >> 33) % (uint64_t)(i + 1));
    int held = order[i];
    order[i] = order[other];
    order[other] = held;
  }
  return order[position];
}

static void Give(uint32_t visit, int position) {
  _Atomic uint32_t* word = &turns->given[JobAt(visit, position)][0];
  // Release: what this job wrote during its turn is seen by the next one.
  atomic_store_explicit(word, visit + 1, memory_order_release);
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void Await(_Atomic uint32_t* word, uint32_t goal) {
  uint32_t seen;
  while ((seen = atomic_load_explicit(word, memory_order_acquire)) < goal) {
    syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
  }
}

static void Pass(void) {
  uint32_t visit = taken - 1;
  int position = 0;
  while (JobAt(visit, position) != me) ++position;
  if (++position == job_count) {
    position = 0;
    ++visit;
  }
  Give(visit, position);
}

void od_turns_begin(int leader) {
  if (turns == NULL) return;
  taken = 1;
  if (leader) {
    uint32_t before = atomic_fetch_add_explicit(&turns->arrived, 1, memory_order_acq_rel);
    if (before + 1 == (uint32_t)job_count) Give(0, 0);
  }
  Await(&turns->given[me][0], taken);
}

void od_turns_next(int leader) {
  if (turns == NULL) return;
  if (leader) Pass();
  ++taken;
  Await(&turns->given[me][0], taken);
}

void od_turns_end(int leader) {
  if (turns == NULL) return;
  if (leader) {
    Pass();
    atomic_fetch_add_explicit(&turns->ended, 1, memory_order_release);
    syscall(SYS_futex, &turns->ended, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
  Await(&turns->ended, (uint32_t)job_count);
}

int od_turns_go_on(int round, double until_ns) {
  int go_on = od_probe_now_ns() < until_ns;
  if (turns == NULL) return go_on;
  if (turns->decided_round < round) {
    turns->decided_round = round;
    turns->go_on = go_on;
  }
  return turns->go_on;
}
