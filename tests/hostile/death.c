// A rank ends in a way that MPI does not foresee while others wait for it: --how says which way.
//   kill    SIGKILL          segv   a wild store      exit   exit(0) without MPI_Finalize
//   abort   abort()
// --wait says what the others are doing: recv, wait, waitall, probe, ssend, any, barrier, bcast
// (with
//   the victim inside, the first one of its node, and the root later), first (the same, in the
//   first collective of all).
// --note=FILE is where the victim writes the wall-clock time of its end beforehand.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "odtest.h"

// The victim's end, after a moment.
static void* End(void* unused) {
  (void)unused;
  const char* how = odt_option("how", "kill");
  odt_sleep_ms(300);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  // Not printed: a launcher that ends the job need not pass on what was printed just before.
  FILE* note = fopen(odt_option("note", "/dev/null"), "w");
  if (note != NULL) {
    fprintf(note, "%ld.%03ld\n", (long)now.tv_sec, now.tv_nsec / 1000000);
    fclose(note);
  }
  if (strcmp(how, "kill") == 0) kill(getpid(), SIGKILL);
  if (strcmp(how, "segv") == 0) *(volatile int*)8 = 1;
  if (strcmp(how, "abort") == 0) abort();
  _exit(0);
}

int main(int argc, char** argv) {
  odt_start("death", &argc, &argv);
  const char* waiting = odt_option("wait", "recv");
  const int victim = odt.size - 1;
  char byte = 0;
  static char large[1 << 20];
  // Everybody has talked to everybody before.
  for (int i = 0; i < 10; i++) {
    int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
    MPI_Sendrecv(&byte, 1, MPI_BYTE, right, 1, &byte, 1, MPI_BYTE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  }
  if (strcmp(waiting, "bcast") == 0 || strcmp(waiting, "first") == 0) {
    pthread_t end;
    // What such calls need is made in the first one.
    if (waiting[0] == 'b') MPI_Bcast(large, sizeof large, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (odt.rank == victim && pthread_create(&end, NULL, End, NULL) != 0) return 1;
    if (odt.rank != victim) odt_sleep_ms(odt.rank == 0 ? 1000 : 100);
    MPI_Bcast(large, sizeof large, MPI_BYTE, 0, MPI_COMM_WORLD);
    printf("rank %d went on\n", odt.rank);
    return 0;
  }
  if (odt.rank == victim) End(NULL);
  MPI_Request requests[2];
  if (strcmp(waiting, "recv") == 0) {
    MPI_Recv(&byte, 1, MPI_BYTE, victim, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (strcmp(waiting, "any") == 0) {
    MPI_Recv(&byte, 1, MPI_BYTE, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (strcmp(waiting, "wait") == 0) {
    MPI_Irecv(&byte, 1, MPI_BYTE, victim, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  } else if (strcmp(waiting, "waitall") == 0) {
    MPI_Irecv(&byte, 1, MPI_BYTE, victim, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&byte, 1, MPI_BYTE, victim, 3, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  } else if (strcmp(waiting, "probe") == 0) {
    MPI_Probe(victim, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (strcmp(waiting, "ssend") == 0) {
    MPI_Ssend(large, sizeof large, MPI_BYTE, victim, 2, MPI_COMM_WORLD);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
  }
  printf("rank %d went on\n", odt.rank);
  return 0;
}
