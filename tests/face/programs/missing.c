/* Calls a function which the MPI library does not have, through a reference that is not weak. */
#include <stdio.h>
int MPI_Session_init(int, int, int*);
int MPI_Init(int*, char***);
int main(void) {
#ifdef INIT
  MPI_Init(0, 0);
#endif
  puts("before");
  fflush(stdout);
  int session;
  MPI_Session_init(0, 0, &session);
  puts("after");
  return 0;
}
