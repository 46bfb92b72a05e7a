// The program's own handlers stay: one for SIGSEGV that repairs the page and goes on, installed
// before or after MPI_Init, and an alternate stack; SIGALRM during waits; SIGUSR1 while blocked in
// a receive.
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

#include "odtest.h"

static volatile char* guarded;
static size_t page;
static volatile int faults, alarms;

static void on_fault(int number, siginfo_t* info, void* context) {
  (void)number;
  (void)context;
  if ((char*)info->si_addr < (char*)guarded || (char*)info->si_addr >= (char*)guarded + page) {
    _exit(99);
  }
  faults++;
  mprotect((void*)guarded, page, PROT_READ | PROT_WRITE);
}

static void on_alarm(int number) {
  (void)number;
  alarms++;
}

static void install(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, NULL);
  action.sa_flags = 0;
  action.sa_handler = on_alarm;  // without SA_RESTART: system calls are interrupted
  sigaction(SIGALRM, &action, NULL);
}

int main(int argc, char** argv) {
  const int before = argc > 1 && strcmp(argv[1], "--before=1") == 0;
  page = (size_t)sysconf(_SC_PAGESIZE);
  guarded = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static char stack[65536];
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&alternate, NULL);
  if (before) install();
  odt_start("signals", &argc, &argv);
  // Hosts may replace a handler of the time before; what matters is that Overdrive does nothing
  // here that the host alone does not do.
  struct sigaction now;
  sigaction(SIGSEGV, NULL, &now);
  if (odt.rank == 0) printf("case handler kept: %d\n", now.sa_sigaction == on_fault);
  if (!before || now.sa_sigaction != on_fault) install();
  const int peer = odt.rank ^ 1;
  struct itimerval often = {{0, 2000}, {0, 2000}};
  setitimer(ITIMER_REAL, &often, NULL);
  for (int round = 0; round < 200 && peer < odt.size; round++) {
    enum { kBytes = 100000 };
    static char out[kBytes], in[kBytes];
    mprotect((void*)guarded, page, PROT_NONE);
    int expected = faults + 1;
    guarded[10] = 1;
    CHECK(faults == expected, "%d faults handled, not %d", faults, expected);
    odt_fill(out, kBytes, odt_key(odt.rank, peer, 1, round));
    if (odt.rank < peer && round % 20 == 0) {
      // The other waits for 10 ms while its timer fires.
      double end = odt_seconds() + 0.01;
      while (odt_seconds() < end) {
      }
    }
    MUST(MPI_Sendrecv(out, kBytes, MPI_BYTE, peer, 1, in, kBytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
                      MPI_STATUS_IGNORE));
    CHECK_DATA(in, kBytes, odt_key(peer, odt.rank, 1, round));
  }
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  CHECK(peer >= odt.size || alarms > 0, "no alarm was delivered");
  return odt_finish();
}
