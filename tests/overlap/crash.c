// A program that does wrong, or handles what it does wrong, while a collective is still under way.
//
//   --what=crash    writes to address 16: the process has to end by the signal
//   --what=handler  its own handler is called, with the address, and goes on by siglongjmp
#include <setjmp.h>
#include <signal.h>

#include "odtest.h"

enum { kBytes = 8 << 20 };

static sigjmp_buf g_jump;
static void* volatile g_address;

static void on_fault(int number, siginfo_t* info, void* context) {
  (void)number;
  (void)context;
  g_address = info->si_addr;
  siglongjmp(g_jump, 1);
}

int main(int argc, char** argv) {
  odt_start("crash", &argc, &argv);
  const char* what = odt_option("what", "handler");
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  struct sigaction before;
  const int handles = strcmp(what, "handler") == 0;
  if (handles) {
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGSEGV, NULL, &before);
    CHECK(before.sa_sigaction == on_fault, "%s", "the program's handler is what it has set");
  }
  char* buffer = malloc(kBytes);
  for (int round = 0; round < 8; round++) {
    memset(buffer, odt.rank == 0 ? round + 1 : 0, kBytes);
    MUST(MPI_Bcast(buffer, kBytes, MPI_BYTE, 0, MPI_COMM_WORLD));
    if (strcmp(what, "crash") == 0 && odt.rank == 1 && round == 3) *(volatile char*)16 = 1;
    if (handles) {
      g_address = NULL;
      if (sigsetjmp(g_jump, 1) == 0) *(volatile char*)(16 + (long)round) = 1;
      CHECK(g_address == (void*)(16 + (long)round), "handled %p in round %d", g_address, round);
    }
    for (int i = 0; i < kBytes; i += 1000) {
      if (buffer[i] != round + 1) {
        CHECK(0, "round %d, byte %d is %d", round, i, buffer[i]);
        break;
      }
    }
  }
  return odt_finish();
}
