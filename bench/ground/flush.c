// What one-sided calls cost that have nothing to wait for: nanoseconds of a flush, of a put of 8
// bytes and of both, the least of many batches, so that other work on the machine hardly shows.
//
//   mpirun -n 2 ./flush        and with `overdrive` in front
//   mpirun -n 2 ./flush mt     with MPI_THREAD_MULTIPLE
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { kBatches = 50, kCalls = 20000, kBytes = 8 };
enum { kFlush, kPut, kBoth, kCases };
static const char* const kNames[] = {"flush", "put", "put+flush"};

static double batch(int what, MPI_Win window) {
  char data[kBytes] = {0};
  const double start = MPI_Wtime();
  for (int i = 0; i < kCalls; i++) {
    if (what != kFlush) MPI_Put(data, kBytes, MPI_CHAR, 1, 0, kBytes, MPI_CHAR, window);
    if (what != kPut) MPI_Win_flush(1, window);
  }
  const double seconds = MPI_Wtime() - start;
  MPI_Win_flush(1, window);
  return seconds;
}

int main(int argc, char** argv) {
  const int threads = argc > 1 && strcmp(argv[1], "mt") == 0;
  int provided, rank;
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  char* memory;
  MPI_Win window;
  MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
    for (int what = 0; what < kCases; what++) {
      double least = batch(what, window);
      for (int i = 1; i < kBatches; i++) {
        const double seconds = batch(what, window);
        if (seconds < least) least = seconds;
      }
      printf("%s %.1f ns\n", kNames[what], least / kCalls * 1e9);
    }
    MPI_Win_unlock(1, window);
  }
  MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}
