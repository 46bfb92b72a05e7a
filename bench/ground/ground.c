// What a waiting or polling rank costs others: microseconds per operation, one line per case.
//
//   ground poll [CASE...]    ring exchanges whose receivers poll; for more ranks than cores
//   ground onesided          passive target access to a rank that waits in a barrier or a receive
//   ground server            requests of all ranks to one server with wildcard receives
//   ground threads           messages of one sender to two receiving threads of rank 1, with a tag
//                            for each thread and with the same for both
//   ground start             the first windows of short messages after MPI_Init
// Common option: --rounds=N.
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, rounds;

static void report(const char* name, double seconds, double operations) {
  double worst = 0;
  MPI_Reduce(&seconds, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%s %.4f\n", name, worst * 1e6 / operations);
    fflush(stdout);
  }
}

// --- poll ----------------------------------------------------------------------------------------

static const char* const kPolls[] = {"test",   "testall", "testany",  "testsome",   "get_status",
                                     "iprobe", "improbe", "ibarrier", "iallreduce", "sparse"};
enum { kPollCount = sizeof kPolls / sizeof kPolls[0] };

// Each rank sends to its right and polls for what comes from its left.
static void ring_round(int kind) {
  char out = 1, in = 0;
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  MPI_Request receive = MPI_REQUEST_NULL, send;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  if (kind < 5) MPI_Irecv(&in, 1, MPI_CHAR, left, 0, MPI_COMM_WORLD, &receive);
  MPI_Isend(&out, 1, MPI_CHAR, right, 0, MPI_COMM_WORLD, &send);
  int flag = 0, index = 0;
  while (!flag) {
    switch (kind) {
      case 0:
        MPI_Test(&receive, &flag, &status);
        break;
      case 1:
        MPI_Testall(1, &receive, &flag, &status);
        break;
      case 2:
        MPI_Testany(1, &receive, &index, &flag, &status);
        break;
      case 3:
        MPI_Testsome(1, &receive, &flag, &index, &status);
        break;
      case 4:
        MPI_Request_get_status(receive, &flag, &status);
        break;
      case 5:
        MPI_Iprobe(left, 0, MPI_COMM_WORLD, &flag, &status);
        break;
      default:
        MPI_Improbe(left, 0, MPI_COMM_WORLD, &flag, &message, &status);
        break;
    }
  }
  if (kind == 4) MPI_Wait(&receive, &status);
  if (kind == 5) MPI_Recv(&in, 1, MPI_CHAR, left, 0, MPI_COMM_WORLD, &status);
  if (kind == 6) MPI_Mrecv(&in, 1, MPI_CHAR, &message, &status);
  MPI_Wait(&send, &status);
}

static void collective_round(int reduce) {
  int mine = rank, sum = 0, flag = 0;
  MPI_Request request;
  if (reduce) {
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  } else {
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
  }
  while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}

// Nobody knows how many messages come: synchronous sends, probes, and a barrier in the background.
static void sparse_round(void) {
  char out[64] = {0}, in[64];
  MPI_Request sends[2], barrier = MPI_REQUEST_NULL;
  for (int i = 0; i < 2; i++) {
    MPI_Issend(out, 64, MPI_CHAR, (rank + 1 + i) % size, 1, MPI_COMM_WORLD, &sends[i]);
  }
  for (int done = 0; !done;) {
    int flag = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag, &status);
    if (flag) MPI_Recv(in, 64, MPI_CHAR, status.MPI_SOURCE, 1, MPI_COMM_WORLD, &status);
    if (barrier == MPI_REQUEST_NULL) {
      MPI_Status statuses[2];
      MPI_Testall(2, sends, &flag, statuses);
      if (flag) MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    } else {
      MPI_Test(&barrier, &done, &status);
    }
  }
}

static void poll_case(int kind) {
  double start = 0;
  for (int round = -20; round < rounds; round++) {
    if (round == 0) {
      MPI_Barrier(MPI_COMM_WORLD);
      start = MPI_Wtime();
    }
    if (kind < 7) ring_round(kind);
    if (kind == 7 || kind == 8) collective_round(kind == 8);
    if (kind == 9) sparse_round();
  }
  report(kPolls[kind], MPI_Wtime() - start, rounds);
}

// --- onesided ------------------------------------------------------------------------------------

enum { kWindowBytes = 256 << 10 };
static char buffer[kWindowBytes], result[kWindowBytes];

static void access_target(int kind, int bytes, MPI_Win win) {
  long one = 1, old;
  switch (kind) {
    case 0:
      MPI_Put(buffer, bytes, MPI_CHAR, 1, 0, bytes, MPI_CHAR, win);
      break;
    case 1:
      MPI_Get(result, bytes, MPI_CHAR, 1, 0, bytes, MPI_CHAR, win);
      break;
    case 2:
      MPI_Accumulate(buffer, bytes, MPI_CHAR, 1, 0, bytes, MPI_CHAR, MPI_SUM, win);
      break;
    case 3:
      MPI_Fetch_and_op(&one, &old, MPI_LONG, 1, 0, MPI_SUM, win);
      break;
    default:
      MPI_Compare_and_swap(&one, &one, &old, MPI_LONG, 1, 0, win);
      break;
  }
}

static void one_sided(void) {
  static const char* const names[] = {"put", "get", "accumulate", "fetch_and_op", "compare_swap"};
  static const int sizes[] = {8, 1024, 32 << 10, 256 << 10};
  void* base;
  MPI_Win win;
  MPI_Win_allocate(kWindowBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
  memset(base, 0, kWindowBytes);
  // Memory that was never written is one page of zeroes, which copies far faster than any other.
  memset(buffer, 0, kWindowBytes);
  memset(result, 0, kWindowBytes);
  for (int waits = 0; waits < 2; waits++) {
    for (int kind = 0; kind < 5; kind++) {
      for (int s = 0; s < (kind < 3 ? 4 : 1); s++) {
        double seconds = 0;
        const int count = sizes[s] > 1024 ? rounds / 10 + 1 : rounds;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
          MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
          double start = 0;
          for (int i = -10; i < count; i++) {
            if (i == 0) start = MPI_Wtime();
            access_target(kind, sizes[s], win);
            MPI_Win_flush(1, win);
          }
          seconds = MPI_Wtime() - start;
          MPI_Win_unlock(1, win);
          if (waits == 1) MPI_Send(NULL, 0, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        } else if (rank == 1 && waits == 1) {
          MPI_Recv(NULL, 0, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        char name[64];
        snprintf(name, sizeof name, "%s_%d_%s", names[kind], sizes[s], waits ? "recv" : "barrier");
        report(name, seconds, count);
      }
    }
  }
  MPI_Win_free(&win);
}

// --- server --------------------------------------------------------------------------------------

static void server(void) {
  double task[16] = {0};
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < rounds * (rank == 0 ? size - 1 : 1); i++) {
    MPI_Status status;
    if (rank == 0) {
      MPI_Recv(task, 16, MPI_DOUBLE, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
      MPI_Send(task, 16, MPI_DOUBLE, status.MPI_SOURCE, 1, MPI_COMM_WORLD);
    } else {
      MPI_Send(task, 16, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
      MPI_Recv(task, 16, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD, &status);
    }
  }
  report("server", MPI_Wtime() - start, rounds * (size - 1));
}

// --- threads -------------------------------------------------------------------------------------

static void* echo(void* argument) {
  const int tag = *(const int*)argument;
  char in;
  for (int i = 0; i < rounds; i++) {
    MPI_Recv(&in, 1, MPI_CHAR, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&in, 1, MPI_CHAR, 0, tag, MPI_COMM_WORLD);
  }
  return NULL;
}

// With a tag for each thread, or the same for both: then either may take a message.
static void threads(const char* name, int same_tag) {
  int tags[2] = {0, same_tag ? 0 : 1};
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  if (rank == 0) {
    char data = 0;
    for (int i = 0; i < 2 * rounds; i++) {
      MPI_Send(&data, 1, MPI_CHAR, 1, tags[i % 2], MPI_COMM_WORLD);
      MPI_Recv(&data, 1, MPI_CHAR, 1, tags[i % 2], MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  } else if (rank == 1) {
    pthread_t thread;
    pthread_create(&thread, NULL, echo, &tags[1]);
    echo(&tags[0]);
    pthread_join(thread, NULL);
  }
  report(name, MPI_Wtime() - start, 4.0 * rounds);
}

// --- start ---------------------------------------------------------------------------------------

enum { kWindow = 64 };

// GB/s would hide what it is about: us per message, of the first 20 windows and of later ones.
static void stream_start(int bytes, const char* when) {
  static MPI_Request requests[kWindow];
  static MPI_Status statuses[kWindow];
  static char data[kWindow][1024];
  char name[64];
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < 20; i++) {
    for (int k = 0; k < kWindow && rank < 2; k++) {
      if (rank == 0) {
        MPI_Isend(data[0], bytes, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &requests[k]);
      } else {
        MPI_Irecv(data[0], bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD, &requests[k]);
      }
    }
    if (rank < 2) MPI_Waitall(kWindow, requests, statuses);
    if (rank == 0) MPI_Recv(NULL, 0, MPI_CHAR, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(NULL, 0, MPI_CHAR, 0, 8, MPI_COMM_WORLD);
  }
  snprintf(name, sizeof name, "stream_%d_%s", bytes, when);
  report(name, MPI_Wtime() - start, 20.0 * kWindow);
}

int main(int argc, char** argv) {
  int provided, cases = 0;
  const char* what = argc > 1 ? argv[1] : "";
  const int level = strcmp(what, "threads") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, level, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  rounds = 1000;
  for (int i = 2; i < argc; i++) {
    if (strncmp(argv[i], "--rounds=", 9) == 0) {
      rounds = atoi(argv[i] + 9);
    } else {
      cases++;
    }
  }
  if (strcmp(what, "poll") == 0) {
    for (int kind = 0; kind < kPollCount; kind++) {
      int wanted = cases == 0;
      for (int i = 2; i < argc; i++) wanted |= strcmp(argv[i], kPolls[kind]) == 0;
      if (wanted) poll_case(kind);
    }
  } else if (strcmp(what, "onesided") == 0 && size > 1) {
    one_sided();
  } else if (strcmp(what, "server") == 0 && size > 1) {
    server();
  } else if (strcmp(what, "threads") == 0 && size > 1 && provided == MPI_THREAD_MULTIPLE) {
    threads("threads", 0);
    threads("threads same tag", 1);
  } else if (strcmp(what, "start") == 0 && size > 1) {
    stream_start(argc > 2 ? atoi(argv[2]) : 1024, "first");
    for (int i = 0; i < 50; i++) stream_start(argc > 2 ? atoi(argv[2]) : 1024, "later");
  } else if (rank == 0) {
    fprintf(stderr, "ground: nothing to do for '%s' with %d ranks\n", what, size);
  }
  MPI_Finalize();
  return 0;
}
