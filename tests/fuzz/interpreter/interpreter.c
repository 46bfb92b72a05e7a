// Executes random MPI programs from a text and checks everything that the standard fixes.
//
//   interpreter --file=PATH [--limit=SECONDS] [--threads=1]
// Programs run one after the other with a barrier between. "DONE id" on standard output (by rank 0)
// follows each; the first failure ends the job with "FAIL program=.. rank=.. step=..". A program
// that is not over in time ends it, too, with a line for each rank: "STUCK program=.. rank=..".
#include "aftermath.h"
#include "completion.h"
#include "host_calls.h"
#include "watchdog.h"

static const char* option(int argc, char** argv, const char* name, const char* otherwise) {
  const size_t length = strlen(name);
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--", 2) == 0 && strncmp(argv[i] + 2, name, length) == 0 &&
        argv[i][2 + length] == '=')
      return argv[i] + 3 + length;
  }
  return otherwise;
}

static void do_delay(Session* s, const Op* op) {
  (void)s;
  const long us = arg(op, "us", 0);
  struct timespec begin, now;
  if (arg_is(op, "how", "sleep")) {
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
    return;
  }
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - begin.tv_sec) * 1000000 + (now.tv_nsec - begin.tv_nsec) / 1000 < us);
}

typedef struct {
  const char* verb;
  void (*execute)(Session*, const Op*);
} Verb;

static const Verb kVerbs[] = {
    {"send", do_send},       {"sinit", do_send},         {"recv", do_receive},
    {"rinit", do_receive},   {"exch", do_exchange},      {"start", do_start},
    {"done", do_done},       {"poke", do_poke},          {"cancel", do_cancel},
    {"free", do_free},       {"look", do_look},          {"coll", do_collective},
    {"comm", do_comm},       {"commfree", do_comm_free}, {"delay", do_delay},
    {"window", do_window},   {"file", do_file},          {"psend", do_part_init},
    {"precv", do_part_init}, {"pready", do_part_ready},  {"parrived", do_part_arrived},
    {"win", do_win},         {"access", do_access},      {"sync", do_sync},
    {"winend", do_win_end},  {"process", do_process},
};

static void execute(Session* s, const Op* op) {
  for (size_t i = 0; i < sizeof kVerbs / sizeof kVerbs[0]; i++) {
    if (strcmp(op->verb, kVerbs[i].verb) == 0) {
      kVerbs[i].execute(s, op);
      return;
    }
  }
  fail(op, "the program is wrong: unknown verb");
}

static Arena arena_on(char* memory) { return (Arena){memory, memory, memory + kArenaBytes}; }

// Executes the operations of a strand; the stack arena lies in this frame.
static void* run_strand(void* argument) {
  Session* s = (Session*)argument;
  char stack[kArenaBytes];
  char* heap = (char*)need_memory(kArenaBytes);
  s->arenas = (Arenas){arena_on(heap), arena_on(stack), arena_on(static_data[s->number])};
  for (int i = 0; i < s->program->op_count; i++) {
    const Op* op = &s->program->ops[i];
    if (op->strand != s->number) continue;
    s->current = op;
    const int late = s->late_count;
    execute(s, op);
    finish_late(s, late);
  }
  finish_late(s, s->late_count);
  s->current = NULL;
  check_order(s);
  s->done = 1;
  // Buffers of freed sends live until every rank is through.
  for (int i = 0; i < kMostRequests; i++) {
    REQUIRE(NULL, !s->slots[i].active, "the program is wrong: request %d is never completed", i);
  }
  pthread_barrier_wait(&strands_over);
  if (s->number == 0) MUST(NULL, MPI_Barrier(MPI_COMM_WORLD));
  pthread_barrier_wait(&strands_over);
  for (int i = 0; i < kMostRequests; i++) {
    if (s->slots[i].kind != kFree) slot_release(&s->slots[i]);
    if (s->lent[i].region != NULL) buffer_free(&s->lent[i]);
  }
  free(heap);
  return NULL;
}

static MPI_Comm strand_comms[kMostStrands];

static void run_program(const Program* program) {
  pthread_t threads[kMostStrands];
  pthread_attr_t attributes;
  current_program = program->id;
  read_messages(program);
  for (int i = 0; i < kMostComms; i++) comms[i].used = 0;
  memset(windows, 0, sizeof windows);
  for (int i = 0; i < program->strands; i++) {
    comms[i] = (Comm){.comm = program->strands == 1 ? MPI_COMM_WORLD : strand_comms[i],
                      .used = 1,
                      .rank = world_rank,
                      .size = world_size};
    memset(&sessions[i], 0, sizeof sessions[i]);
    sessions[i].program = program;
    sessions[i].number = i;
  }
  pthread_barrier_init(&strands_over, NULL, (unsigned)program->strands);
  watchdog_program(program);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kArenaBytes + (4 << 20));
  for (int i = 1; i < program->strands; i++) {
    pthread_create(&threads[i], &attributes, run_strand, &sessions[i]);
  }
  run_strand(&sessions[0]);
  for (int i = 1; i < program->strands; i++) pthread_join(threads[i], NULL);
  watchdog_program(NULL);
  pthread_attr_destroy(&attributes);
  pthread_barrier_destroy(&strands_over);
  free(messages);
}

// Open MPI 4.1 loads its code for topologies at the first call that makes one, and crashes now and
// then when several threads make that call at the same time.
static void load_topologies(void) {
  int dims = 1, periods = 0;
  MPI_Comm comm;
  MUST(NULL, MPI_Cart_create(MPI_COMM_SELF, 1, &dims, &periods, 0, &comm));
  MUST(NULL, MPI_Comm_free(&comm));
}

int main(int argc, char** argv) {
  const int with_threads = atoi(option(argc, argv, "threads", "0"));
  int provided, count;
  MPI_Init_thread(&argc, &argv, with_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world_size);
  if (with_threads && provided < MPI_THREAD_MULTIPLE) {
    if (world_rank == 0) printf("SKIP the host has no MPI_THREAD_MULTIPLE\n");
    MPI_Finalize();
    return 0;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const int attached_bytes = 64 << 20;
  void* attached = need_memory((size_t)attached_bytes);
  MUST(NULL, MPI_Buffer_attach(attached, attached_bytes));
  for (int i = 0; with_threads && i < kMostStrands; i++) {
    MUST(NULL, MPI_Comm_dup(MPI_COMM_WORLD, &strand_comms[i]));
  }
  if (with_threads) load_topologies();
  Program* programs = read_programs(option(argc, argv, "file", "programs"), &count);
  watchdog_start(atof(option(argc, argv, "limit", "20")));
  for (int i = 0; i < count; i++) {
    run_program(&programs[i]);
    free_program(&programs[i]);
    if (world_rank == 0) printf("DONE %ld\n", programs[i].id), fflush(stdout);
  }
  current_program = -2;
  watchdog_program(&programs[count - 1]);  // the end may get stuck as well
  for (int i = 0; with_threads && i < kMostStrands; i++) MPI_Comm_free(&strand_comms[i]);
  int bytes;
  MPI_Buffer_detach(&attached, &bytes);
  free(attached);
  MPI_Finalize();
  if (world_rank == 0) printf("PASS %d programs\n", count);
  return 0;
}
