/* A library that looks like an MPI library to the loader: enough functions to see that arguments of
 * every kind arrive, and that functions which it lacks are treated as missing. It computes
 * checksums of its arguments; programs compare them with what they get by calling it directly.
 * Built as libmpi.so.12 (an MPICH-family SONAME) unless -DFAKE_OPENMPI. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define BOTH(result, name, parameters)                               \
  result P##name parameters;                                         \
  extern __typeof__(P##name) name __attribute__((alias("P" #name))); \
  result P##name parameters

static int initialized;

BOTH(int, MPI_Init, (int* argc, char*** argv)) {
  (void)argc, (void)argv;
  initialized += 1;
  return 0;
}
BOTH(int, MPI_Initialized, (int* flag)) {
  *flag = initialized;
  return 0;
}
BOTH(int, MPI_Finalize, (void)) { return 0; }
BOTH(double, MPI_Wtime, (void)) { return 1234.5; }
BOTH(int, MPI_Comm_rank, (int comm, int* rank)) {
  *rank = comm ^ 7;
  return 0;
}
BOTH(int, MPI_Send, (const void* buf, int count, int type, int dest, int tag, int comm)) {
  return (int)((uintptr_t)buf & 0xff) + 3 * count + 5 * type + 7 * dest + 11 * tag + 13 * comm;
}
/* Six arguments in registers, six on the stack. */
BOTH(int, MPI_Sendrecv,
     (const void* a, int b, int c, int d, int e, void* f, int g, int h, int i, int j, int k,
      void* l)) {
  return (int)((uintptr_t)a & 15) + 3 * b + 5 * c + 7 * d + 11 * e + (int)((uintptr_t)f & 15) * 13 +
         17 * g + 19 * h + 23 * i + 29 * j + 31 * k + (int)((uintptr_t)l & 15) * 37;
}
/* Variable arguments, integers and doubles: the sum of `level` pairs. */
BOTH(int, MPI_Pcontrol, (const int level, ...)) {
  va_list list;
  va_start(list, level);
  double sum = 0;
  for (int i = 0; i < level; ++i) {
    sum += va_arg(list, int);
    sum += va_arg(list, double);
  }
  va_end(list);
  return (int)sum;
}
/* 64-bit arguments and result. */
BOTH(intptr_t, MPI_Aint_add, (intptr_t base, intptr_t disp)) { return base + disp; }
/* Exported only under its MPI_ name. */
int MPI_Get_version(int* version, int* subversion) {
  *version = 3;
  *subversion = 1;
  return 0;
}
#ifdef FAKE_OPENMPI
char ompi_mpi_comm_world[64];
#else
int MPIR_Err_create_code(void) { return 0; }
#endif
