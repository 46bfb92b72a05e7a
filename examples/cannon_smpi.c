/* Cannon's matrix product with SMPI: cannon_smpi [order] [repetitions]
 *
 * The same as cannon_mpi.c, but blocks of A and B are passed on: their owner changes, the data
 * stays where it is. Ranks of other nodes, and of jobs without Overdrive, get copies.
 */
#include "cannon.h"
#include "overdrive/smpi.h"

/* Passes *block to `to` and gets another one from `from`, both at once for A and B. */
static void shift(MPI_Comm grid, double* blocks[2], int elements, const int to[2],
                  const int from[2]) {
  MPI_Request requests[4];
  SMPI_View views[2];
  for (int i = 0; i < 2; i++) {
    SMPI_Irecv(&views[i], elements, MPI_DOUBLE, from[i], i, grid, &requests[i]);
    SMPI_Ipass(blocks[i], elements, MPI_DOUBLE, to[i], i, grid, &requests[2 + i]);
  }
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < 2; i++) SMPI_View_own(&views[i], &blocks[i]);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int n = argc > 1 ? atoi(argv[1]) : 512, repetitions = argc > 2 ? atoi(argv[2]) : 1;
  const int q = grid_side(n), m = n / q;
  const int dims[2] = {q, q}, periods[2] = {1, 1};
  int code = 0;
  MPI_Comm grid;
  MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
  SMPI_Comm_attach(grid);
  int rank, at[2], left, right, up, down;
  MPI_Comm_rank(grid, &rank);
  MPI_Cart_coords(grid, rank, 2, at);
  MPI_Cart_shift(grid, 1, -1, &right, &left);
  MPI_Cart_shift(grid, 0, -1, &down, &up);
  const int to[2] = {left, up}, from[2] = {right, down};

  const size_t elements = (size_t)m * m;
  double* blocks[2]; /* of A and of B */
  double* c = malloc(elements * sizeof *c);
  SMPI_Alloc((MPI_Aint)(elements * sizeof(double)), &blocks[0]);
  SMPI_Alloc((MPI_Aint)(elements * sizeof(double)), &blocks[1]);
  double* shifts = malloc((size_t)q * sizeof *shifts);
  for (int repetition = 0; repetition < repetitions; repetition++) {
    /* Row i of A is shifted by i from the start, column j of B by j. */
    fill_a(blocks[0], m, at[0], (at[0] + at[1]) % q);
    fill_b(blocks[1], m, (at[0] + at[1]) % q, at[1]);
    for (size_t i = 0; i < elements; i++) c[i] = 0;
    MPI_Barrier(grid);
    const double begin = MPI_Wtime();
    for (int step = 0; step < q; step++) {
      multiply(blocks[0], blocks[1], c, m);
      if (step == q - 1) break;
      const double before = MPI_Wtime();
      shift(grid, blocks, (int)elements, to, from);
      shifts[step] = MPI_Wtime() - before;
    }
    const double whole = MPI_Wtime() - begin;
    code |= report("cannon_smpi", n, whole, shifts, q - 1, error_of(c, m, q, at[0], at[1]));
  }
  SMPI_Free(blocks[0]);
  SMPI_Free(blocks[1]);
  free(c), free(shifts);
  MPI_Comm_free(&grid);
  MPI_Finalize();
  return code;
}
