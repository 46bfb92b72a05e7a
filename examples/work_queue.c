/* A queue of work whose items change their owner: work_queue [items] [elements]
 *
 * Rank 0 fills blocks and passes each to whichever rank asks for work; that rank is the block's
 * owner now, computes in place and passes the same block back. Nothing is copied on one node.
 */
#include <stdio.h>
#include <stdlib.h>

#include "overdrive/smpi.h"

enum { kWork, kResult, kEnd };

/* What is to be computed: each number becomes its square. */
static void compute(long* numbers, int count) {
  for (int i = 0; i < count; i++) numbers[i] *= numbers[i];
}

static long master(int items, int elements, int size) {
  long sum = 0;
  int given = 0, working = 0;
  long* block;
  /* Two items for each worker to begin with: one to compute, one that waits. */
  for (int round = 0; round < 2; round++) {
    for (int to = 1; to < size && given < items; to++, given++, working++) {
      SMPI_Alloc((MPI_Aint)sizeof(long) * elements, &block);
      for (int i = 0; i < elements; i++) block[i] = given + i;
      SMPI_Pass(block, elements, MPI_LONG, to, kWork, MPI_COMM_WORLD);
    }
  }
  while (working > 0) {
    SMPI_View view;
    MPI_Status status;
    SMPI_Recv(&view, elements, MPI_LONG, MPI_ANY_SOURCE, kResult, MPI_COMM_WORLD, &status);
    SMPI_View_own(&view, &block);
    working--;
    for (int i = 0; i < elements; i++) sum += block[i];
    if (given == items) {
      SMPI_Free(block);
      continue;
    }
    /* The same block carries the next item. */
    for (int i = 0; i < elements; i++) block[i] = given + i;
    SMPI_Pass(block, elements, MPI_LONG, status.MPI_SOURCE, kWork, MPI_COMM_WORLD);
    given++, working++;
  }
  for (int to = 1; to < size; to++) SMPI_Send(NULL, 0, MPI_LONG, to, kEnd, MPI_COMM_WORLD);
  return sum;
}

static void worker(int elements) {
  for (;;) {
    SMPI_View view;
    MPI_Status status;
    long* block;
    SMPI_Recv(&view, elements, MPI_LONG, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    if (status.MPI_TAG == kEnd) {
      SMPI_View_release(&view);
      return;
    }
    SMPI_View_own(&view, &block);
    compute(block, elements);
    SMPI_Pass(block, elements, MPI_LONG, 0, kResult, MPI_COMM_WORLD);
  }
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int items = argc > 1 ? atoi(argv[1]) : 100, elements = argc > 2 ? atoi(argv[2]) : 1000;
  int rank, size, code = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) {
    fprintf(stderr, "work_queue needs at least 2 ranks\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  SMPI_Comm_attach(MPI_COMM_WORLD);
  if (rank == 0) {
    const long sum = master(items, elements, size);
    long right = 0;
    for (long item = 0; item < items; item++) {
      for (long i = 0; i < elements; i++) right += (item + i) * (item + i);
    }
    code = sum == right ? 0 : 1;
    printf("work_queue: %d ranks, %d items, sum %ld: %s\n", size, items, sum,
           sum == right ? "right" : "WRONG");
  } else {
    worker(elements);
  }
  MPI_Finalize();
  return code;
}
