// Signal handlers that jump away from an access to what is still on its way, or from a system call
// with it, and handlers that touch it while nearly everything is blocked.
//
//   --what=access  by siglongjmp from a load
//   --what=write   by siglongjmp from write()
//   --what=suspend in a handler that ends sigsuspend()
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "odtest.h"

enum { kBytes = 8 << 20, kRounds = 20, kMostJumps = 50 };

static pthread_t g_main;
static sigjmp_buf g_jump;
static volatile sig_atomic_t g_may_jump;
static volatile sig_atomic_t g_jumps;
static const char* volatile g_seen;
static volatile char g_value;

static void jump_away(int number) {
  if (!pthread_equal(pthread_self(), g_main)) {  // a thread of the installed MPI
    pthread_kill(g_main, number);
    return;
  }
  if (!g_may_jump) return;
  g_may_jump = 0;
  g_jumps++;
  siglongjmp(g_jump, 1);
}

static void look(int number) {
  (void)number;
  g_value = *g_seen;
}

static void every(long us) {
  struct itimerval timer = {{0, us}, {0, us}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

int main(int argc, char** argv) {
  odt_start("jumps", &argc, &argv);
  const char* what = odt_option("what", "access");
  const int waits = strcmp(what, "suspend") == 0;
  g_main = pthread_self();
  struct sigaction action = {.sa_handler = waits ? look : jump_away};
  sigaction(waits ? SIGUSR1 : SIGALRM, &action, NULL);
  const int null = open("/dev/null", O_WRONLY);
  char* buffer = malloc(kBytes);
  long jumps = 0;
  for (int round = 0; round < kRounds; round++) {
    memset(buffer, odt.rank == 0 ? round + 1 : 0, kBytes);
    MUST(MPI_Bcast(buffer, kBytes, MPI_BYTE, 0, MPI_COMM_WORLD));
    g_value = 0;
    g_jumps = 0;
    g_seen = buffer + kBytes / 8 * 7;
    if (waits) {
      sigset_t one, before, rest;
      sigemptyset(&one);
      sigaddset(&one, SIGUSR1);
      sigprocmask(SIG_BLOCK, &one, &before);
      raise(SIGUSR1);
      sigfillset(&rest);
      sigdelset(&rest, SIGUSR1);
      sigsuspend(&rest);
      sigprocmask(SIG_SETMASK, &before, NULL);
    } else {
      every(100);
      sigsetjmp(g_jump, 1);
      // In every other round only once: then the wait is seen to its end.
      g_may_jump = g_jumps < (round % 2 == 0 ? kMostJumps : 1);
      if (strcmp(what, "write") == 0) {
        const ssize_t written = write(null, (const char*)g_seen, 1000);
        CHECK(written == 1000, "round %d: wrote %zd bytes", round, written);
      }
      g_value = *g_seen;
      g_may_jump = 0;
      every(0);
    }
    CHECK(g_value == round + 1, "round %d: %d", round, g_value);
    jumps += g_jumps;
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    CHECK(buffer[kBytes / 2] == round + 1, "round %d: %d", round, buffer[kBytes / 2]);
  }
  // Where the machine is fast, or has other things to do, some accesses do not wait long enough.
  if (!waits && odt.rank != 0) printf("jumps %ld\n", jumps);
  free(buffer);
  return odt_finish();
}
