/* Exchange of halos by views: halo [columns] [steps]
 *
 * Heat spreads on a grid whose rows are divided among the ranks. The neighbours' rows are not
 * copied into a border: each rank reads them where they are. Two grids take turns; before a rank
 * writes to one again, its neighbours have released their views of it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "overdrive/smpi.h"

enum { kRows = 64 };

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int columns = argc > 1 ? atoi(argv[1]) : 256, steps = argc > 2 ? atoi(argv[2]) : 100;
  MPI_Comm comm = MPI_COMM_WORLD;
  SMPI_Comm_attach(comm);
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
  const int below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;

  double *grid[2], *cold = calloc((size_t)columns, sizeof *cold);
  for (int i = 0; i < 2; i++) {
    SMPI_Alloc((MPI_Aint)sizeof(double) * kRows * columns, &grid[i]);
    for (int j = 0; j < kRows * columns; j++) grid[i][j] = 0;
  }
  /* One hot spot in the middle of the whole grid. */
  if (rank == size / 2) grid[0][kRows / 2 * columns + columns / 2] = 1e6;

  for (int step = 0; step < steps; step++) {
    const double* now = grid[step % 2];
    double* next = grid[1 - step % 2];
    MPI_Request requests[4];
    SMPI_View views[2];
    const double *upper, *lower;
    SMPI_Irecv(&views[0], columns, MPI_DOUBLE, above, 0, comm, &requests[0]);
    SMPI_Irecv(&views[1], columns, MPI_DOUBLE, below, 1, comm, &requests[1]);
    SMPI_Isend(now, columns, MPI_DOUBLE, above, 1, comm, &requests[2]);
    SMPI_Isend(now + (kRows - 1) * columns, columns, MPI_DOUBLE, below, 0, comm, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    SMPI_View_get(views[0], &upper, MPI_STATUS_IGNORE);
    SMPI_View_get(views[1], &lower, MPI_STATUS_IGNORE);
    if (upper == NULL) upper = cold; /* the edge of the grid */
    if (lower == NULL) lower = cold;
    SMPI_Reclaim(next); /* the neighbours have read what was there one step ago */
    for (int i = 0; i < kRows; i++) {
      const double* middle = now + i * columns;
      const double* over = i > 0 ? middle - columns : upper;
      const double* under = i < kRows - 1 ? middle + columns : lower;
      for (int j = 0; j < columns; j++) {
        const double left = j > 0 ? middle[j - 1] : 0, right = j < columns - 1 ? middle[j + 1] : 0;
        next[i * columns + j] =
            middle[j] + 0.2 * (over[j] + under[j] + left + right - 4 * middle[j]);
      }
    }
    SMPI_View_release(&views[0]);
    SMPI_View_release(&views[1]);
  }

  double heat = 0, all = 0;
  for (int j = 0; j < kRows * columns; j++) heat += grid[steps % 2][j];
  MPI_Reduce(&heat, &all, 1, MPI_DOUBLE, MPI_SUM, 0, comm);
  if (rank == 0) {
    /* No heat is lost as long as it has not come to the edges. */
    const int inside = steps < columns / 2 && steps < kRows * size / 2 - kRows / 2;
    printf("halo: %d ranks, %d steps, heat %.6f: %s\n", size, steps, all,
           !inside || fabs(all - 1e6) < 1e-3 ? "right" : "WRONG");
  }
  SMPI_Reclaim(grid[0]);
  SMPI_Reclaim(grid[1]);
  SMPI_Free(grid[0]);
  SMPI_Free(grid[1]);
  free(cold);
  MPI_Finalize();
  return 0;
}
