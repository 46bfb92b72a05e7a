// Forks many times with memory shared: every child sees what the parent had and changes nothing of
// it, also from a second thread and with an exec; prints the time of one fork.
#include <pthread.h>
#include <sys/wait.h>

#include "odtest.h"
#include "where.h"

static int counter = 1;
static char fixed[1 << 20];

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
  int status = 0;
  if (child < 0) return 1000;
  while (waitpid(child, &status, 0) < 0) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
