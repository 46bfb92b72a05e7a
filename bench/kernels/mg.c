// MG: Poisson's equation on a periodic cube by multigrid V-cycles. Each sweep over a grid is
// followed by an exchange of boundary planes with both neighbours, on grids from fine to coarse.
//
// Each rank has some planes of each grid, with one more layer around it on every side.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { kCoarsest = 8, kMostLevels = 6, kMostEdge = 64, kCharges = 10, kCyclesBeforeRestart = 8 };

// Weights of the 27 points of a cube by their distance from the middle: itself, faces, edges,
// corners.
typedef double Weights[4];
static const Weights kOperator = {-8.0 / 3, 0, 1.0 / 6, 1.0 / 12};
static const Weights kSmoother = {-3.0 / 8, 1.0 / 32, -1.0 / 64, 0};

typedef struct {
  int n, planes;  // without the surrounding layer
  size_t row, plane, points;
  double *u, *r;  // solution or correction, and residual
} Grid;

typedef struct {
  Team* team;
  int levels, cycles;
  Grid grids[kMostLevels];  // from fine to coarse
  double *charge, *scratch;
} Mg;

static void Destroy(void* state) {
  Mg* mg = state;
  for (int level = 0; level < mg->levels; ++level) {
    free(mg->grids[level].u);
    free(mg->grids[level].r);
  }
  free(mg->charge);
  free(mg->scratch);
  free(mg);
}

static size_t At(const Grid* grid, int z, int y, int x) {
  return (size_t)z * grid->plane + (size_t)y * grid->row + (size_t)x;
}

// Makes the surrounding layer what the periodic cube has there.
static void FillBorder(Mg* mg, const Grid* grid, double* a) {
  int n = grid->n;
  for (int z = 1; z <= grid->planes; ++z) {
    for (int y = 1; y <= n; ++y) {
      a[At(grid, z, y, 0)] = a[At(grid, z, y, n)];
      a[At(grid, z, y, n + 1)] = a[At(grid, z, y, 1)];
    }
    memcpy(&a[At(grid, z, 0, 0)], &a[At(grid, z, n, 0)], grid->row * sizeof(double));
    memcpy(&a[At(grid, z, n + 1, 0)], &a[At(grid, z, 1, 0)], grid->row * sizeof(double));
  }
  Team* team = mg->team;
  int above = (team->rank + 1) % team->ranks, below = (team->rank + team->ranks - 1) % team->ranks;
  size_t bytes = grid->plane * sizeof(double);
  Exchange(team, &a[At(grid, grid->planes, 0, 0)], bytes, above, &a[0], bytes, below);
  Exchange(team, &a[At(grid, 1, 0, 0)], bytes, below, &a[At(grid, grid->planes + 1, 0, 0)], bytes,
           above);
}

// out = base + sign * (weights applied to a); out may be base. The four neighbours of a line, and
// the four lines at the edges, are added once for three points each.
static void Apply(const Grid* grid, const Weights w, const double* a, const double* base,
                  double sign, double* out) {
  int n = grid->n;
  double near[kMostEdge + 2], diagonal[kMostEdge + 2];
  for (int z = 1; z <= grid->planes; ++z) {
    for (int y = 1; y <= n; ++y) {
      const double* line = &a[At(grid, z, y, 0)];
      const double *north = line + grid->row, *south = line - grid->row;
      const double *up = line + grid->plane, *down = line - grid->plane;
      for (int x = 0; x <= n + 1; ++x) {
        near[x] = north[x] + south[x] + up[x] + down[x];
        diagonal[x] = north[x + (int)grid->plane] + south[x + (int)grid->plane] +
                      north[x - (int)grid->plane] + south[x - (int)grid->plane];
      }
      const double* from = &base[At(grid, z, y, 0)];
      double* to = &out[At(grid, z, y, 0)];
      for (int x = 1; x <= n; ++x) {
        to[x] = from[x] + sign * (w[0] * line[x] + w[1] * (line[x - 1] + line[x + 1] + near[x]) +
                                  w[2] * (diagonal[x] + near[x - 1] + near[x + 1]) +
                                  w[3] * (diagonal[x - 1] + diagonal[x + 1]));
      }
    }
  }
}

// r = v - A u
static void Residual(Mg* mg, const Grid* grid, const double* u, const double* v, double* r) {
  Apply(grid, kOperator, u, v, -1, r);
  FillBorder(mg, grid, r);
}

// u = u + S r
static void Smooth(Mg* mg, const Grid* grid) {
  Apply(grid, kSmoother, grid->r, grid->u, 1, grid->u);
  FillBorder(mg, grid, grid->u);
}

// The coarse residual: each point a mean of the 27 fine ones around it, nearer ones counting more.
static void Restrict(Mg* mg, const Grid* fine, const Grid* coarse) {
  static const double kWeight[4] = {0.5, 0.25, 0.125, 0.0625};
  for (int z = 1; z <= coarse->planes; ++z) {
    for (int y = 1; y <= coarse->n; ++y) {
      for (int x = 1; x <= coarse->n; ++x) {
        double sum = 0;
        for (int dz = -1; dz <= 1; ++dz) {
          for (int dy = -1; dy <= 1; ++dy) {
            const double* line = &fine->r[At(fine, 2 * z + dz, 2 * y + dy, 2 * x)];
            int distance = (dz != 0) + (dy != 0);
            sum += kWeight[distance] * line[0] + kWeight[distance + 1] * (line[-1] + line[1]);
          }
        }
        coarse->r[At(coarse, z, y, x)] = sum;
      }
    }
  }
  FillBorder(mg, coarse, coarse->r);
}

// Adds the coarse correction to the fine one; points between coarse ones get the mean of these.
static void Prolong(Mg* mg, const Grid* coarse, const Grid* fine) {
  for (int z = 1; z <= fine->planes; ++z) {
    int z1 = z / 2, z2 = (z + 1) / 2;
    for (int y = 1; y <= fine->n; ++y) {
      int y1 = y / 2, y2 = (y + 1) / 2;
      const double *a = &coarse->u[At(coarse, z1, y1, 0)], *b = &coarse->u[At(coarse, z1, y2, 0)];
      const double *c = &coarse->u[At(coarse, z2, y1, 0)], *d = &coarse->u[At(coarse, z2, y2, 0)];
      double* to = &fine->u[At(fine, z, y, 0)];
      for (int x = 1; x <= fine->n; ++x) {
        int x1 = x / 2, x2 = (x + 1) / 2;
        to[x] += 0.125 * (a[x1] + a[x2] + b[x1] + b[x2] + c[x1] + c[x2] + d[x1] + d[x2]);
      }
    }
  }
  FillBorder(mg, fine, fine->u);
}

static double Norm(Mg* mg, const Grid* grid, const double* a) {
  double sum = 0;
  for (int z = 1; z <= grid->planes; ++z) {
    for (int y = 1; y <= grid->n; ++y) {
      const double* line = &a[At(grid, z, y, 0)];
      for (int x = 1; x <= grid->n; ++x) sum += line[x] * line[x];
    }
  }
  return sqrt(Sum(mg->team, sum));
}

static void Restart(Mg* mg) {
  const Grid* finest = &mg->grids[0];
  memset(finest->u, 0, finest->points * sizeof(double));
  memcpy(finest->r, mg->charge, finest->points * sizeof(double));
  mg->cycles = 0;
}

static void SetCharges(Mg* mg) {
  const Grid* grid = &mg->grids[0];
  int first = mg->team->rank * grid->planes;
  uint64_t cube = (uint64_t)grid->n * (uint64_t)grid->n * (uint64_t)grid->n;
  for (int i = 0; i < 2 * kCharges; ++i) {
    int at = (int)(Scrambled((uint64_t)i) % cube);
    int x = at % grid->n, y = at / grid->n % grid->n, z = at / grid->n / grid->n - first;
    if (z >= 0 && z < grid->planes) {
      mg->charge[At(grid, z + 1, y + 1, x + 1)] = i < kCharges ? -1 : 1;
    }
  }
  FillBorder(mg, grid, mg->charge);
}

static void* Create(Team* team, int long_messages) {
  int n = long_messages ? kMostEdge : 16;
  if (kCoarsest % team->ranks != 0) return NULL;
  Mg* mg = AllocateOrEnd(sizeof(*mg));
  mg->team = team;
  for (; n >= kCoarsest; n /= 2) {
    Grid* grid = &mg->grids[mg->levels++];
    size_t row = (size_t)n + 2;
    *grid = (Grid){.n = n, .planes = n / team->ranks, .row = row, .plane = row * row};
    grid->points = ((size_t)grid->planes + 2) * grid->plane;
    grid->u = AllocateOrEnd(grid->points * sizeof(double));
    grid->r = AllocateOrEnd(grid->points * sizeof(double));
  }
  mg->charge = AllocateOrEnd(mg->grids[0].points * sizeof(double));
  mg->scratch = AllocateOrEnd(mg->grids[0].points * sizeof(double));
  SetCharges(mg);
  Restart(mg);
  return mg;
}

static void Cycle(Mg* mg) {
  for (int level = 0; level + 1 < mg->levels; ++level) {
    Restrict(mg, &mg->grids[level], &mg->grids[level + 1]);
  }
  for (int level = mg->levels - 1; level >= 0; --level) {
    Grid* grid = &mg->grids[level];
    if (level > 0) memset(grid->u, 0, grid->points * sizeof(double));
    if (level + 1 < mg->levels) {
      Prolong(mg, &mg->grids[level + 1], grid);
      // What the correction leaves over: of the charges on the finest grid, else of the residual.
      const double* right = grid->r;
      if (level == 0) {
        right = mg->charge;
      } else {
        memcpy(mg->scratch, grid->r, grid->points * sizeof(double));
        right = mg->scratch;
      }
      Residual(mg, grid, grid->u, right, grid->r);
    }
    Smooth(mg, grid);
  }
  Residual(mg, &mg->grids[0], mg->grids[0].u, mg->charge, mg->grids[0].r);
}

static void Run(void* state, int64_t iterations) {
  Mg* mg = state;
  for (int64_t i = 0; i < iterations; ++i) {
    if (mg->cycles++ == kCyclesBeforeRestart) Restart(mg);
    Cycle(mg);
  }
}

static double Result(void* state) {
  enum { kCycles = 4 };
  Mg* mg = state;
  Restart(mg);
  double before = Norm(mg, &mg->grids[0], mg->grids[0].r);
  Run(mg, kCycles);
  double after = Norm(mg, &mg->grids[0], mg->grids[0].r);
  double solution = Norm(mg, &mg->grids[0], mg->grids[0].u);
  Require(after < 0.05 * before, "MG, the cycles do not converge");
  Restart(mg);
  return after / before + solution;
}

const Kernel kMultigrid = {"mg", Create, Destroy, Run, Result, 0};
