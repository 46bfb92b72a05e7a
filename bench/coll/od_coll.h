// What the parts of the benchmark of collectives share: one call with its buffers, and what must
// come out.
//
// All data are doubles that count upwards, so every sum is exact whatever the order of additions:
// word i of what a rank contributes is Base(seed, rank) + i.
#ifndef OVERDRIVE_BENCH_COLL_OD_COLL_H_
#define OVERDRIVE_BENCH_COLL_OD_COLL_H_

#include "../p2p/harness.h"

typedef enum {
  kBcast,
  kReduce,
  kAllreduce,
  kAllgather,
  kAlltoall,
  kReduceScatter,
  kReduceScatterBlock,
  kBarrier,
  kGather,
  kScatter,
  kScan,
  kExscan,
  kAllgatherv,
  kAlltoallv,
  kAlltoallw,
  kGatherv,
  kScatterv,
  kCollectives
} Collective;
extern const char* const kCollectiveNames[kCollectives];

// Non-blocking: the call that starts it, then at once MPI_Wait. Persistent: MPI_Start and MPI_Wait
// of requests that were made before, where the host has them (MPI 4).
typedef enum { kBlocking, kNonblocking, kPersistent, kModes } Mode;
extern const char* const kModeNames[kModes];

enum { kMaxRanks = 256 };

// The calls of one collective at one size. `turn` is the number of the call: what has a root has
// another one in each call, and a scan runs in the other direction in each second one. So a rank
// cannot run ahead of the others for longer than a call.
typedef struct {
  const Bench* bench;
  Collective collective;
  Mode mode;
  MPI_Request* persistent;  // by root, or two
  MPI_Comm comm;            // of all ranks in their order
  MPI_Comm reversed;        // the same ranks from last to first
  size_t words;             // of the message as the collective counts its size
  double *in, *out;
  // Of the blocks of each rank, in words, as LayOutBlocks() fills them in.
  int *counts, *places;
  int* places_bytes;
  MPI_Datatype* types;
  uint64_t done;  // calls with rewritten buffers; the number of a call is its seed
  double sum;     // of all that was read after them
} Calls;

// Words of the largest buffer that the collective needs at a size.
size_t BufferWords(Collective collective, size_t words, int ranks);
// 0 where the collective does not know this size.
int IsPossible(Collective collective, size_t words, int ranks);
int IsModeKnown(Mode mode);
// Makes what LayOutBlocks() fills in; ends the job if there is no memory.
void MakeBlocks(Calls* calls);
// Fills in the lengths and places of all blocks, for the collective and its size.
void LayOutBlocks(Calls* calls);
// Where a block begins in the buffer of a rank that has blocks for or of all; that after the last
// one is where they end.
size_t BlockPlace(const Calls* calls, int rank, int block);
// The root of a call; -1 where there is none.
int RootOf(const Calls* calls, int64_t turn);
// Whether each second call runs in the other direction, and `reversed` is needed.
int RunsBothWays(Collective collective);
// Whether a scan runs from the last rank to the first.
int IsReversed(const Calls* calls, int64_t turn);
// How many different calls there are.
int DifferentTurns(const Calls* calls);
void Call(const Calls* calls, int64_t turn);
// Before the first and after the last call of a mode.
void BeginCalls(Calls* calls);
void EndCalls(Calls* calls);
// What a program does before and after a call: writes all that this rank contributes, reads all
// that it has got.
void WriteInput(const Calls* calls, int64_t turn, uint64_t seed);
double ReadResult(const Calls* calls, int64_t turn);
double ExpectedSum(const Calls* calls, int64_t turn, uint64_t seed);
// Calls once for each root, but not for longer than about a second, and ends the job with a message
// unless every word of every result is right.
void Verify(Calls* calls);

// The tests of cost.c: `first`, what the first calls on a new communicator take, and
// `communicators`, whether memory grows while many are made, used and freed.
void RunFirstUse(const Bench* bench);
void RunCommunicators(const Bench* bench, int count);

#endif  // OVERDRIVE_BENCH_COLL_OD_COLL_H_
