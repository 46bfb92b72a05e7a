// The time limit of a program: a thread that calls no MPI and says where this rank stands.
#ifndef WATCHDOG_H_
#define WATCHDOG_H_

#include "session.h"

// The limit counts these looks, so that a machine that was suspended does not make programs late.
enum { kLookMs = 50 };

static pthread_barrier_t strands_over;
static const Program* volatile watched;
static long volatile looks;
static long watchdog_limit;

static void tell_strand(const Session* s) {
  const Op* op = s->current;
  fprintf(stderr, "STUCK program=%ld rank=%d strand=%d step=%d: %s\n", current_program, world_rank,
          s->number, op != NULL ? op->step : -1,
          op != NULL ? op->text : "(at the end of the program)");
  for (int i = 0; i < kMostRequests; i++) {
    if (!s->slots[i].active) continue;
    const Op* started = s->slots[i].started != NULL ? s->slots[i].started : s->slots[i].op;
    fprintf(stderr, "    pending: request %d of step %d: %s\n", i, started->step, started->text);
  }
}

static void* watchdog(void* unused) {
  (void)unused;
  const struct timespec pause = {0, kLookMs * 1000000L};
  for (;;) {
    nanosleep(&pause, NULL);
    const Program* program = watched;
    if (program == NULL || ++looks < watchdog_limit) continue;
    for (int i = 0; i < program->strands; i++) tell_strand(&sessions[i]);
    fflush(stderr);
    const struct timespec moment = {0, 600000000};
    nanosleep(&moment, NULL);  // the others shall tell, too
    _exit(4);
  }
  return NULL;
}

static void watchdog_program(const Program* program) {
  looks = 0;
  watched = program;
}

static void watchdog_start(double seconds) {
  pthread_t thread;
  watchdog_limit = (long)(seconds * 1000 / kLookMs);
  pthread_create(&thread, NULL, watchdog, NULL);
  pthread_detach(thread);
}

#endif  // WATCHDOG_H_
