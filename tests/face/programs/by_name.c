/* A program that does not link MPI: loads the library given as its argument and calls it by names
 * from the library's own handle. Prints one line per rank. */
#define _GNU_SOURCE
#include <dlfcn.h>
#ifndef HEADER
#define HEADER <mpi.h>
#endif
#include HEADER
#include <stdio.h>

int main(int argc, char** argv) {
  void* mpi = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (mpi == NULL) return puts(dlerror()), 1;
#define GET(name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(mpi, #name)
  GET(MPI_Init);
  GET(MPI_Comm_rank);
  GET(MPI_Comm_size);
  GET(MPI_Sendrecv);
  GET(MPI_Finalize);
#ifdef OPEN_MPI
  MPI_Comm world = (MPI_Comm)dlsym(mpi, "ompi_mpi_comm_world");
  MPI_Datatype type = (MPI_Datatype)dlsym(mpi, "ompi_mpi_int");
#else
  MPI_Comm world = MPI_COMM_WORLD;
  MPI_Datatype type = MPI_INT;
#endif
  int rank, size;
  p_MPI_Init(&argc, &argv);
  p_MPI_Comm_rank(world, &rank);
  p_MPI_Comm_size(world, &size);
  int out = rank * 10, in = -1;
  p_MPI_Sendrecv(&out, 1, type, (rank + 1) % size, 5, &in, 1, type, (rank + size - 1) % size, 5,
                 world, MPI_STATUS_IGNORE);
  Dl_info info;
  dladdr((void*)p_MPI_Comm_rank, &info);
  printf("rank %d of %d got %d from %s\n", rank, size, in, info.dli_fname);
  p_MPI_Finalize();
  return 0;
}
