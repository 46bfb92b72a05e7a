// Four small programs in the manner of the NAS parallel benchmarks FT, IS, CG and MG, written anew
// from their published descriptions, each with an input of short and one of long messages.
//
// A kernel lives on a communicator, so the same code on MPI_COMM_SELF is the serial run that its
// result is compared with. Data travel by MPI_Sendrecv; where the original uses an all-to-all, the
// host's collective can be chosen instead.
#ifndef OVERDRIVE_BENCH_KERNELS_KERNELS_H_
#define OVERDRIVE_BENCH_KERNELS_KERNELS_H_

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

// The ranks that work together, and how much of their time goes into messages.
typedef struct {
  MPI_Comm comm;
  int rank, ranks;
  int collectives;  // all-to-all by the host's collective instead of by pairs
  double message_ns, run_ns;
} Team;

void Exchange(Team* team, const void* send, size_t send_bytes, int to, void* receive,
              size_t receive_bytes, int from);
// `bytes` to each and from each, in order of ranks.
void AllToAll(Team* team, const void* send, void* receive, size_t bytes);
// The same with a number of bytes and a position for each rank.
void AllToAllV(Team* team, const void* send, const int* send_bytes, const int* send_at,
               void* receive, const int* receive_bytes, const int* receive_at);
// `bytes` from each rank to all: block r of `blocks` is rank r's.
void AllGather(Team* team, void* blocks, size_t bytes);
// By pairs in log2(ranks) steps as the originals do, if there is a power of two of ranks.
double Sum(Team* team, double value);
void SumIntegers(Team* team, int* values, int count);

// A number that depends on `index` only, so that data are the same on any number of ranks.
uint64_t Scrambled(uint64_t index);
double UnitRandom(uint64_t index);

void* AllocateOrEnd(size_t bytes);
// Ends the job unless `ok`.
void Require(int ok, const char* what);

typedef struct {
  const char* name;
  // NULL if the input cannot be divided among so many ranks. The team outlives the state.
  void* (*create)(Team* team, int long_messages);
  void (*destroy)(void* state);
  void (*run)(void* state, int64_t iterations);
  // Collective. From a fresh state: runs a little, checks what can be checked, and returns a
  // number that is the same on any number of ranks up to rounding. Leaves a fresh state.
  double (*result)(void* state);
  int has_collectives;  // Team.collectives makes a difference
} Kernel;

extern const Kernel kFourierTransform, kIntegerSort, kConjugateGradient, kMultigrid;

#endif  // OVERDRIVE_BENCH_KERNELS_KERNELS_H_
