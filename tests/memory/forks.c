// Forks many times with memory shared: every child sees what the parent had and changes nothing of
// it, also from a second thread and with an exec; prints the time of one fork.
#include <pthread.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "odtest.h"
#include "where.h"

static int counter = 1;
static char fixed[1 << 20];

static int end_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int fork_once(char* block, size_t bytes, int with_exec) {
  pid_t child = fork();
  if (child == 0) {
    int good = counter == 1 && fixed[77] == 7 && block[0] == 5 && block[bytes - 1] == 6;
    counter = 2;
    fixed[77] = block[0] = block[bytes - 1] = -1;
    char* own = malloc(300000);
    if (own != NULL) memset(own, 1, 300000);
    free(block);
    if (good && with_exec) execl("/bin/true", "true", (char*)NULL);
    _exit(good ? 0 : 3);
  }
  return child < 0 ? 1000 : end_of(child);
}

// The child makes the block that was made last larger, step by step: beyond it nothing was in use.
static void grow_in_child(void) {
  enum { kBlocks = 40, kBytes = 256 << 10, kStep = 64 << 10 };
  char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; i++) memset(blocks[i] = malloc(kBytes), i, kBytes);
  pid_t child = fork();
  if (child == 0) {
    char* last = blocks[kBlocks - 1];
    int good = 1;
    for (size_t bytes = kBytes + kStep; bytes < 4 << 20; bytes += kStep) {
      last = realloc(last, bytes);
      good = good && last != NULL && last[kBytes - 1] == kBlocks - 1;
      if (good) last[bytes - 1] = 1;
    }
    _exit(good ? 0 : 3);
  }
  int code = end_of(child);
  CHECK(code == 0, "growing in a child: %d", code);
  for (int i = 0; i < kBlocks; i++) free(blocks[i]);
}

// Forks of a coroutine whose stack is shared memory.
static ucontext_t main_context, coroutine;

static int __attribute__((noinline)) deep(int depth) {
  volatile char filled[200];
  memset((void*)filled, depth, sizeof filled);
  return (depth == 0 || deep(depth - 1)) && filled[77] == (char)depth;
}

static void fork_here(void) {
  for (volatile int i = 0; i < 5; i++) {
    volatile int before = i * 7;
    pid_t child = fork();
    if (child == 0) {
      int good = deep(40) && before == i * 7;
      before = -1;
      _exit(good ? 0 : 3);
    }
    int good = deep(60);
    int code = end_of(child);
    CHECK(code == 0 && good && before == i * 7, "child %d of a coroutine: %d", i, code);
  }
}

static void fork_in_coroutine(char* stack, size_t bytes) {
  CHECK(getcontext(&coroutine) == 0, "no context");
  coroutine.uc_stack.ss_sp = stack;
  coroutine.uc_stack.ss_size = bytes;
  coroutine.uc_link = &main_context;
  makecontext(&coroutine, fork_here, 0);
  CHECK(swapcontext(&main_context, &coroutine) == 0, "no change of context");
}

static void* churn(void* stop) {
  while (!__atomic_load_n((int*)stop, __ATOMIC_RELAXED)) {
    char* block = malloc(100000);
    block[0] = 1;
    free(block);
  }
  return NULL;
}

int main(int argc, char** argv) {
  odt_start("forks", &argc, &argv);
  const int forks = (int)odt_number("forks", 100);
  const size_t bytes = (size_t)odt_number("bytes", 1 << 20);
  char* block = malloc(bytes);
  memset(block, 1, bytes);
  block[0] = 5;
  block[bytes - 1] = 6;
  fixed[77] = 7;
  if (odt_number("shared", 1)) CHECK(in_reach_file(block, bytes), "the block is not shared");
  double begin = MPI_Wtime();
  for (int i = 0; i < forks; i++) {
    int code = fork_once(block, bytes, i % 4 == 0);
    CHECK(code == 0, "child %d: %d", i, code);
  }
  double seconds = MPI_Wtime() - begin;
  grow_in_child();
  fork_in_coroutine(fixed + 4096, sizeof fixed - 4096);
  memset(fixed, 0, sizeof fixed);
  fixed[77] = 7;
  char* stack = malloc(1 << 20);
  fork_in_coroutine(stack, 1 << 20);
  free(stack);
  // The allocator's locks must be free in the child whatever the other thread was doing.
  int stop = 0;
  pthread_t thread;
  pthread_create(&thread, NULL, churn, &stop);
  for (int i = 0; i < 20; i++) {
    int code = fork_once(block, bytes, 0);
    CHECK(code == 0, "child %d beside a thread: %d", i, code);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  pthread_join(thread, NULL);
  CHECK(counter == 1 && fixed[77] == 7 && block[0] == 5 && block[bytes - 1] == 6, "the parent's");
  printf("one fork takes %.3f ms\n", 1e3 * seconds / forks);
  free(block);
  return odt_finish();
}
