/* Broadcasts that start with whoever comes first (OVERDRIVE_ADJUST_BCAST=first_arrival): right data
 * whoever comes when, and nobody waits for a rank that others do not need.
 *
 *   --nodes=00112   node of each rank
 *   --seed=N        of what is drawn by chance
 *   --threads=1     several threads instead of everything else
 *   --late=R        rank R is late for every call, instead of everything else
 *   --places=1      calls from two places in turn, for one of which ranks come late so that the
 *                   algorithm pays, instead of everything else
 *   --random=1      nothing but calls by chance
 *   --later=1       non-blocking broadcasts, instead of everything else
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "by_chance.h"

enum { kMost = 20 << 20, kLateCalls = 6, kToken = 9 };
/* What is learnt is learnt from times: far more than other programs on the machine take away. */
enum { kLateUs = 60000 };
/* Until what is usual has been measured, and then what starts with whoever comes first. */
enum { kCallsToLearn = 160, kAlwaysLateUs = 20000 };

static char Expected(size_t at, uint64_t call) {
  return (char)(at * 7 + (at >> 11) + (at >> 17) + call * 29);
}

/* Number `call`; with `gaps` this rank describes its bytes, a multiple of three, by a type with
 * gaps, which must stay as they are. */
static void Bcast(MPI_Comm comm, int root, size_t bytes, uint64_t call, int gaps, int later) {
  int me;
  MPI_Comm_rank(comm, &me);
  size_t blocks = bytes / 3, room = gaps ? blocks * 5 : bytes;
  char* buffer = malloc(room + 1);
  memset(buffer, 0x55, room + 1);
  for (size_t at = 0; at < bytes && me == root; ++at) {
    buffer[gaps ? at / 3 * 5 + at % 3 : at] = Expected(at, call);
  }
  MPI_Datatype type = MPI_BYTE;
  int count = (int)bytes;
  if (gaps) {
    MPI_Datatype three;
    MPI_Type_contiguous(3, MPI_BYTE, &three);
    MPI_Type_create_resized(three, 0, 5, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&three);
    count = (int)blocks;
  }
  if (later) {
    MPI_Request request;
    MPI_Ibcast(buffer, count, type, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Bcast(buffer, count, type, root, comm);
  }
  for (size_t at = 0; at < bytes; ++at) {
    if (buffer[gaps ? at / 3 * 5 + at % 3 : at] != Expected(at, call))
      Fail("wrong data", (int64_t)at);
  }
  for (size_t at = 0; at < room; ++at) {
    if (gaps && at % 5 >= 3 && buffer[at] != 0x55) Fail("a gap was written", (int64_t)at);
  }
  if (gaps) MPI_Type_free(&type);
  free(buffer);
}

/* Everything by chance: the communicator, the root, the size, and when each rank comes. */
static void Random(int calls) {
  static const size_t kSizes[] = {1, 3, 999, 65536, 65538, 199998, 1 << 20};
  MPI_Comm comms[kComms];
  MakeComms(comms);
  uint64_t common = seed, own = seed * 1000 + (uint64_t)rank;
  for (int call = 0; call < calls; ++call) {
    MPI_Comm comm = comms[Draw(&common) % kComms];
    size_t bytes = kSizes[Draw(&common) % (sizeof(kSizes) / sizeof(kSizes[0]))];
    uint64_t root = Draw(&common);
    int later = Draw(&common) % 8 == 0;
    int size;
    MPI_Comm_size(comm, &size);
    Dawdle(&own);
    int gaps = bytes % 3 == 0 && Draw(&own) % 2 == 0;
    Bcast(comm, (int)(root % (uint64_t)size), bytes, (uint64_t)call, gaps, later);
  }
  FreeComms(comms);
  Report(calls);
}

static int IsAlone(int who) {
  for (int other = 0; other < ranks; ++other) {
    if (other != who && nodes[other] == nodes[who]) return 0;
  }
  return 1;
}

/* Comes when all others have left. */
static void AwaitOthers(int late) {
  if (rank != late) MPI_Send(NULL, 0, MPI_BYTE, late, kToken, MPI_COMM_WORLD);
  for (int other = 0; other < ranks && rank == late; ++other) {
    if (other == late) continue;
    MPI_Recv(NULL, 0, MPI_BYTE, other, kToken, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
}

/* Each rank that is not alone on its node comes when all others have left several calls. */
static int Late(int later) {
  static const size_t kSizes[kLateCalls] = {1 << 20, 100000, 5, 65536, 1 << 20, 700001};
  int cases = 0;
  for (int late = 0; late < ranks; ++late) {
    if (IsAlone(late)) continue;
    for (int root = 0; root < ranks; ++root) {
      if (root == late) continue;
      ++cases;
      if (rank == late) AwaitOthers(late);
      for (int i = 0; i < kLateCalls; ++i) {
        Bcast(MPI_COMM_WORLD, root, kSizes[i], (uint64_t)(late * 100 + root * 10 + i), 0, later);
      }
      if (rank != late) AwaitOthers(late);
    }
  }
  return cases;
}

/* Two communicators that the late rank takes in the other order. */
static void OtherOrder(void) {
  MPI_Comm comms[2];
  for (int i = 0; i < 2; ++i) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    Bcast(comms[i], 0, 1000, 1, 0, 0);
  }
  for (int late = 1; late < ranks; ++late) {
    if (IsAlone(late)) continue;
    if (rank == late) AwaitOthers(late);
    for (int i = 0; i < 2; ++i) {
      int which = rank == late ? 1 - i : i;
      Bcast(comms[which], 0, 300000, (uint64_t)(10 + which), 0, 0);
    }
    if (rank != late) AwaitOthers(late);
  }
  for (int i = 0; i < 2; ++i) MPI_Comm_free(&comms[i]);
}

/* More calls behind than a node keeps. */
static void FarBehind(void) {
  for (int late = 0; late < ranks; ++late) {
    if (rank == late) usleep(20000);
    for (int i = 0; i < 24; ++i) Bcast(MPI_COMM_WORLD, 0, 1 << 20, (uint64_t)i, 0, 0);
  }
}

static void ManyCommunicators(void) {
  for (int i = 0; i < 40; ++i) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    Bcast(comm, i % ranks, 150000, (uint64_t)i, 0, 0);
    MPI_Comm_free(&comm);
  }
}

static void* Thread(void* argument) {
  MPI_Comm comm = *(MPI_Comm*)argument;
  uint64_t own = seed + (uint64_t)rank + (uint64_t)(uintptr_t)argument;
  for (int i = 0; i < 40; ++i) {
    if (Draw(&own) % 2 == 0) usleep((useconds_t)(Draw(&own) % 1000));
    Bcast(comm, i % ranks, i % 3 == 0 ? 500000 : 66000, (uint64_t)i, 0, 0);
  }
  return NULL;
}

static void Threads(void) {
  enum { kThreads = 3 };
  MPI_Comm comms[kThreads];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
  for (int i = 0; i < kThreads; ++i) pthread_create(&threads[i], NULL, Thread, &comms[i]);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < kThreads; ++i) MPI_Comm_free(&comms[i]);
}

/* A rank that comes late to every call, though all have been together just before. */
static void AlwaysLate(int late) {
  for (int i = 0; i < kCallsToLearn; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == late) usleep(kAlwaysLateUs);
    Bcast(MPI_COMM_WORLD, 0, 300000, (uint64_t)i, 0, 0);
  }
}

/* At one place the leader of the second node is late, at the other one the root, for whom all have
 * to wait. */
static void TwoPlaces(void) {
  for (int i = 0; i < kCallsToLearn / 2; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) usleep(kAlwaysLateUs);
    Bcast(MPI_COMM_WORLD, 0, 300000, (uint64_t)i, 0, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) usleep(2 * kAlwaysLateUs);
    Bcast(MPI_COMM_WORLD, 0, 300000, (uint64_t)i, 0, 0);
  }
}

/* Several under way at once, on two communicators, completed in some order. */
static void Outstanding(void) {
  enum { kAtOnce = 6 };
  MPI_Comm comms[2] = {MPI_COMM_WORLD};
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
  uint64_t common = seed, own = seed * 31 + (uint64_t)rank;
  for (int round = 0; round < 40; ++round) {
    MPI_Request requests[kAtOnce];
    char* buffers[kAtOnce];
    size_t lengths[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
      MPI_Comm comm = comms[Draw(&common) % 2];
      int root = (int)(Draw(&common) % (uint64_t)ranks);
      lengths[i] = 1 + Draw(&common) % 400000;
      buffers[i] = malloc(lengths[i]);
      uint64_t call = (uint64_t)(round * kAtOnce + i);
      for (size_t at = 0; at < lengths[i]; ++at) {
        buffers[i][at] = rank == root ? Expected(at, call) : 0;
      }
      if (Draw(&own) % 3 == 0) usleep((useconds_t)(Draw(&own) % 1000));
      MPI_Ibcast(buffers[i], (int)lengths[i], MPI_BYTE, root, comm, &requests[i]);
    }
    for (int left = kAtOnce; left > 0; --left) {
      int which;
      if (Draw(&own) % 2 == 0) {
        MPI_Waitany(kAtOnce, requests, &which, MPI_STATUS_IGNORE);
        continue;
      }
      MPI_Waitall(kAtOnce, requests, MPI_STATUSES_IGNORE);
      break;
    }
    for (int i = 0; i < kAtOnce; ++i) {
      for (size_t at = 0; at < lengths[i]; ++at) {
        if (buffers[i][at] != Expected(at, (uint64_t)(round * kAtOnce + i)))
          Fail("wrong data of a non-blocking broadcast", (int64_t)at);
      }
      free(buffers[i]);
    }
  }
  MPI_Comm_free(&comms[1]);
}

int main(int argc, char** argv) {
  int threads = 0, places = 0, only_random = 0, later = 0, late_rank = -1, calls = 120, provided;
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "--nodes=", 8) == 0) nodes = argv[i] + 8;
    if (strncmp(argv[i], "--seed=", 7) == 0) seed = strtoull(argv[i] + 7, NULL, 10);
    if (strncmp(argv[i], "--calls=", 8) == 0) calls = atoi(argv[i] + 8);
    if (strncmp(argv[i], "--late=", 7) == 0) late_rank = atoi(argv[i] + 7);
    if (strcmp(argv[i], "--threads=1") == 0) threads = 1;
    if (strcmp(argv[i], "--places=1") == 0) places = 1;
    if (strcmp(argv[i], "--random=1") == 0) only_random = 1;
    if (strcmp(argv[i], "--later=1") == 0) later = 1;
  }
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if ((int)strlen(nodes) != ranks) Fail("--nodes does not fit the number of ranks", ranks);
  if (threads) {
    if (provided == MPI_THREAD_MULTIPLE) {
      Threads();
    } else if (rank == 0) {
      puts("SKIP the library has no MPI_THREAD_MULTIPLE");
    }
  } else if (late_rank >= 0) {
    AlwaysLate(late_rank);
  } else if (places) {
    TwoPlaces();
  } else if (only_random) {
    Random(calls);
  } else if (later) {
    Outstanding();
    int late = Late(1);
    if (rank == 0) printf("LATE %d\n", late * kLateCalls);
  } else {
    Random(calls);
    Bcast(MPI_COMM_WORLD, 0, 1000, 1, 0, 0);
    int late = Late(0);
    OtherOrder();
    FarBehind();
    ManyCommunicators();
    Bcast(MPI_COMM_WORLD, 1, kMost, 3, 0, 0);
    if (rank == 0) printf("LATE %d\n", late * kLateCalls);
  }
  if (rank == 0) puts("PASS arrival");
  MPI_Finalize();
  return 0;
}
