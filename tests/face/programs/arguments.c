/* Calls functions of the fake MPI library in both name forms and prints what comes back. */
#include <stdint.h>
#include <stdio.h>

#define BOTH(result, name, parameters) \
  result name parameters;              \
  result P##name parameters
BOTH(int, MPI_Init, (int*, char***));
BOTH(int, MPI_Finalize, (void));
BOTH(double, MPI_Wtime, (void));
BOTH(int, MPI_Send, (const void*, int, int, int, int, int));
BOTH(int, MPI_Sendrecv, (const void*, int, int, int, int, void*, int, int, int, int, int, void*));
BOTH(int, MPI_Pcontrol, (const int, ...));
BOTH(intptr_t, MPI_Aint_add, (intptr_t, intptr_t));
int MPI_Get_version(int*, int*);

static void all(void) {
  int version = 0, subversion = 0;
  printf("wtime %g %g\n", MPI_Wtime(), PMPI_Wtime());
  printf("pcontrol %d %d\n", MPI_Pcontrol(5, 1, 2.0, 3, 4.0, 5, 6.0, 7, 8.0, 9, 10.0),
         PMPI_Pcontrol(2, 1, 0.5, 2, 0.5));
  printf("sendrecv %d %d\n",
         MPI_Sendrecv((void*)1, 2, 3, 4, 5, (void*)6, 7, 8, 9, 10, 11, (void*)12),
         PMPI_Sendrecv((void*)12, 11, 10, 9, 8, (void*)7, 6, 5, 4, 3, 2, (void*)1));
  printf("send %d %d\n", MPI_Send((void*)1, 2, 3, 4, 5, 6), PMPI_Send((void*)6, 5, 4, 3, 2, 1));
  printf("aint %jd\n", (intmax_t)MPI_Aint_add((intptr_t)1 << 60, (intptr_t)1 << 33));
  MPI_Get_version(&version, &subversion);
  printf("version %d.%d\n", version, subversion);
}

int main(int argc, char** argv) {
  /* The first of these is the process's first MPI call: it goes through the resolution. FIRST picks
   * which kind of signature that happens to. */
#if FIRST == 1
  printf("first %d\n", MPI_Pcontrol(5, 1, 2.0, 3, 4.0, 5, 6.0, 7, 8.0, 9, 10.0));
#elif FIRST == 2
  printf("first %d\n", MPI_Sendrecv((void*)1, 2, 3, 4, 5, (void*)6, 7, 8, 9, 10, 11, (void*)12));
#elif FIRST == 3
  printf("first %g\n", PMPI_Wtime());
#endif
  MPI_Init(&argc, &argv);
  all();
  MPI_Finalize();
  return 0;
}
