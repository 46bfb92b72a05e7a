/* A program without MPI that would use it if it were there: by weak references. */
#include <stdio.h>
#pragma weak MPI_Initialized
#pragma weak MPI_Finalized
#pragma weak MPI_Comm_rank
int MPI_Initialized(int*);
int MPI_Finalized(int*);
int MPI_Comm_rank(int, int*);

int main(void) {
  int there = 0, over = 0, rank = 0;
  if (MPI_Initialized != 0) MPI_Initialized(&there);
  if (MPI_Finalized != 0) MPI_Finalized(&over);
  if (there && !over && MPI_Comm_rank != 0) MPI_Comm_rank(0, &rank);
  printf("rank %d, initialised %d, finalised %d\n", rank, there, over);
  return 0;
}
