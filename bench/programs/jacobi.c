/* Solves Laplace's equation on a square by Jacobi's method; ranks have bands of rows of different
 * heights, and convergence is tested by a reduction to rank 0, which broadcasts what it has decided
 * together with the parameters of the next steps.
 *
 *   jacobi [N] [STEPS] [EVERY] [TABLE]
 *
 * Odd ranks have twice as many rows. Each step exchanges rows with both neighbours; each EVERY
 * steps the largest change is reduced, and TABLE doubles are broadcast: the decision, and as many
 * coefficients as the next steps need. Prints the seconds, and a checksum. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int n = argc > 1 ? atoi(argv[1]) : 1024, steps = argc > 2 ? atoi(argv[2]) : 400;
  int every = argc > 3 ? atoi(argv[3]) : 4, entries = argc > 4 ? atoi(argv[4]) : 1;
  int shares = 0, before = 0;
  for (int i = 0; i < ranks; ++i) {
    int share = i % 2 ? 2 : 1;
    if (i < rank) before += share;
    shares += share;
  }
  int begin = n * before / shares, end = n * (before + (rank % 2 ? 2 : 1)) / shares;
  int rows = end - begin;
  size_t width = (size_t)n + 2;
  double* old = calloc((size_t)(rows + 2) * width, sizeof(double));
  double* new = calloc((size_t)(rows + 2) * width, sizeof(double));
  double* table = calloc((size_t)entries, sizeof(double));
  if (old == NULL || new == NULL || table == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int i = 0; i < rows + 2; ++i) old[(size_t)i * width] = new[(size_t)i * width] = 1;
  int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
  table[0] = 1;
  MPI_Barrier(MPI_COMM_WORLD);
  double began = MPI_Wtime();
  int done = 0;
  for (; done < steps && table[0] != 0; ++done) {
    MPI_Sendrecv(old + width, (int)width, MPI_DOUBLE, up, 0, old + (size_t)(rows + 1) * width,
                 (int)width, MPI_DOUBLE, down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(old + (size_t)rows * width, (int)width, MPI_DOUBLE, down, 1, old, (int)width,
                 MPI_DOUBLE, up, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double change = 0;
    for (int i = 1; i <= rows; ++i) {
      const double* row = old + (size_t)i * width;
      double* out = new + (size_t)i* width;
      for (int j = 1; j <= n; ++j) {
        out[j] = 0.25 * (row[j - 1] + row[j + 1] + row[j - (int)width] + row[j + (int)width]);
        double difference = fabs(out[j] - row[j]);
        if (difference > change) change = difference;
      }
    }
    double* swapped = old;
    old = new;
    new = swapped;
    if ((done + 1) % every != 0) continue;
    double largest = 0;
    MPI_Reduce(&change, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      for (int i = 1; i < entries; ++i) table[i] = largest * i;
      table[0] = largest > 1e-9 ? 1 : 0;
    }
    MPI_Bcast(table, entries, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  double took = MPI_Wtime() - began, sum = 0, all = 0;
  for (int i = 1; i <= rows; ++i) {
    for (int j = 1; j <= n; ++j) sum += old[(size_t)i * width + (size_t)j];
  }
  MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("seconds %.6f\n", took);
    printf("checksum %.9e %d\n", all, done);
  }
  free(old);
  free(new);
  free(table);
  MPI_Finalize();
  return 0;
}
