// An MPI library of no known kind, for tests/face/entry_points.c: each function returns what its
// arguments say, so that one lost on the way is noticed. It has no MPI_Barrier.
#include <stdarg.h>

double MPI_Wtime(void) { return 0.125; }

static int init(int* argc, char*** argv) { return argc == 0 && argv == 0 ? 0 : 1; }

int MPI_Init(int* argc, char*** argv) { return init(argc, argv); }

int PMPI_Init(int* argc, char*** argv) { return init(argc, argv); }

// More arguments than any processor passes in registers.
int MPI_Alltoallw(const void* sent, const int* counts, const int* places, const void* types,
                  void* received, const int* received_counts, const int* received_places,
                  const void* received_types, void* comm) {
  const void* all[] = {sent,     counts,          places,          types,
                       received, received_counts, received_places, received_types,
                       comm};
  for (long i = 0; i < 9; ++i) {
    if ((long)all[i] != 1000 + i) return 1 + (int)i;
  }
  return 0;
}

// Whole numbers and floating-point ones, of which some are passed on the stack.
int MPI_Pcontrol(const int level, ...) {
  va_list more;
  va_start(more, level);
  double sum = 0;
  for (int i = 0; i < level; ++i) sum += va_arg(more, double) * (1 << i);
  const int last = va_arg(more, int);
  va_end(more);
  return (int)sum + last;
}
