// MPI_THREAD_MULTIPLE: pairs of threads that exchange on their own communicators and tags, threads
// that share one communicator and tell each other apart by tag, threads that take wildcard messages
// with matched probes, threads that receive the same messages, one thread that waits for another
// thread's request array.
#include <pthread.h>

#include "odtest.h"

enum { kMostThreads = 8, kPool = 400 };

static int threads;
static long rounds;
static MPI_Comm thread_comms[kMostThreads];
static MPI_Comm shared_comm;
static long pool_taken;

// Thread i of each rank exchanges with thread i of the neighbours, on a communicator of its own.
static void* own_comm(void* argument) {
  const int me = (int)(intptr_t)argument;
  MPI_Comm comm = thread_comms[me];
  const int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  OdtRandom random = odt_random((uint64_t)(9000 + me));
  for (long round = 0; round < rounds; round++) {
    const long bytes = odt_size(&random, round % 50 == 0 ? 1 << 20 : 20000);
    char* out = odt_memory((size_t)bytes);
    char* in = odt_memory((size_t)bytes);
    MPI_Request requests[2];
    MPI_Status status;
    odt_fill(out, (size_t)bytes, odt_key(odt.rank, right, me, round));
    switch (round % 4) {
      case 0:
        MUST(MPI_Sendrecv(out, (int)bytes, MPI_BYTE, right, 0, in, (int)bytes, MPI_BYTE, left, 0,
                          comm, &status));
        break;
      case 1:
        MUST(MPI_Irecv(in, (int)bytes, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &requests[0]));
        MUST(MPI_Isend(out, (int)bytes, MPI_BYTE, right, 1, comm, &requests[1]));
        MUST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        break;
      case 2: {
        int flag = 0;
        MUST(MPI_Issend(out, (int)bytes, MPI_BYTE, right, 2, comm, &requests[1]));
        while (!flag) MUST(MPI_Iprobe(left, 2, comm, &flag, &status));
        MUST(MPI_Recv(in, (int)bytes, MPI_BYTE, left, 2, comm, &status));
        MUST(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
        break;
      }
      default: {
        int done = 0, indices[2], left_over = 2;
        MUST(MPI_Irecv(in, (int)bytes, MPI_BYTE, left, 3, comm, &requests[0]));
        MUST(MPI_Isend(out, (int)bytes, MPI_BYTE, right, 3, comm, &requests[1]));
        while (left_over > 0) {
          MUST(MPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE));
          left_over -= done;
        }
      }
    }
    CHECK_DATA(in, bytes, odt_key(left, odt.rank, me, round));
    free(in);
    free(out);
  }
  return NULL;
}

// All threads on one communicator; the tag is the thread.
static void* shared_by_tag(void* argument) {
  const int me = (int)(intptr_t)argument;
  const int peer = odt.rank ^ 1;
  if (peer >= odt.size) return NULL;
  int value = 0;
  for (long round = 0; round < rounds; round++) {
    int out = (int)(round * 100 + me);
    if (odt.rank < peer) {
      MUST(MPI_Send(&out, 1, MPI_INT, peer, me, shared_comm));
      MUST(MPI_Recv(&value, 1, MPI_INT, peer, me, shared_comm, MPI_STATUS_IGNORE));
    } else {
      MUST(MPI_Recv(&value, 1, MPI_INT, peer, me, shared_comm, MPI_STATUS_IGNORE));
      MUST(MPI_Send(&out, 1, MPI_INT, peer, me, shared_comm));
    }
    CHECK(value == out, "thread %d round %ld: got %d, not %d", me, round, value, out);
  }
  return NULL;
}

// Rank 0's threads compete for messages from everywhere by matched probes; an empty message ends
// one thread. The other ranks' threads send.
static void* competition(void* argument) {
  const int me = (int)(intptr_t)argument;
  if (odt.rank == 0) {
    char* in = odt_memory(70000);
    for (;;) {
      MPI_Message message;
      MPI_Status status;
      int count = 0;
      MUST(MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, shared_comm, &message, &status));
      MPI_Get_count(&status, MPI_BYTE, &count);
      MUST(MPI_Mrecv(in, count, MPI_BYTE, &message, &status));
      if (count == 0) break;
      CHECK_DATA(in, count, odt_key(status.MPI_SOURCE, 0, 5, status.MPI_TAG));
      __atomic_add_fetch(&pool_taken, 1, __ATOMIC_RELAXED);
    }
    free(in);
  } else {
    OdtRandom random = odt_random((uint64_t)(odt.rank * 100 + me));
    for (int i = me; i < kPool; i += threads) {
      long bytes = 1 + odt_below(&random, i % 20 == 0 ? 69999 : 2000);
      char* out = odt_memory((size_t)bytes);
      odt_fill(out, (size_t)bytes, odt_key(odt.rank, 0, 5, i));
      MUST(MPI_Send(out, (int)bytes, MPI_BYTE, 0, i, shared_comm));
      free(out);
    }
  }
  return NULL;
}

// One thread blocks in a receive for which another thread of the same process sends.
static void* within_process(void* argument) {
  const int me = (int)(intptr_t)argument;
  int value = -1;
  for (int round = 0; round < 100; round++) {
    if (me == 0) {
      MUST(MPI_Recv(&value, 1, MPI_INT, odt.rank, 1000, shared_comm, MPI_STATUS_IGNORE));
      CHECK(value == round, "got %d, not %d", value, round);
      MUST(MPI_Send(&value, 1, MPI_INT, odt.rank, 1001, shared_comm));
    } else if (me == 1) {
      MUST(MPI_Ssend(&round, 1, MPI_INT, odt.rank, 1000, shared_comm));
      MUST(MPI_Recv(&value, 1, MPI_INT, odt.rank, 1001, shared_comm, MPI_STATUS_IGNORE));
      CHECK(value == round, "got %d, not %d", value, round);
    }
  }
  return NULL;
}

static void run(void* (*body)(void*)) {
  pthread_t ids[kMostThreads];
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, body, (void*)(intptr_t)i);
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  MUST(MPI_Barrier(MPI_COMM_WORLD));
}

// All threads receive the same messages: each comes once, and of the two receives of one thread the
// one that was posted first gets the older message.
enum { kCommonMost = 70000 };
static const int kCommonBytes[] = {8, 3000, kCommonMost};
static int* common_taken;

static void* take_common(void* argument) {
  (void)argument;
  const int left = (odt.rank + odt.size - 1) % odt.size;
  long* first = (long*)odt_memory(kCommonMost);
  long* second = (long*)odt_memory(kCommonMost);
  for (long round = 0; round < rounds; round++) {
    MPI_Request request;
    MUST(MPI_Irecv(first, kCommonMost, MPI_BYTE, left, 7, shared_comm, &request));
    MUST(MPI_Recv(second, kCommonMost, MPI_BYTE, left, 7, shared_comm, MPI_STATUS_IGNORE));
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(*first < *second, "message %ld came before %ld", *second, *first);
    __atomic_fetch_add(&common_taken[*first], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&common_taken[*second], 1, __ATOMIC_RELAXED);
  }
  free(first);
  free(second);
  return NULL;
}

static void common_tag(void) {
  const long messages = 2 * rounds * threads;
  const int right = (odt.rank + 1) % odt.size;
  common_taken = (int*)calloc((size_t)messages, sizeof *common_taken);
  long* out = (long*)odt_memory(kCommonMost);
  pthread_t ids[kMostThreads];
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, take_common, NULL);
  for (long i = 0; i < messages; i++) {
    *out = i;
    MUST(MPI_Send(out, kCommonBytes[i % 3], MPI_BYTE, right, 7, shared_comm));
  }
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  for (long i = 0; i < messages; i++) {
    CHECK(common_taken[i] == 1, "message %ld came %d times", i, common_taken[i]);
  }
  free(out);
  free(common_taken);
}

int main(int argc, char** argv) {
  odt_start_as("threads", &argc, &argv, MPI_THREAD_MULTIPLE);
  if (odt.provided < MPI_THREAD_MULTIPLE) {
    if (odt.rank == 0) printf("SKIP this host gives thread level %d only\n", odt.provided);
    MPI_Finalize();
    return 0;
  }
  threads = (int)odt_number("threads", 4);
  if (threads > kMostThreads) threads = kMostThreads;
  rounds = odt_number("rounds", 200);
  for (int i = 0; i < threads; i++) MUST(MPI_Comm_dup(MPI_COMM_WORLD, &thread_comms[i]));
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &shared_comm));
  if (odt.size > 1) {
    run(own_comm);
    run(shared_by_tag);
    common_tag();
    if (odt.rank == 0) {
      pthread_t ids[kMostThreads];
      for (int i = 0; i < threads; i++) {
        pthread_create(&ids[i], NULL, competition, (void*)(intptr_t)i);
      }
      MUST(MPI_Barrier(MPI_COMM_WORLD));
      // An end message could overtake those of other sources: send it when all have been taken.
      double end = odt_seconds() + 60;
      while (__atomic_load_n(&pool_taken, __ATOMIC_RELAXED) < (long)kPool * (odt.size - 1) &&
             odt_seconds() < end) {
        odt_sleep_ms(1);
      }
      for (int i = 0; i < threads; i++) MUST(MPI_Send(NULL, 0, MPI_BYTE, 0, 0, shared_comm));
      for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
      CHECK(pool_taken == (long)kPool * (odt.size - 1), "%ld messages taken", pool_taken);
    } else {
      pthread_t ids[kMostThreads];
      for (int i = 0; i < threads; i++) {
        pthread_create(&ids[i], NULL, competition, (void*)(intptr_t)i);
      }
      for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
      MUST(MPI_Barrier(MPI_COMM_WORLD));
    }
  }
  if (threads >= 2) run(within_process);
  for (int i = 0; i < threads; i++) MUST(MPI_Comm_free(&thread_comms[i]));
  MUST(MPI_Comm_free(&shared_comm));
  return odt_finish();
}
