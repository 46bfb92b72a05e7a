/* Prints for each rank the processors that it may use: in a constructor, which runs before main,
 * and at the end of MPI_Init, when the MPI library has done whatever it does about binding. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>

static cpu_set_t early;

__attribute__((constructor)) static void look(void) { sched_getaffinity(0, sizeof early, &early); }

static int format(char* text, const cpu_set_t* set) {
  int length = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, set)) length += sprintf(text + length, length == 0 ? "%d" : ",%d", cpu);
  }
  return length;
}

int main(int argc, char** argv) {
  char text[2 * 8 * CPU_SETSIZE];
  int rank;
  cpu_set_t late;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  sched_getaffinity(0, sizeof late, &late);
  int length = sprintf(text, "rank %d early ", rank);
  length += format(text + length, &early);
  length += sprintf(text + length, " late ");
  format(text + length, &late);
  puts(text);
  if (rank == 0) puts("PASS affinity");
  MPI_Finalize();
  return 0;
}
