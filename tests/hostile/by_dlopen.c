// A program that is not linked with MPI: it loads the library whose path is its first argument with
// dlopen, finds the functions with dlsym on that handle or in the global scope, and exchanges.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void* library;

static void* function(const char* name) {
  void* found = dlsym(getenv("OD_GLOBAL_SCOPE") != NULL ? RTLD_DEFAULT : library, name);
  if (found == NULL) {
    fprintf(stderr, "FAIL by_dlopen: %s\n", dlerror());
    exit(2);
  }
  return found;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    fprintf(stderr, "FAIL by_dlopen: %s\n", dlerror());
    return 2;
  }
  int rank = -1, size = 0, value, got = -1;
  int (*init)(int*, char***) = function("MPI_Init");
  int (*finalize)(void) = function("MPI_Finalize");
  init(NULL, NULL);
  void* world = dlsym(library, "ompi_mpi_comm_world");
  if (world != NULL) {
    void* integer = dlsym(library, "ompi_mpi_int");
    int (*comm_rank)(void*, int*) = function("MPI_Comm_rank");
    int (*comm_size)(void*, int*) = function("MPI_Comm_size");
    int (*sendrecv)(const void*, int, void*, int, int, void*, int, void*, int, int, void*, void*) =
        function("MPI_Sendrecv");
    comm_rank(world, &rank);
    comm_size(world, &size);
    value = rank * 10;
    for (int i = 0; i < 10; i++) {
      sendrecv(&value, 1, integer, (rank + 1) % size, 5, &got, 1, integer, (rank + size - 1) % size,
               5, world, NULL);
    }
  } else {
    const int mpich_world = 0x44000000, mpich_int = 0x4c000405;
    int (*comm_rank)(int, int*) = function("MPI_Comm_rank");
    int (*comm_size)(int, int*) = function("MPI_Comm_size");
    int (*sendrecv)(const void*, int, int, int, int, void*, int, int, int, int, int, void*) =
        function("MPI_Sendrecv");
    comm_rank(mpich_world, &rank);
    comm_size(mpich_world, &size);
    value = rank * 10;
    for (int i = 0; i < 10; i++) {
      sendrecv(&value, 1, mpich_int, (rank + 1) % size, 5, &got, 1, mpich_int,
               (rank + size - 1) % size, 5, mpich_world, (void*)1);
    }
  }
  int good = got == (rank + size - 1) % size * 10;
  if (!good) fprintf(stderr, "FAIL by_dlopen rank %d of %d: got %d\n", rank, size, got);
  if (good && rank == 0) printf("PASS by_dlopen\n");
  finalize();
  return good ? 0 : 1;
}
