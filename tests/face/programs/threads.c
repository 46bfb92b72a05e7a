/* Many threads make the process's first MPI call at the same moment. */
#include <pthread.h>
#include <stdio.h>

int MPI_Send(const void*, int, int, int, int, int);
int MPI_Init(int*, char***);
int MPI_Finalize(void);
static pthread_barrier_t barrier;
static int wrong;

static void* run(void* argument) {
  (void)argument;
  pthread_barrier_wait(&barrier);
  int sum = MPI_Send((void*)1, 2, 3, 4, 5, 6) % 1000000;
  if (sum != 1 + 6 + 15 + 28 + 55 + 78) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
  return NULL;
}

int main(void) {
  enum { kThreads = 16 };
  pthread_t threads[kThreads];
  pthread_barrier_init(&barrier, NULL, kThreads);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, run, NULL);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  printf("wrong %d\n", wrong);
  MPI_Finalize();
  return wrong != 0;
}
