/* What both versions of Cannon's algorithm share: matrices, local product, clock, result.
 *
 * q * q ranks hold blocks of order n / q. A and B are chosen so that every element of the product
 * is known: A(i,k) = (i+1) w(k), B(k,j) = w(k) (j+1), so C(i,j) = (i+1) (j+1) sum w(k)^2. With
 * -DUSE_CBLAS the local product is cblas_dgemm, else a blocked loop.
 */
#ifndef CANNON_H_
#define CANNON_H_

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef USE_CBLAS
#include <cblas.h>
#endif

static double weight(long k) { return 1.0 / (double)(1 + k % 7); }

/* Fills the block in block row `row` and block column `column`. */
static void fill_a(double* a, int m, int row, int column) {
  for (int i = 0; i < m; i++) {
    for (int k = 0; k < m; k++) {
      a[(size_t)i * m + k] = (double)(row * m + i + 1) * weight((long)column * m + k);
    }
  }
}

static void fill_b(double* b, int m, int row, int column) {
  for (int k = 0; k < m; k++) {
    for (int j = 0; j < m; j++) {
      b[(size_t)k * m + j] = weight((long)row * m + k) * (double)(column * m + j + 1);
    }
  }
}

/* C += A B */
static void multiply(const double* a, const double* b, double* c, int m) {
#ifdef USE_CBLAS
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, m, m, 1.0, a, m, b, m, 1.0, c, m);
#else
  enum { kTile = 64 };
  for (int k0 = 0; k0 < m; k0 += kTile) {
    const int k1 = k0 + kTile < m ? k0 + kTile : m;
    for (int i = 0; i < m; i++) {
      for (int k = k0; k < k1; k++) {
        const double x = a[(size_t)i * m + k];
        for (int j = 0; j < m; j++) c[(size_t)i * m + j] += x * b[(size_t)k * m + j];
      }
    }
  }
#endif
}

/* The largest relative error of the block. */
static double error_of(const double* c, int m, int q, int row, int column) {
  double sum = 0, worst = 0;
  for (long k = 0; k < (long)m * q; k++) sum += weight(k) * weight(k);
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < m; j++) {
      const double right = (double)(row * m + i + 1) * (double)(column * m + j + 1) * sum;
      const double wrong = fabs(c[(size_t)i * m + j] - right) / right;
      if (wrong > worst) worst = wrong;
    }
  }
  return worst;
}

/* Rank 0 prints times and verdict; the result is the program's exit code. `shifts`: the seconds of
 * each of `count` exchanges. All of them together are the communication; most of that is a wait for
 * others that still multiply, above all where ranks share cores. Of each exchange the rank that
 * comes last waits for nobody: the least of all ranks is what the exchange itself takes. */
static int report(const char* name, int n, double whole, double* shifts, int count, double error) {
  double mine[3] = {whole, 0, error}, most[3], without = 0;
  int rank, size;
  for (int i = 0; i < count; i++) mine[1] += shifts[i];
  MPI_Allreduce(MPI_IN_PLACE, shifts, count, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  for (int i = 0; i < count; i++) without += shifts[i];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(mine, most, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  if (rank == 0) {
    printf(
        "%s: order %d, %d ranks, %.6f s, of which communication %.6f s, without waiting %.6f s, "
        "error %.1e: %s\n",
        name, n, size, most[0], most[1], without, most[2], most[2] < 1e-12 ? "right" : "WRONG");
  }
  return most[2] < 1e-12 ? 0 : 1;
}

/* The side of the grid; ends the program when the ranks or the order do not fit. */
static int grid_side(int n) {
  int size, q = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  while (q * q < size) q++;
  if (q * q != size || n % q != 0) {
    fprintf(stderr, "the number of ranks must be a square whose root divides the order\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return q;
}

#endif
