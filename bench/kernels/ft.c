// FT: the heat equation in a cube, solved by Fourier transforms. Per iteration the spectrum is
// advanced by one step of time and transformed back; the transposition between the transforms along
// z and those along y and x sends everything to everybody.
//
// Layouts: in space a rank has some planes, [z][y][x]; the spectrum is divided along y, [y][x][z].
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { kChecksumPoints = 1024, kStepsBeforeRestart = 20, kResultSteps = 3, kMostLength = 256 };
static const double kPi = 3.14159265358979323846, kAlpha = 1e-6;

typedef struct {
  double re, im;
} Complex;

typedef struct {
  Team* team;
  int n, planes;  // edge of the cube, and planes of this rank
  size_t points;  // of this rank
  Complex *start, *spectrum, *work, *space, *packed;
  double* factor;              // by which one step of time multiplies the spectrum
  Complex roots[kMostLength];  // exp(2 pi i k / n), k < n
  int step;
  Complex checksum;
} Ft;

// In place transform of `line` (n a power of two), sign +1 or -1, without scaling; `other` is room
// for n numbers. Stockham's algorithm: every pass halves the number of interleaved transforms.
static void TransformLine(const Complex* roots, int n, int sign, Complex* line, Complex* other) {
  Complex *from = line, *to = other;
  for (int half = n / 2, stride = 1; half >= 1; half /= 2, stride *= 2) {
    for (int p = 0; p < half; ++p) {
      Complex w = roots[p * stride];
      w.im *= sign;
      const Complex *a = from + (size_t)p * (size_t)stride, *b = a + (size_t)half * (size_t)stride;
      Complex *even = to + 2 * (size_t)p * (size_t)stride, *odd = even + stride;
      for (int q = 0; q < stride; ++q) {
        double re = a[q].re - b[q].re, im = a[q].im - b[q].im;
        even[q].re = a[q].re + b[q].re;
        even[q].im = a[q].im + b[q].im;
        odd[q].re = re * w.re - im * w.im;
        odd[q].im = re * w.im + im * w.re;
      }
    }
    Complex* held = from;
    from = to;
    to = held;
  }
  if (from != line) memcpy(line, from, (size_t)n * sizeof(Complex));
}

// Transforms each of the rank's planes along its inner two dimensions, or along the inner one only.
static void TransformPlanes(Ft* ft, Complex* data, int sign, int both) {
  size_t n = (size_t)ft->n;
  Complex column[kMostLength], other[kMostLength];
  for (int plane = 0; plane < ft->planes; ++plane) {
    Complex* at = data + (size_t)plane * n * n;
    for (size_t row = 0; row < n; ++row) {
      TransformLine(ft->roots, ft->n, sign, at + row * n, other);
    }
    for (size_t x = 0; both && x < n; ++x) {
      for (size_t y = 0; y < n; ++y) column[y] = at[y * n + x];
      TransformLine(ft->roots, ft->n, sign, column, other);
      for (size_t y = 0; y < n; ++y) at[y * n + x] = column[y];
    }
  }
}

// [z][y][x] divided along z becomes [y][x][z] divided along y.
static void SpaceToSpectrum(Ft* ft, const Complex* space, Complex* spectrum) {
  size_t n = (size_t)ft->n, planes = (size_t)ft->planes, block = planes * planes * n;
  for (size_t z = 0; z < planes; ++z) {
    for (size_t y = 0; y < n; ++y) {
      Complex* to = ft->packed + y / planes * block + (y % planes) * n * planes + z;
      for (size_t x = 0; x < n; ++x) to[x * planes] = space[(z * n + y) * n + x];
    }
  }
  AllToAll(ft->team, ft->packed, ft->work, block * sizeof(Complex));
  for (size_t from = 0; from < n / planes; ++from) {
    for (size_t line = 0; line < planes * n; ++line) {
      memcpy(spectrum + line * n + from * planes, ft->work + from * block + line * planes,
             planes * sizeof(Complex));
    }
  }
}

static void SpectrumToSpace(Ft* ft, const Complex* spectrum, Complex* space) {
  size_t n = (size_t)ft->n, planes = (size_t)ft->planes, block = planes * planes * n;
  for (size_t to = 0; to < n / planes; ++to) {
    for (size_t line = 0; line < planes * n; ++line) {
      memcpy(ft->packed + to * block + line * planes, spectrum + line * n + to * planes,
             planes * sizeof(Complex));
    }
  }
  AllToAll(ft->team, ft->packed, ft->work, block * sizeof(Complex));
  // Block by block, each from its beginning: the [y][x][z] of one rank.
  for (size_t from = 0; from < n / planes; ++from) {
    for (size_t y = 0; y < planes; ++y) {
      const Complex* at = ft->work + from * block + y * n * planes;
      for (size_t z = 0; z < planes; ++z) {
        Complex* to = space + (z * n + from * planes + y) * n;
        for (size_t x = 0; x < n; ++x) to[x] = at[x * planes + z];
      }
    }
  }
}

static void Forward(Ft* ft, Complex* space, Complex* spectrum) {
  TransformPlanes(ft, space, -1, 1);
  SpaceToSpectrum(ft, space, spectrum);
  TransformPlanes(ft, spectrum, -1, 0);
}

static void Backward(Ft* ft, Complex* spectrum, Complex* space) {
  TransformPlanes(ft, spectrum, 1, 0);
  SpectrumToSpace(ft, spectrum, space);
  TransformPlanes(ft, space, 1, 1);
}

static void SetStart(Ft* ft, Complex* space) {
  uint64_t first = (uint64_t)ft->team->rank * ft->points;
  for (size_t i = 0; i < ft->points; ++i) {
    space[i].re = UnitRandom(2 * (first + i));
    space[i].im = UnitRandom(2 * (first + i) + 1);
  }
}

// The transform of a line against the sum that defines it.
static void CheckLine(const Ft* ft) {
  Complex line[kMostLength], other[kMostLength];
  int n = ft->n;
  for (int i = 0; i < n; ++i) line[i] = (Complex){UnitRandom((uint64_t)i), 0};
  TransformLine(ft->roots, n, -1, line, other);
  for (int k = 0; k < n; k += n / 8) {
    double re = 0, im = 0;
    for (int i = 0; i < n; ++i) {
      re += UnitRandom((uint64_t)i) * cos(2 * kPi * i * k / n);
      im -= UnitRandom((uint64_t)i) * sin(2 * kPi * i * k / n);
    }
    Require(fabs(re - line[k].re) + fabs(im - line[k].im) < 1e-9, "FT, transform of a line");
  }
}

static void CheckRoundTrip(Ft* ft) {
  double scale = 1.0 / ((double)ft->n * ft->n * ft->n);
  SetStart(ft, ft->space);
  Forward(ft, ft->space, ft->spectrum);
  Backward(ft, ft->spectrum, ft->space);
  SetStart(ft, ft->work);
  for (size_t i = 0; i < ft->points; ++i) {
    double difference = fabs(ft->space[i].re * scale - ft->work[i].re) +
                        fabs(ft->space[i].im * scale - ft->work[i].im);
    Require(difference < 1e-10, "FT, there and back");
  }
}

static void Restart(Ft* ft) {
  memcpy(ft->spectrum, ft->start, ft->points * sizeof(Complex));
  ft->step = 0;
}

static void Destroy(void* state);

static void* Create(Team* team, int long_messages) {
  Ft* ft = AllocateOrEnd(sizeof(*ft));
  ft->team = team;
  ft->n = long_messages ? 64 : 16;
  if (ft->n % team->ranks != 0) {
    Destroy(ft);
    return NULL;
  }
  ft->planes = ft->n / team->ranks;
  size_t n = (size_t)ft->n;
  ft->points = n * n * (size_t)ft->planes;
  Complex** arrays[] = {&ft->start, &ft->spectrum, &ft->work, &ft->space, &ft->packed};
  for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); ++i) {
    *arrays[i] = AllocateOrEnd(ft->points * sizeof(Complex));
  }
  ft->factor = AllocateOrEnd(ft->points * sizeof(double));
  for (int k = 0; k < ft->n; ++k) {
    ft->roots[k] = (Complex){cos(2 * kPi * k / ft->n), sin(2 * kPi * k / ft->n)};
  }
  for (size_t i = 0; i < ft->points; ++i) {
    int index[3] = {(int)(i % n), (int)(i / n % n), (int)(i / n / n) + team->rank * ft->planes};
    double square = 0;
    for (int d = 0; d < 3; ++d) {
      int wave = index[d] < ft->n / 2 ? index[d] : index[d] - ft->n;
      square += (double)wave * wave;
    }
    ft->factor[i] = exp(-4 * kAlpha * kPi * kPi * square);
  }
  SetStart(ft, ft->space);
  Forward(ft, ft->space, ft->start);
  Restart(ft);
  return ft;
}

static void Destroy(void* state) {
  Ft* ft = state;
  void* arrays[] = {ft->start, ft->spectrum, ft->work, ft->space, ft->packed, ft->factor, ft};
  for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); ++i) free(arrays[i]);
}

static void Checksum(Ft* ft) {
  double re = 0, im = 0, scale = 1.0 / ((double)ft->n * ft->n * ft->n);
  for (int j = 1; j <= kChecksumPoints; ++j) {
    int x = j % ft->n, y = 3 * j % ft->n, z = 5 * j % ft->n - ft->team->rank * ft->planes;
    if (z < 0 || z >= ft->planes) continue;
    const Complex* at =
        &ft->space[((size_t)z * (size_t)ft->n + (size_t)y) * (size_t)ft->n + (size_t)x];
    re += at->re * scale;
    im += at->im * scale;
  }
  ft->checksum = (Complex){Sum(ft->team, re), Sum(ft->team, im)};
}

static void Run(void* state, int64_t iterations) {
  Ft* ft = state;
  for (int64_t i = 0; i < iterations; ++i) {
    if (ft->step++ == kStepsBeforeRestart) Restart(ft);
    for (size_t k = 0; k < ft->points; ++k) {
      ft->spectrum[k].re *= ft->factor[k];
      ft->spectrum[k].im *= ft->factor[k];
    }
    // The transform overwrites what it works on, and the spectrum is needed again.
    memcpy(ft->space, ft->spectrum, ft->points * sizeof(Complex));
    Complex* transformed = ft->space;
    TransformPlanes(ft, transformed, 1, 0);
    SpectrumToSpace(ft, transformed, ft->space);
    TransformPlanes(ft, ft->space, 1, 1);
    Checksum(ft);
  }
}

static double Result(void* state) {
  Ft* ft = state;
  CheckLine(ft);
  CheckRoundTrip(ft);
  Restart(ft);
  double result = 0;
  for (int i = 0; i < kResultSteps; ++i) {
    Run(ft, 1);
    result += ft->checksum.re + 2 * ft->checksum.im;
  }
  Restart(ft);
  return result;
}

const Kernel kFourierTransform = {"ft", Create, Destroy, Run, Result, 1};
