// Conjugate gradients on a line: each iteration exchanges one value with both neighbours and adds
// up two numbers over all ranks. Rank 0 prints a line "8 microseconds" with the median time of an
// iteration on its slowest rank.
//
// Arguments: iterations per solve, then the sums' size, which is 8.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLocal = 500, kSolves = 15 };

static double sum(double mine) {
  double all;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

static int compare(const void* left, const void* right) {
  const double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int iterations = argc > 1 ? atoi(argv[1]) : 100;
  const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  const int right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
  double times[kSolves], all[kSolves], residual = 0, first = 0;
  for (int solve = 0; solve < kSolves; solve++) {
    static double x[kLocal + 2], r[kLocal + 2], p[kLocal + 2], q[kLocal + 2];
    for (int i = 0; i < kLocal + 2; i++) {
      x[i] = q[i] = 0;
      r[i] = p[i] = i > 0 && i <= kLocal ? 1 + (rank + i) % 3 : 0;
    }
    double mine = 0;
    for (int i = 1; i <= kLocal; i++) mine += r[i] * r[i];
    double rr = first = sum(mine);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int iteration = 0; iteration < iterations; iteration++) {
      MPI_Sendrecv(&p[1], 1, MPI_DOUBLE, left, 0, &p[kLocal + 1], 1, MPI_DOUBLE, right, 0,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Sendrecv(&p[kLocal], 1, MPI_DOUBLE, right, 1, &p[0], 1, MPI_DOUBLE, left, 1,
                   MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      mine = 0;
      for (int i = 1; i <= kLocal; i++) {
        q[i] = 2.1 * p[i] - p[i - 1] - p[i + 1];
        mine += p[i] * q[i];
      }
      const double alpha = rr / sum(mine);
      mine = 0;
      for (int i = 1; i <= kLocal; i++) {
        x[i] += alpha * p[i];
        r[i] -= alpha * q[i];
        mine += r[i] * r[i];
      }
      residual = sum(mine);
      const double beta = residual / rr;
      rr = residual;
      for (int i = 1; i <= kLocal; i++) p[i] = r[i] + beta * p[i];
    }
    times[solve] = (MPI_Wtime() - begin) / iterations * 1e6;
  }
  if (!(residual < first)) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Reduce(times, all, kSolves, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    qsort(all, kSolves, sizeof *all, compare);
    printf("8 %.2f\n", all[kSolves / 2]);
  }
  MPI_Finalize();
  return 0;
}
