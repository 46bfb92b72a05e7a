// Times MPI_Allreduce of doubles, or of a float where that is all; rank 0 prints a line "bytes call
// round first" in microseconds per size: the median of single calls, and of the barrier before one
// with the call, each taken as long as its slowest rank; then the mean of the first such rounds,
// which are not in the medians.
//
// Arguments: calls per size, then the sizes in bytes.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

// Groups at switches are made in the first rounds, and ways are measured in them, for the second
// time from call 128 on. The next measurement is at call 1024.
enum { kFirst = 200 };

static int compare(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

// The median over calls of the slowest rank's time, at rank 0.
static double slowest(const double* times, int calls) {
  double* const all = calloc((size_t)calls, sizeof *all);
  MPI_Reduce(times, all, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  qsort(all, (size_t)calls, sizeof *all, compare);
  const double median = all[calls / 2];
  free(all);
  return median;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int calls = atoi(argv[1]);
  double* const times = malloc((size_t)calls * sizeof *times);
  double* const rounds = malloc((size_t)calls * sizeof *rounds);
  for (int argument = 2; argument < argc; argument++) {
    const int bytes = atoi(argv[argument]);
    const int single = bytes < (int)sizeof(double);
    const int count = single ? 1 : bytes / (int)sizeof(double);
    const MPI_Datatype type = single ? MPI_FLOAT : MPI_DOUBLE;
    double* const in = malloc((size_t)count * sizeof *in);
    double* const out = malloc((size_t)count * sizeof *out);
    for (int i = 0; i < count; i++) in[i] = rank + i;
    if (single) *(float*)in = (float)rank;
    const double start = MPI_Wtime();
    // With the barriers of the calls below, because calls one after the other are another program.
    for (int i = 0; i < kFirst; i++) {
      MPI_Barrier(MPI_COMM_WORLD);
      MPI_Allreduce(in, out, count, type, MPI_SUM, MPI_COMM_WORLD);
    }
    const double first = (MPI_Wtime() - start) * 1e6 / kFirst;
    for (int i = 0; i < calls; i++) {
      const double round = MPI_Wtime();
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      MPI_Allreduce(in, out, count, type, MPI_SUM, MPI_COMM_WORLD);
      const double end = MPI_Wtime();
      times[i] = (end - begin) * 1e6;
      rounds[i] = (end - round) * 1e6;
    }
    for (int i = 0; i < count; i++) {
      const double sum = single ? *(const float*)out : out[i];
      if (sum != size * (double)i + size * (size - 1.0) / 2) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    const double call = slowest(times, calls), both = slowest(rounds, calls);
    const double before = slowest(&first, 1);
    if (rank == 0) {
      printf("%d %.2f %.2f %.2f\n", bytes, call, both, before);
      fflush(stdout);
    }
    free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
