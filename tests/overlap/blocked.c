// A thread from before MPI_Init that has all signals blocked reads what a broadcast brings.
//
//   --how=mask       the thread that makes it has blocked them (default)
//   --how=attribute  its attributes say so
//   --how=kernel     by a system call of its own, which nobody sees
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "odtest.h"

enum { kBytes = 8 << 20, kRounds = 8 };

static const char* g_how = "mask";
static const char* volatile g_at;
static volatile int g_value;
static volatile int g_blocked, g_over;

static void* worker(void* none) {
  sigset_t all, now;
  sigfillset(&all);
  if (strcmp(g_how, "kernel") == 0) syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8);
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  // Whatever is done about one signal, the others are as the program has said.
  g_blocked = sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGTERM) == 1 ? 1 : -1;
  while (!g_over) {
    const char* const at = g_at;
    if (at == NULL) {
      usleep(10);
      continue;
    }
    g_value = *at;
    g_at = NULL;
  }
  return none;
}

static void start(pthread_t* thread) {
  sigset_t all, before;
  sigfillset(&all);
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
  while (g_blocked == 0) usleep(10);
}

int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--how=", 6) == 0) g_how = argv[i] + 6;
  }
  pthread_t thread;
  start(&thread);
  odt_start("blocked", &argc, &argv);
  CHECK(g_blocked == 1, "%s", "signals of the thread are not blocked");
  char* buffer = malloc(kBytes);
  for (int round = 1; round <= kRounds; round++) {
    memset(buffer, odt.rank == 0 ? round : 0, kBytes);
    MUST(MPI_Bcast(buffer, kBytes, MPI_BYTE, 0, MPI_COMM_WORLD));
    g_at = buffer + kBytes / 8 * 7;
    while (g_at != NULL) usleep(10);
    CHECK(g_value == round, "%d in round %d", g_value, round);
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
  g_over = 1;
  pthread_join(thread, NULL);
  return odt_finish();
}
