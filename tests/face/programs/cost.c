/* Prints nanoseconds per call of MPI_Comm_rank: once through MPI_Comm_rank as the program is
 * linked, once through the host library's own function. Interleaved; the median of many rounds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kRounds = 41, kCalls = 200000 };
typedef int (*rank_function)(MPI_Comm, int*);

static double measure(rank_function function) {
  struct timespec from, to;
  int rank;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int i = 0; i < kCalls; ++i) function(MPI_COMM_WORLD, &rank);
  clock_gettime(CLOCK_MONOTONIC, &to);
  return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / kCalls;
}
static int compare(const void* a, const void* b) {
  return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  /* The program's reference is the loader's when that is preloaded. The host's own function is
   * asked for with libc's dlsym, past the loader's. */
  rank_function linked = MPI_Comm_rank;
  rank_function host = linked;
  void* mpi = dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD);
  void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  void* (*direct)(void*, const char*) =
      (void* (*)(void*, const char*))dlvsym(libc, "dlsym", "GLIBC_2.34");
  if (mpi != NULL && direct != NULL) host = (rank_function)direct(mpi, "PMPI_Comm_rank");
  if (host == NULL) return puts("no host function"), 1;
  double a[kRounds], b[kRounds];
  for (int i = 0; i < kRounds; ++i) {
    a[i] = measure(linked);
    b[i] = measure(host);
  }
  qsort(a, kRounds, sizeof(*a), compare);
  qsort(b, kRounds, sizeof(*b), compare);
  printf("linked %.2f host %.2f same %d\n", a[kRounds / 2], b[kRounds / 2], linked == host);
  MPI_Finalize();
  return 0;
}
