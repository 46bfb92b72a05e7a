/* A library that uses MPI functions if they are there: weak references, as Python packages have. */
#include <stdio.h>
#pragma weak MPI_Send
#pragma weak PMPI_Send
#pragma weak MPI_Send_c
#pragma weak PMPI_Send_c
#pragma weak MPI_Session_init
#pragma weak MPI_Finalize
int MPI_Send(const void*, int, int, int, int, int);
int PMPI_Send(const void*, int, int, int, int, int);
int MPI_Send_c(const void*, long, int, int, int, int);
int PMPI_Send_c(const void*, long, int, int, int, int);
int MPI_Session_init(int, int, int*);
int MPI_Finalize(void);

void plugin(void) {
  printf("plugin: Send %d %d Send_c %d %d Session_init %d\n", MPI_Send != 0, PMPI_Send != 0,
         MPI_Send_c != 0, PMPI_Send_c != 0, MPI_Session_init != 0);
  if (MPI_Send != 0) printf("plugin: sent %d\n", MPI_Send((void*)1, 2, 3, 4, 5, 6));
  if (MPI_Finalize != 0) MPI_Finalize();
}
