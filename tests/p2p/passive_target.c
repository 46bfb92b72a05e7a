// One-sided programs as Global Arrays makes them (ARMCI over MPI): a window that lives as long as
// the program, locked by all, a shared counter that hands out work, accumulates, gets and flushes,
// while the targets wait in a barrier, a receive or a collective of which the one-sided part knows
// nothing.
#include "odtest.h"

enum { kCells = 512, kTasksPerRank = 40 };

static double* cells;
static long* counter;
static MPI_Win data_window, counter_window;

static long next_task(void) {
  const long one = 1;
  long task = -1;
  MUST(MPI_Fetch_and_op(&one, &task, MPI_LONG, 0, 0, MPI_SUM, counter_window));
  MUST(MPI_Win_flush(0, counter_window));
  return task;
}

// Each task adds 1 to every cell of one rank; all but rank 0 take tasks.
static void work(long tasks) {
  double ones[kCells];
  for (int i = 0; i < kCells; i++) ones[i] = 1;
  for (;;) {
    const long task = next_task();
    if (task >= tasks) return;
    const int target = (int)(task % odt.size);
    const int cells_now = task % 3 == 0 ? kCells : 8 + (int)(task % 5);
    MUST(MPI_Accumulate(ones, cells_now, MPI_DOUBLE, target, 0, cells_now, MPI_DOUBLE, MPI_SUM,
                        data_window));
    MUST(MPI_Win_flush(target, data_window));
    double first = -1;
    MUST(MPI_Get(&first, 1, MPI_DOUBLE, target, 0, 1, MPI_DOUBLE, data_window));
    MUST(MPI_Win_flush(target, data_window));
    CHECK(first >= 1 && first <= (double)tasks, "first cell of %d is %g", target, first);
  }
}

// What rank 0 waits in while the others work.
enum { kBarrier, kReceive, kAllreduce, kWaits };

static void one_round(int wait, long tasks) {
  memset(cells, 0, kCells * sizeof *cells);
  *counter = 0;
  MUST(MPI_Win_sync(data_window));
  MUST(MPI_Win_sync(counter_window));
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  if (odt.rank != 0) work(tasks);
  if (wait == kBarrier) {
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  } else if (wait == kAllreduce) {
    long one = 1, sum = 0;
    MUST(MPI_Allreduce(&one, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == odt.size, "sum %ld", sum);
  } else if (odt.rank == 0) {
    for (int i = 1; i < odt.size; i++) {
      MUST(MPI_Recv(NULL, 0, MPI_BYTE, i, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
  } else {
    MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 3, MPI_COMM_WORLD));
  }
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  MUST(MPI_Win_sync(data_window));
  long here = 0;
  for (long task = 0; task < tasks; task++) here += task % odt.size == odt.rank;
  CHECK(cells[0] == (double)here, "%g of %ld tasks, waiting in %d", cells[0], here, wait);
  MUST(MPI_Barrier(MPI_COMM_WORLD));
}

int main(int argc, char** argv) {
  odt_start("passive_target", &argc, &argv);
  MUST(MPI_Win_allocate(kCells * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD,
                        &cells, &data_window));
  MUST(MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &counter,
                        &counter_window));
  MUST(MPI_Win_lock_all(0, data_window));
  MUST(MPI_Win_lock_all(0, counter_window));
  const long tasks = odt_number("tasks", kTasksPerRank) * odt.size;
  for (int wait = 0; wait < kWaits; wait++) one_round(wait, tasks);
  MUST(MPI_Win_unlock_all(counter_window));
  MUST(MPI_Win_unlock_all(data_window));
  MUST(MPI_Win_free(&counter_window));
  MUST(MPI_Win_free(&data_window));
  return odt_finish();
}
