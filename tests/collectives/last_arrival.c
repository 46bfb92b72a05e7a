/* Reductions to a root and gathers that end with whoever comes last, and scatters that start with
 * whoever comes first (OVERDRIVE_ADJUST_REDUCE, _GATHER(V) and _SCATTER(V)=first_arrival): right
 * results whoever comes when, the same bits whenever they come, and nobody but the root waits for a
 * rank that is late.
 *
 *   --nodes=00112   node of each rank
 *   --seed=N        of what is drawn by chance
 *   --calls=N       calls by chance
 *   --random=1      nothing but these
 *   --threads=1     several threads instead of everything else
 *   --apart=1       each rank comes to gathers when the one before has left, instead of everything
 * else
 *   --lengths=1     ranks that do not agree how long a message is, instead of everything else
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "by_chance.h"

enum { kToken = 9 };

/* x -> factor * x + term, modulo 2^32: to do one after the other does not commute. */
typedef struct {
  uint32_t factor, term;
} Step;
static MPI_Datatype step_type;
static MPI_Op after;

static uint64_t Value(int who, size_t at, uint64_t call) {
  uint64_t state = (uint64_t)who * 1000003 + at * 29 + call * 7919;
  return Draw(&state);
}

static Step Combined(Step first, Step second) {
  Step both = {second.factor * first.factor, second.factor * first.term + second.term};
  return both;
}

static void After(void* in, void* inout, int* length, MPI_Datatype* type) {
  Step *left = in, *right = inout;
  (void)type;
  for (int i = 0; i < *length; ++i) right[i] = Combined(left[i], right[i]);
}

static Step StepOf(int who, size_t at, uint64_t call) {
  uint64_t value = Value(who, at, call);
  Step step = {(uint32_t)value | 1, (uint32_t)(value >> 32)};
  return step;
}

/* A sum of integers, or steps one after the other. */
static void Reduce(MPI_Comm comm, int root, size_t count, uint64_t call, int steps, int in_place) {
  int me, size;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &size);
  uint64_t* in = malloc((count + 1) * 8);
  uint64_t* out = malloc((count + 1) * 8);
  memset(out, 0x55, (count + 1) * 8);
  uint64_t* mine = me == root && in_place ? out : in;
  for (size_t at = 0; at < count; ++at) {
    if (steps) {
      Step step = StepOf(me, at, call);
      memcpy(&mine[at], &step, 8);
    } else {
      mine[at] = Value(me, at, call);
    }
  }
  MPI_Reduce(mine == out ? MPI_IN_PLACE : in, out, (int)count, steps ? step_type : MPI_UINT64_T,
             steps ? after : MPI_SUM, root, comm);
  for (size_t at = 0; at < count && me == root; ++at) {
    uint64_t sum = Value(0, at, call), found = out[at];
    Step all = StepOf(0, at, call);
    for (int who = 1; who < size; ++who) {
      sum += Value(who, at, call);
      all = Combined(all, StepOf(who, at, call));
    }
    if (steps ? memcmp(&all, &found, 8) != 0 : sum != found) Fail("wrong result", (int64_t)at);
  }
  uint64_t untouched;
  memset(&untouched, 0x55, 8);
  if (out[count] != untouched || (me != root && out[0] != untouched)) Fail("too much written", 0);
  free(in);
  free(out);
}

/* Three bytes of five. */
static MPI_Datatype WithGaps(void) {
  MPI_Datatype type, three;
  MPI_Type_contiguous(3, MPI_BYTE, &three);
  MPI_Type_create_resized(three, 0, 5, &type);
  MPI_Type_commit(&type);
  MPI_Type_free(&three);
  return type;
}

/* With `gaps` the root takes blocks of three bytes by a type of five. */
static void Gather(MPI_Comm comm, int root, size_t bytes, uint64_t call, int gaps, int in_place) {
  int me, size;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &size);
  gaps = gaps && bytes % 3 == 0 && me == root;
  size_t room = gaps ? bytes / 3 * 5 : bytes;
  unsigned char* in = malloc(bytes + 1);
  unsigned char* out = me == root ? malloc(room * (size_t)size + 1) : NULL;
  if (out != NULL) memset(out, 0x55, room * (size_t)size + 1);
  for (size_t at = 0; at < bytes; ++at) {
    in[at] = (unsigned char)Value(me, at, call);
    if (me == root && in_place) out[room * (size_t)me + (gaps ? at / 3 * 5 + at % 3 : at)] = in[at];
  }
  MPI_Datatype type = gaps ? WithGaps() : MPI_BYTE;
  MPI_Gather(me == root && in_place ? MPI_IN_PLACE : in, (int)bytes, MPI_BYTE, out,
             (int)(gaps ? bytes / 3 : bytes), type, root, comm);
  for (int who = 0; who < size && me == root; ++who) {
    for (size_t at = 0; at < room; ++at) {
      unsigned char found = out[room * (size_t)who + at];
      if (gaps && at % 5 >= 3) {
        if (found != 0x55) Fail("a gap was written", (int64_t)at);
      } else if (found != (unsigned char)Value(who, gaps ? at / 5 * 3 + at % 5 : at, call)) {
        Fail("a wrong block", (int64_t)at);
      }
    }
  }
  if (out != NULL && out[room * (size_t)size] != 0x55) Fail("too much written", 0);
  if (gaps) MPI_Type_free(&type);
  free(in);
  free(out);
}

/* With `gaps` the ranks take blocks of three bytes by a type of five. */
static void Scatter(MPI_Comm comm, int root, size_t bytes, uint64_t call, int gaps, int in_place) {
  int me, size;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &size);
  in_place = in_place && me == root;
  gaps = gaps && bytes % 3 == 0 && !in_place;
  size_t room = gaps ? bytes / 3 * 5 : bytes;
  unsigned char* in = me == root ? malloc(bytes * (size_t)size + 1) : NULL;
  unsigned char* out = malloc(room + 1);
  memset(out, 0x55, room + 1);
  for (int who = 0; who < size && me == root; ++who) {
    for (size_t at = 0; at < bytes; ++at) {
      in[bytes * (size_t)who + at] = (unsigned char)Value(who, at, call);
    }
  }
  MPI_Datatype type = gaps ? WithGaps() : MPI_BYTE;
  MPI_Scatter(in, (int)bytes, MPI_BYTE, in_place ? MPI_IN_PLACE : out,
              (int)(gaps ? bytes / 3 : bytes), type, root, comm);
  unsigned char* found = in_place ? in + bytes * (size_t)me : out;
  for (size_t at = 0; at < room; ++at) {
    if (gaps && at % 5 >= 3) {
      if (found[at] != 0x55) Fail("a gap was written", (int64_t)at);
    } else if (found[at] != (unsigned char)Value(me, gaps ? at / 5 * 3 + at % 5 : at, call)) {
      Fail("a wrong block was scattered", (int64_t)at);
    }
  }
  if (out[room] != 0x55 || (in_place && out[0] != 0x55)) Fail("too much written", 0);
  if (gaps) MPI_Type_free(&type);
  free(in);
  free(out);
}

/* Of blocks of different lengths: some are empty, some longer than a node has room for. */
static int LengthOf(int who, uint64_t call, size_t most) {
  uint64_t value = Value(who, 3, call);
  if (value % 5 == 0) return 0;
  return (int)(value / 5 % (value % 5 == 1 ? 300 : most));
}

/* Blocks of all ranks in `order` of their numbers or the other way round, with a byte between. */
typedef struct {
  int *lengths, *places;
  size_t room;
} Blocks;

static Blocks BlocksOf(int size, uint64_t call, size_t most) {
  Blocks made = {malloc((size_t)size * sizeof(int)), malloc((size_t)size * sizeof(int)), 0};
  for (int i = 0; i < size; ++i) {
    int who = call % 2 == 0 ? i : size - 1 - i;
    made.lengths[who] = LengthOf(who, call, most);
    made.places[who] = (int)made.room;
    made.room += (size_t)made.lengths[who] + 1;
  }
  return made;
}

static void Free(Blocks blocks) {
  free(blocks.lengths);
  free(blocks.places);
}

static void FillBlock(unsigned char* block, int who, int length, uint64_t call) {
  for (int at = 0; at < length; ++at) block[at] = (unsigned char)Value(who, (size_t)at, call);
}

/* Memory in which it shows what is written. */
static unsigned char* Blank(size_t bytes) {
  unsigned char* made = malloc(bytes);
  memset(made, 0x55, bytes);
  return made;
}

static void CheckBlock(const unsigned char* found, int who, int length, uint64_t call) {
  for (int at = 0; at < length; ++at) {
    if (found[at] != (unsigned char)Value(who, (size_t)at, call)) Fail("a wrong block", at);
  }
  if (found[length] != 0x55) Fail("too much of a block written", length);
}

static void Gatherv(MPI_Comm comm, int root, size_t most, uint64_t call, int in_place) {
  int me, size;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &size);
  in_place = in_place && me == root;
  Blocks blocks = BlocksOf(size, call, most);
  int mine = blocks.lengths[me];
  unsigned char* in = Blank((size_t)mine + 1);
  unsigned char* out = me == root ? Blank(blocks.room) : NULL;
  FillBlock(in_place ? out + blocks.places[me] : in, me, mine, call);
  MPI_Gatherv(in_place ? MPI_IN_PLACE : in, mine, MPI_BYTE, out, me == root ? blocks.lengths : NULL,
              me == root ? blocks.places : NULL, MPI_BYTE, root, comm);
  for (int who = 0; who < size && me == root; ++who) {
    CheckBlock(out + blocks.places[who], who, blocks.lengths[who], call);
  }
  free(in);
  free(out);
  Free(blocks);
}

static void Scatterv(MPI_Comm comm, int root, size_t most, uint64_t call, int in_place) {
  int me, size;
  MPI_Comm_rank(comm, &me);
  MPI_Comm_size(comm, &size);
  in_place = in_place && me == root;
  Blocks blocks = BlocksOf(size, call, most);
  int mine = blocks.lengths[me];
  unsigned char* in = me == root ? Blank(blocks.room) : NULL;
  unsigned char* out = Blank((size_t)mine + 1);
  for (int who = 0; who < size && me == root; ++who) {
    FillBlock(in + blocks.places[who], who, blocks.lengths[who], call);
  }
  MPI_Scatterv(in, me == root ? blocks.lengths : NULL, me == root ? blocks.places : NULL, MPI_BYTE,
               in_place ? MPI_IN_PLACE : out, mine, MPI_BYTE, root, comm);
  CheckBlock(in_place ? in + blocks.places[me] : out, me, mine, call);
  free(in);
  free(out);
  Free(blocks);
}

static void Random(int calls) {
  static const size_t kCounts[] = {1, 3, 999, 8192, 8193, 24999, 50000};
  MPI_Comm comms[kComms];
  MakeComms(comms);
  uint64_t common = seed, own = seed * 1000 + (uint64_t)rank;
  for (int call = 0; call < calls; ++call) {
    MPI_Comm comm = comms[Draw(&common) % kComms];
    size_t count = kCounts[Draw(&common) % (sizeof(kCounts) / sizeof(kCounts[0]))];
    uint64_t kind = Draw(&common) % 7, root = Draw(&common);
    int in_place = Draw(&common) % 3 == 0;
    int size;
    MPI_Comm_size(comm, &size);
    root %= (uint64_t)size;
    Dawdle(&own);
    if (kind < 2) {
      Reduce(comm, (int)root, count, (uint64_t)call, kind == 0, in_place);
    } else if (kind == 2) {
      Gather(comm, (int)root, count * 3, (uint64_t)call, Draw(&own) % 2 == 0, in_place);
    } else if (kind == 3) {
      Scatter(comm, (int)root, count * 3, (uint64_t)call, Draw(&own) % 2 == 0, in_place);
    } else if (kind == 4) {
      Gatherv(comm, (int)root, count * 20, (uint64_t)call, in_place);
    } else if (kind == 5) {
      Scatterv(comm, (int)root, count * 20, (uint64_t)call, in_place);
    } else {
      /* Numbers are shared with broadcasts, which another algorithm may serve. */
      char* data = malloc(count);
      int me;
      MPI_Comm_rank(comm, &me);
      memset(data, me == (int)root ? call % 100 : 111, count);
      MPI_Bcast(data, (int)count, MPI_BYTE, (int)root, comm);
      if (data[0] != call % 100 || data[count - 1] != call % 100) Fail("a wrong broadcast", call);
      free(data);
    }
  }
  FreeComms(comms);
  Report(calls);
}

/* Sums of floating-point numbers whose last bits depend on the order. */
static void SameBits(void) {
  enum { kCount = 30000 };
  double* in = malloc(kCount * sizeof(double));
  double* out = malloc(kCount * sizeof(double));
  double* first = malloc(kCount * sizeof(double));
  uint64_t own = seed * 77 + (uint64_t)rank;
  for (int at = 0; at < kCount; ++at) in[at] = (double)Value(rank, (size_t)at, 5) * 1e-3;
  for (int round = 0; round < 12; ++round) {
    usleep((useconds_t)(Draw(&own) % 3000));
    MPI_Reduce(in, out, kCount, MPI_DOUBLE, MPI_SUM, 1, MPI_COMM_WORLD);
    if (round == 0) memcpy(first, out, kCount * sizeof(double));
    if (rank == 1 && memcmp(first, out, kCount * sizeof(double)) != 0) Fail("other bits", round);
  }
  free(in);
  free(out);
  free(first);
}

/* Each rank in turn calls only when all others but the root have left the call. */
static void Late(void) {
  enum { kShort = 60000 };
  for (int late = 0; late < ranks; ++late) {
    for (int root = 0; root < ranks; ++root) {
      if (root == late) continue;
      for (int kind = 0; kind < 5; ++kind) {
        for (int other = 0; other < ranks && rank == late; ++other) {
          if (other == late || other == root) continue;
          MPI_Recv(NULL, 0, MPI_BYTE, other, kToken, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        uint64_t call = (uint64_t)(late * 100 + root * 10 + kind);
        if (kind == 4) {
          Gatherv(MPI_COMM_WORLD, root, kShort, call, 0);
        } else if (kind == 3) {
          Scatterv(MPI_COMM_WORLD, root, kShort, call, 0);
        } else if (kind == 2) {
          Scatter(MPI_COMM_WORLD, root, 200000, call, 0, 0);
        } else if (kind == 1) {
          Gather(MPI_COMM_WORLD, root, 200000, call, 0, 0);
        } else {
          Reduce(MPI_COMM_WORLD, root, 40000, call, 0, 0);
        }
        if (rank != late && rank != root) MPI_Send(NULL, 0, MPI_BYTE, late, kToken, MPI_COMM_WORLD);
      }
    }
  }
}

/* More calls behind than a node keeps. */
static void FarBehind(void) {
  for (int late = 0; late < ranks; ++late) {
    if (rank == late) usleep(20000);
    for (int i = 0; i < 24; ++i) Reduce(MPI_COMM_WORLD, 0, 100000, (uint64_t)i, 0, 0);
    for (int i = 0; i < 24; ++i) Scatter(MPI_COMM_WORLD, 0, 300000, (uint64_t)i, 0, 0);
    for (int i = 0; i < 24; ++i) Gather(MPI_COMM_WORLD, 0, 300000, (uint64_t)i, 0, 0);
    for (int i = 0; i < 24; ++i) Gatherv(MPI_COMM_WORLD, 0, 300000, (uint64_t)i, 0);
    for (int i = 0; i < 24; ++i) Scatterv(MPI_COMM_WORLD, 0, 1 << 20, (uint64_t)i, 0);
  }
}

/* So nobody of a node finds another one that could send for it. Rank 0 is the root, and inside. */
static void Apart(void) {
  /* What such calls need is made in the first one, by all ranks. */
  Gather(MPI_COMM_WORLD, 0, 150000, 0, 0, 0);
  for (int i = 0; i < 20; ++i) {
    if (rank > 1) {
      MPI_Recv(NULL, 0, MPI_BYTE, rank - 1, kToken, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    Gather(MPI_COMM_WORLD, 0, 150000, (uint64_t)i, 0, 0);
    if (rank > 0 && rank + 1 < ranks) {
      MPI_Send(NULL, 0, MPI_BYTE, rank + 1, kToken, MPI_COMM_WORLD);
    }
  }
}

static void* Thread(void* argument) {
  MPI_Comm comm = *(MPI_Comm*)argument;
  uint64_t own = seed + (uint64_t)rank + (uint64_t)(uintptr_t)argument;
  for (int i = 0; i < 40; ++i) {
    if (Draw(&own) % 2 == 0) usleep((useconds_t)(Draw(&own) % 1000));
    if (i % 4 == 0) {
      Reduce(comm, i % ranks, i % 3 == 0 ? 50000 : 9000, (uint64_t)i, 0, i % 5 == 0);
    } else if (i % 4 == 2) {
      Scatter(comm, i % ranks, 70000, (uint64_t)i, 0, i % 5 == 0);
    } else if (i % 8 == 1) {
      Gatherv(comm, i % ranks, 1 << 20, (uint64_t)i, i % 5 == 0);
    } else if (i % 8 == 3) {
      Scatterv(comm, i % ranks, 1 << 20, (uint64_t)i, i % 5 == 0);
    } else {
      Gather(comm, i % ranks, 70000, (uint64_t)i, 0, i % 5 == 0);
    }
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

/* An error of the program, which somebody is told; nobody hangs, and what follows is right. */
static void OtherLengths(void) {
  enum { kBytes = 100000, kLonger = 70000, kMostLonger = 2 << 20 };
  size_t room = (size_t)ranks * (kBytes + kMostLonger);
  char* in = malloc(room);
  char* out = malloc(room);
  int* lengths = malloc((size_t)ranks * sizeof(int));
  int* places = malloc((size_t)ranks * sizeof(int));
  memset(in, 1, room);
  for (int who = 0; who < ranks; ++who) {
    lengths[who] = kBytes;
    places[who] = who * kBytes;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (int odd = 1; odd < ranks; ++odd) {
    for (int kind = 0; kind < 7; ++kind) {
      /* Of different lengths: one that is longer, and one that does not fit into its node. */
      int longer = kind < 5 ? kLonger : kMostLonger;
      int bytes = kBytes + (rank == odd ? longer : 0), error, told[2] = {0, 0};
      if (kind == 0) {
        error = MPI_Reduce(in, out, bytes, MPI_BYTE, MPI_BOR, 0, MPI_COMM_WORLD);
      } else if (kind == 1) {
        error = MPI_Gather(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
      } else if (kind == 2) {
        error = MPI_Scatter(in, bytes, MPI_BYTE, out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
      } else if (kind % 2 == 1) {
        error = MPI_Gatherv(in, bytes, MPI_BYTE, out, lengths, places, MPI_BYTE, 0, MPI_COMM_WORLD);
      } else {
        error =
            MPI_Scatterv(in, lengths, places, MPI_BYTE, out, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
      }
      if (error != MPI_SUCCESS) {
        MPI_Error_class(error, &told[0]);
        if (told[0] != MPI_ERR_TRUNCATE) Fail("another error", told[0]);
        told[0] = 1;
      }
      MPI_Allreduce(&told[0], &told[1], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      if (told[1] == 0) Fail("nobody was told of another length", kind);
      Scatter(MPI_COMM_WORLD, odd, 150000, (uint64_t)kind, 0, 0);
      Gather(MPI_COMM_WORLD, odd, 150000, (uint64_t)kind, 0, 0);
    }
  }
  free(in);
  free(out);
  free(lengths);
  free(places);
}

int main(int argc, char** argv) {
  int threads = 0, lengths = 0, apart = 0, only_random = 0, calls = 160, provided;
  for (int i = 1; i < argc; ++i) {
    if (strncmp(argv[i], "--nodes=", 8) == 0) nodes = argv[i] + 8;
    if (strncmp(argv[i], "--seed=", 7) == 0) seed = strtoull(argv[i] + 7, NULL, 10);
    if (strncmp(argv[i], "--calls=", 8) == 0) calls = atoi(argv[i] + 8);
    if (strcmp(argv[i], "--threads=1") == 0) threads = 1;
    if (strcmp(argv[i], "--lengths=1") == 0) lengths = 1;
    if (strcmp(argv[i], "--apart=1") == 0) apart = 1;
    if (strcmp(argv[i], "--random=1") == 0) only_random = 1;
  }
  MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if ((int)strlen(nodes) != ranks) Fail("--nodes does not fit the number of ranks", ranks);
  MPI_Type_contiguous(2, MPI_UINT32_T, &step_type);
  MPI_Type_commit(&step_type);
  MPI_Op_create(After, 0, &after);
  if (threads) {
    if (provided == MPI_THREAD_MULTIPLE) {
      Threads();
    } else if (rank == 0) {
      puts("SKIP the library has no MPI_THREAD_MULTIPLE");
    }
  } else if (lengths) {
    OtherLengths();
  } else if (apart) {
    Apart();
  } else if (only_random) {
    Random(calls);
  } else {
    Random(calls);
    SameBits();
    Late();
    FarBehind();
  }
  MPI_Op_free(&after);
  MPI_Type_free(&step_type);
  if (rank == 0) puts("PASS last_arrival");
  MPI_Finalize();
  return 0;
}
