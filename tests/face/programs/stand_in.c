/* What sequential programs link in place of an MPI library: a few functions, without the P names.
 * With -DPROGRAM a program that uses them; with -DPLUGIN a library that does. */
#include <stdio.h>

int MPI_Init(int*, char***);
int MPI_Initialized(int*);
int MPI_Comm_rank(int, int*);

#if defined(PROGRAM) || defined(PLUGIN)
static void use(void) {
  int before = -1, after = -1, rank = -1;
  MPI_Initialized(&before);
  const int error = MPI_Init(0, 0);
  MPI_Initialized(&after);
  MPI_Comm_rank(5, &rank);
  printf("stand-in: %d, %d then %d, rank %d\n", error, before, after, rank);
}
#endif

#if defined(PROGRAM)
int main(void) {
  use();
  use();
  return 0;
}
#elif defined(PLUGIN)
void plugin(void) { use(); }
#else
static int begun;
int MPI_Init(int* argc, char*** argv) {
  (void)argc, (void)argv;
  begun = 1;
  return 40;
}
int MPI_Initialized(int* flag) {
  *flag = begun;
  return 0;
}
int MPI_Comm_rank(int comm, int* rank) {
  *rank = 100 + comm;
  return 0;
}
#endif
