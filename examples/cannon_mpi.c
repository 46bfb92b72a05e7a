/* Cannon's matrix product with plain MPI: cannon_mpi [order] [repetitions]
 *
 * In each of q steps a rank multiplies the blocks that it has, sends its block of A to the left and
 * its block of B upwards, and receives others. Two buffers for each, so that nothing is copied
 * here.
 */
#include "cannon.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int n = argc > 1 ? atoi(argv[1]) : 512, repetitions = argc > 2 ? atoi(argv[2]) : 1;
  const int q = grid_side(n), m = n / q;
  const int dims[2] = {q, q}, periods[2] = {1, 1};
  int code = 0;
  MPI_Comm grid;
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  int rank, at[2], left, right, up, down;
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_coords(grid, rank, 2, at);
  MPI_Cart_shift(grid, 1, -1, &right, &left);
  MPI_Cart_shift(grid, 0, -1, &down, &up);

  const size_t elements = (size_t)m * m;
  double *a = malloc(elements * sizeof *a), *next_a = malloc(elements * sizeof *a);
  double *b = malloc(elements * sizeof *b), *next_b = malloc(elements * sizeof *b);
  double* c = malloc(elements * sizeof *c);
  double* shifts = malloc((size_t)q * sizeof *shifts);
  for (int repetition = 0; repetition < repetitions; repetition++) {
    /* Row i of A is shifted by i from the start, column j of B by j. */
    fill_a(a, m, at[0], (at[0] + at[1]) % q);
    fill_b(b, m, (at[0] + at[1]) % q, at[1]);
    for (size_t i = 0; i < elements; i++) c[i] = 0;
    MPI_Barrier(grid);
    const double begin = MPI_Wtime();
    for (int step = 0; step < q; step++) {
      multiply(a, b, c, m);
      if (step == q - 1) break;
      const double before = MPI_Wtime();
      MPI_Request requests[4];
      MPI_Irecv(next_a, (int)elements, MPI_DOUBLE, right, 0, grid, &requests[0]);
      MPI_Irecv(next_b, (int)elements, MPI_DOUBLE, down, 1, grid, &requests[1]);
      MPI_Isend(a, (int)elements, MPI_DOUBLE, left, 0, grid, &requests[2]);
      MPI_Isend(b, (int)elements, MPI_DOUBLE, up, 1, grid, &requests[3]);
      MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
      double* swap = a;
      a = next_a, next_a = swap;
      swap = b, b = next_b, next_b = swap;
      shifts[step] = MPI_Wtime() - before;
    }
    const double whole = MPI_Wtime() - begin;
    code |= report("cannon_mpi", n, whole, shifts, q - 1, error_of(c, m, q, at[0], at[1]));
  }
  free(a), free(b), free(c), free(next_a), free(next_b), free(shifts);
  MPI_Comm_free(&grid);
  MPI_Finalize();
  return code;
}
