// Transforms of FFTW's MPI library, as programs use it: there and back, scaled, again and again.
//
// One line per transform, on rank 0: name, median ms of one there and back, checksum of the result.
// Plans are made by estimate, so that all runs transform in the same way.
#include <fftw3-mpi.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRepetitions = 15 };

static int g_rank;

static double value_at(uint64_t index) {
  uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  return (double)((z ^ (z >> 27)) >> 11) * 0x1p-53;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void transform(const char* name, int dimensions, const ptrdiff_t* edge,
                      unsigned transposed) {
  ptrdiff_t points, first, points_1, first_1;
  const ptrdiff_t local = fftw_mpi_local_size_many_transposed(
      dimensions, edge, 1, FFTW_MPI_DEFAULT_BLOCK, FFTW_MPI_DEFAULT_BLOCK, MPI_COMM_WORLD, &points,
      &first, &points_1, &first_1);
  ptrdiff_t row = 1;
  for (int d = 1; d < dimensions; d++) row *= edge[d];
  fftw_complex* const in = fftw_alloc_complex((size_t)local);
  fftw_complex* const out = fftw_alloc_complex((size_t)local);
  const unsigned there_flags = FFTW_ESTIMATE | (transposed ? FFTW_MPI_TRANSPOSED_OUT : 0);
  const unsigned back_flags = FFTW_ESTIMATE | (transposed ? FFTW_MPI_TRANSPOSED_IN : 0);
  fftw_plan there =
      fftw_mpi_plan_dft(dimensions, edge, in, out, MPI_COMM_WORLD, FFTW_FORWARD, there_flags);
  fftw_plan back =
      fftw_mpi_plan_dft(dimensions, edge, out, in, MPI_COMM_WORLD, FFTW_BACKWARD, back_flags);
  for (ptrdiff_t i = 0; i < points * row; i++) {
    const uint64_t at = (uint64_t)(first * row + i);
    in[i][0] = value_at(2 * at);
    in[i][1] = value_at(2 * at + 1);
  }
  const double scale = 1.0 / ((double)edge[0] * (double)row);
  double times[kRepetitions];
  for (int k = -1; k < kRepetitions; k++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    fftw_execute(there);
    fftw_execute(back);
    for (ptrdiff_t i = 0; i < points * row; i++) {
      in[i][0] *= scale;
      in[i][1] *= scale;
    }
    double mine = (MPI_Wtime() - begin) * 1e3, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (k >= 0) times[k] = slowest;
  }
  // Of all bits, in whatever order ranks are added up.
  uint64_t sum = 0, all;
  for (ptrdiff_t i = 0; i < points * row; i++) {
    union {
      double number;
      uint64_t bits;
    } re = {in[i][0]}, im = {in[i][1]};
    sum += (re.bits ^ (im.bits << 1)) * (2 * (uint64_t)(first * row + i) + 1);
  }
  MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  qsort(times, kRepetitions, sizeof(double), ascending);
  if (g_rank == 0) {
    printf("%s %.3f %016llx\n", name, times[kRepetitions / 2], (unsigned long long)all);
  }
  fftw_destroy_plan(there);
  fftw_destroy_plan(back);
  fftw_free(in);
  fftw_free(out);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  fftw_mpi_init();
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  const ptrdiff_t cube[3] = {64, 64, 64}, plane[2] = {512, 512};
  transform("fftw-3d-64", 3, cube, 0);
  transform("fftw-3d-64-transposed", 3, cube, 1);
  transform("fftw-2d-512-transposed", 2, plane, 1);
  fftw_mpi_cleanup();
  MPI_Finalize();
  return 0;
}
