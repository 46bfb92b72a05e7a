// CG: the smallest eigenvalue of a sparse symmetric matrix by inverse iteration, each step of which
// solves a system with 25 steps of conjugate gradients. The entries of a row lie all over the
// matrix, so each product needs the vectors of all ranks; sums travel as single numbers.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { kInnerSteps = 25, kMostOffsets = 4, kResultSteps = 3 };
static const double kShift = 10;

typedef struct {
  Team* team;
  int n, rows, offsets;
  size_t first;                       // row
  int *column, *row_start;            // compressed rows
  double *value, *x, *z, *r, *q, *p;  // p holds all n, the others this rank's rows
  double zeta, residual;
} Cg;

static void Destroy(void* state) {
  Cg* cg = state;
  void* arrays[] = {cg->column, cg->row_start, cg->value, cg->x, cg->z, cg->r, cg->q, cg->p, cg};
  for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); ++i) free(arrays[i]);
}

// The entry that joins rows i and i + offset (modulo n), seen from either of them.
static double Entry(const Cg* cg, int i, int offset_index) {
  return UnitRandom((uint64_t)offset_index * (uint64_t)cg->n + (uint64_t)i) - 0.5;
}

static void FillMatrix(Cg* cg) {
  int at = 0;
  for (int row = 0; row < cg->rows; ++row) {
    int i = (int)cg->first + row, diagonal = at++;
    double sum = 0;
    cg->row_start[row] = diagonal;
    for (int k = 0; k < cg->offsets; ++k) {
      // Odd and different, spread over the matrix; i + offset and i - offset never meet.
      int offset = (int)(Scrambled((uint64_t)k) % (uint64_t)(cg->n / 2 - 1)) | 1;
      int above = (i + offset) % cg->n, below = (i + cg->n - offset) % cg->n;
      double up = Entry(cg, i, k), down = Entry(cg, below, k);
      cg->column[at] = above;
      cg->value[at++] = up;
      cg->column[at] = below;
      cg->value[at++] = down;
      sum += fabs(up) + fabs(down);
    }
    // More than the others together: positive definite.
    cg->column[diagonal] = i;
    cg->value[diagonal] = sum + 0.5 + UnitRandom(~(uint64_t)i);
  }
  cg->row_start[cg->rows] = at;
}

static void Restart(Cg* cg) {
  for (int i = 0; i < cg->rows; ++i) cg->x[i] = 1;
}

static void* Create(Team* team, int long_messages) {
  Cg* cg = AllocateOrEnd(sizeof(*cg));
  cg->team = team;
  cg->n = long_messages ? 1 << 16 : 1 << 10;
  cg->offsets = long_messages ? 2 : kMostOffsets;
  if (cg->n % team->ranks != 0) {
    Destroy(cg);
    return NULL;
  }
  cg->rows = cg->n / team->ranks;
  cg->first = (size_t)team->rank * (size_t)cg->rows;
  size_t rows = (size_t)cg->rows, entries = rows * (size_t)(2 * cg->offsets + 1);
  cg->column = AllocateOrEnd(entries * sizeof(int));
  cg->value = AllocateOrEnd(entries * sizeof(double));
  cg->row_start = AllocateOrEnd((rows + 1) * sizeof(int));
  double** vectors[] = {&cg->x, &cg->z, &cg->r, &cg->q};
  for (int i = 0; i < 4; ++i) *vectors[i] = AllocateOrEnd(rows * sizeof(double));
  cg->p = AllocateOrEnd((size_t)cg->n * sizeof(double));
  FillMatrix(cg);
  Restart(cg);
  return cg;
}

// q = A p, with p's own rows up to date on each rank.
static void Multiply(Cg* cg) {
  AllGather(cg->team, cg->p, (size_t)cg->rows * sizeof(double));
  for (int row = 0; row < cg->rows; ++row) {
    double sum = 0;
    for (int k = cg->row_start[row]; k < cg->row_start[row + 1]; ++k) {
      sum += cg->value[k] * cg->p[cg->column[k]];
    }
    cg->q[row] = sum;
  }
}

static double Dot(Cg* cg, const double* a, const double* b) {
  double sum = 0;
  for (int i = 0; i < cg->rows; ++i) sum += a[i] * b[i];
  return Sum(cg->team, sum);
}

// Solves A z = x.
static void Solve(Cg* cg) {
  double* p = cg->p + cg->first;
  for (int i = 0; i < cg->rows; ++i) {
    cg->z[i] = 0;
    cg->r[i] = p[i] = cg->x[i];
  }
  double rho = Dot(cg, cg->r, cg->r);
  for (int step = 0; step < kInnerSteps; ++step) {
    Multiply(cg);
    double alpha = rho / Dot(cg, p, cg->q);
    for (int i = 0; i < cg->rows; ++i) {
      cg->z[i] += alpha * p[i];
      cg->r[i] -= alpha * cg->q[i];
    }
    double next = Dot(cg, cg->r, cg->r), beta = next / rho;
    rho = next;
    for (int i = 0; i < cg->rows; ++i) p[i] = cg->r[i] + beta * p[i];
  }
  memcpy(p, cg->z, (size_t)cg->rows * sizeof(double));
  Multiply(cg);
  double square = 0;
  for (int i = 0; i < cg->rows; ++i) square += (cg->x[i] - cg->q[i]) * (cg->x[i] - cg->q[i]);
  cg->residual = sqrt(Sum(cg->team, square));
}

static void Run(void* state, int64_t iterations) {
  Cg* cg = state;
  for (int64_t i = 0; i < iterations; ++i) {
    Solve(cg);
    cg->zeta = kShift + 1 / Dot(cg, cg->x, cg->z);
    double scale = 1 / sqrt(Dot(cg, cg->z, cg->z));
    for (int row = 0; row < cg->rows; ++row) cg->x[row] = scale * cg->z[row];
  }
}

static double Result(void* state) {
  Cg* cg = state;
  Restart(cg);
  double result = 0;
  for (int step = 0; step < kResultSteps; ++step) {
    double norm = sqrt(Dot(cg, cg->x, cg->x));
    Run(cg, 1);
    Require(cg->residual < 1e-4 * norm, "CG, the system is not solved");
    result += cg->zeta;
  }
  Restart(cg);
  return result;
}

const Kernel kConjugateGradient = {"cg", Create, Destroy, Run, Result, 0};
