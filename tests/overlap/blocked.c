// A thread from before MPI_Init that has all signals blocked reads what a broadcast brings.
//
//   --how=mask       the thread that makes it has blocked them (default)
//   --how=attribute  its attributes say so
//   --how=kernel     by a system call of its own, which nobody sees
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odtest.h"

enum { kBytes = 8 << 20, kRounds = 8 };

static const char* g_how = "mask";
// Handed over by semaphores: a thread that wakes every few microseconds beside a rank that yields
// can keep everybody else from a processor on some kernels (docs/manual.md, known points).
static sem_t g_asked, g_answered;
static const char* g_at;  // NULL: it is over
static int g_value, g_blocked;

static void await(sem_t* semaphore) {
  while (sem_wait(semaphore) != 0) {
  }
}

static void* worker(void* none) {
  sigset_t all, now;
  sigfillset(&all);
  if (strcmp(g_how, "kernel") == 0) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8);
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  // Whatever is done about one signal, the others are as the program has said.
  g_blocked = sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGTERM) == 1;
  sem_post(&g_answered);
  for (;;) {
    await(&g_asked);
    if (g_at == NULL) return none;
    g_value = *g_at;
    sem_post(&g_answered);
  }
}

static void start(pthread_t* thread) {
  sigset_t all, before;
  sigfillset(&all);
  sem_init(&g_asked, 0, 0);
  sem_init(&g_answered, 0, 0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
#if __GLIBC_PREREQ(2, 32)
  const int by_attribute = strcmp(g_how, "attribute") == 0;
  if (by_attribute) pthread_attr_setsigmask_np(&attributes, &all);
#else
  const int by_attribute = 0;
#endif
  if (!by_attribute) pthread_sigmask(SIG_BLOCK, &all, &before);
  pthread_create(thread, &attributes, worker, NULL);
  if (!by_attribute) pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  await(&g_answered);
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--how=", 6) == 0) g_how = argv[i] + 6;
  }
  pthread_t thread;
  start(&thread);
  odt_start("blocked", &argc, &argv);
  CHECK(g_blocked, "%s", "signals of the thread are not blocked");
  char* buffer = malloc(kBytes);
  for (int round = 1; round <= kRounds; round++) {
    memset(buffer, odt.rank == 0 ? round : 0, kBytes);
    MUST(MPI_Bcast(buffer, kBytes, MPI_BYTE, 0, MPI_COMM_WORLD));
    g_at = buffer + kBytes / 8 * 7;
    sem_post(&g_asked);
    await(&g_answered);
    CHECK(g_value == round, "%d in round %d", g_value, round);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
  g_at = NULL;
  sem_post(&g_asked);
  pthread_join(thread, NULL);
  return odt_finish();
}
