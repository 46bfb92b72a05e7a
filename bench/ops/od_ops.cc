// Measures the reduction kernels against the MPI_Reduce_local of the host it is compiled for.
//
// One rank. Prints lines of comma-separated values: what,kind,operation,bytes,sources,ns with what
// = kernel, host (MPI_Reduce_local), chain (a kernel of two operands applied again and again) or
// stream (kernel with streaming stores). Both sides of a comparison take turns, and the median of
// the turns is printed. Buffers are written before and stay in whichever cache they fit into.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "coll/ops/kernels.h"

namespace {

using namespace od::coll::ops;
using Clock = std::chrono::steady_clock;

constexpr int kTurns = 5;
constexpr double kTurnNs = 150e3;  // long against the clock's resolution, short against interrupts

double elapsed_ns(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// Medians of the time of one call of each, in turns.
std::vector<double> measure(const std::vector<std::function<void()>>& calls) {
  std::vector<long> repeats;
  for (const auto& call : calls) {
    call();  // warm
    const auto begin = Clock::now();
    call();
    repeats.push_back(std::max(1L, static_cast<long>(kTurnNs / (elapsed_ns(begin) + 30))));
  }
  std::vector<std::vector<double>> samples(calls.size());
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto begin = Clock::now();
      for (long n = 0; n < repeats[i]; ++n) calls[i]();
      samples[i].push_back(elapsed_ns(begin) / static_cast<double>(repeats[i]));
    }
  }
  std::vector<double> medians;
  for (auto& each : samples) {
    std::sort(each.begin(), each.end());
    medians.push_back(each[kTurns / 2]);
  }
  return medians;
}

struct Type {
  Kind kind;
  MPI_Datatype handle;
  Category category;
};

struct Operation {
  Op op;
  MPI_Op handle;
};

void print(const char* what, Kind kind, Op op, std::size_t bytes, std::size_t sources, double ns) {
  std::printf("%s,%s,%s,%zu,%zu,%.2f\n", what, name(kind), name(op), bytes, sources, ns);
}

// The hosts' own way: two operands, the result in place of the second.
void compare(const Type& type, const Operation& operation, std::size_t bytes, char* in,
             char* inout) {
  const Kernel kernel = find_kernel(operation.op, type.kind);
  const std::size_t count = bytes / extent_bytes(type.kind);
  const std::vector<double> ns = measure({
      [=] { reduce(kernel, inout, in, count); },
      [=, &type, &operation] {
        MPI_Reduce_local(in, inout, static_cast<int>(count), type.handle, operation.handle);
      },
  });
  print("kernel", type.kind, operation.op, bytes, 2, ns[0]);
  print("host", type.kind, operation.op, bytes, 2, ns[1]);
}

// Several operands read at once against one after the other, and both kinds of stores.
void compare_sources(std::size_t bytes, std::size_t sources) {
  const Kernel kernel = find_kernel(Op::sum, Kind::float64);
  const std::size_t count = bytes / sizeof(double);
  std::vector<std::vector<double>> buffer(sources + 1, std::vector<double>(count, 1.0));
  std::vector<const void*> source;
  for (std::size_t i = 0; i < sources; ++i) source.push_back(buffer[i].data());
  void* const dest = buffer[sources].data();
  const std::vector<double> ns = measure({
      [=, &source] { kernel(dest, source.data(), sources, count, Store::ordinary); },
      [=, &source] {
        combine(kernel, dest, source[0], source[1], count);
        for (std::size_t i = 2; i < sources; ++i) combine(kernel, dest, dest, source[i], count);
      },
      [=, &source] { kernel(dest, source.data(), sources, count, Store::streaming); },
  });
  print("kernel", Kind::float64, Op::sum, bytes, sources, ns[0]);
  print("chain", Kind::float64, Op::sum, bytes, sources, ns[1]);
  print("stream", Kind::float64, Op::sum, bytes, sources, ns[2]);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const bool many_sources = argc > 1 && std::strcmp(argv[1], "--sources") == 0;
  if (many_sources) {
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{4} << 20}) {
      for (const std::size_t sources : {2, 4, 8}) compare_sources(bytes, sources);
    }
    MPI_Finalize();
    return 0;
  }
  using enum Category;
  const Type types[] = {
      {Kind::int8, MPI_INT8_T, c_integer},
      {Kind::uint8, MPI_UINT8_T, c_integer},
      {Kind::int16, MPI_INT16_T, c_integer},
      {Kind::uint16, MPI_UINT16_T, c_integer},
      {Kind::int32, MPI_INT32_T, c_integer},
      {Kind::uint32, MPI_UINT32_T, c_integer},
      {Kind::int64, MPI_INT64_T, c_integer},
      {Kind::uint64, MPI_UINT64_T, c_integer},
      {Kind::float32, MPI_FLOAT, floating_point},
      {Kind::float64, MPI_DOUBLE, floating_point},
      {Kind::long_double, MPI_LONG_DOUBLE, floating_point},
      {Kind::complex_float, MPI_C_FLOAT_COMPLEX, complex},
      {Kind::complex_double, MPI_C_DOUBLE_COMPLEX, complex},
      {Kind::complex_long_double, MPI_C_LONG_DOUBLE_COMPLEX, complex},
      {Kind::boolean, MPI_C_BOOL, logical},
      {Kind::logical32, MPI_LOGICAL, logical},
      {Kind::byte, MPI_BYTE, byte},
      {Kind::float_int, MPI_FLOAT_INT, pair},
      {Kind::double_int, MPI_DOUBLE_INT, pair},
      {Kind::long_int, MPI_LONG_INT, pair},
      {Kind::short_int, MPI_SHORT_INT, pair},
      {Kind::int_int, MPI_2INT, pair},
      {Kind::long_double_int, MPI_LONG_DOUBLE_INT, pair},
      {Kind::float_float, MPI_2REAL, pair},
      {Kind::double_double, MPI_2DOUBLE_PRECISION, pair},
  };
  const Operation operations[] = {
      {Op::max, MPI_MAX},   {Op::min, MPI_MIN},       {Op::sum, MPI_SUM},
      {Op::prod, MPI_PROD}, {Op::land, MPI_LAND},     {Op::band, MPI_BAND},
      {Op::lor, MPI_LOR},   {Op::bor, MPI_BOR},       {Op::lxor, MPI_LXOR},
      {Op::bxor, MPI_BXOR}, {Op::minloc, MPI_MINLOC}, {Op::maxloc, MPI_MAXLOC},
  };
  const std::size_t sizes[] = {4 << 10, 64 << 10, 4 << 20};
  // Zero is a value of every kind and stays one under every operation. As programs have them: large
  // blocks begin 16 bytes after a page.
  std::vector<char> in((4 << 20) + 32), inout((4 << 20) + 32);
  std::printf("kernels,%s\n", variant_name(best_variant()));
  for (const Type& type : types) {
    for (const Operation& operation : operations) {
      if (!standard_allows(operation.op, type.category)) continue;
      for (const std::size_t bytes : sizes) {
        std::fill(in.begin(), in.end(), 0);
        std::fill(inout.begin(), inout.end(), 0);
        compare(type, operation, bytes, in.data(), inout.data());
      }
    }
  }
  MPI_Finalize();
  return 0;
}
