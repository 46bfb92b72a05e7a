// What the parts of the point-to-point benchmark share: options, message buffers, and the sampling
// loop.
//
// A *sample* is one short timed repetition with a cache-line probe before and after it. All samples
// of one invocation are taken round by round (every size once, then every size again), because the
// machine changes its distance regime within seconds and each size should see each regime.
#ifndef OVERDRIVE_BENCH_P2P_OD_P2P_H_
#define OVERDRIVE_BENCH_P2P_OD_P2P_H_

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

enum { kAlternatingBuffers = 16, kInFlight = 64, kMaxSizes = 64, kMaxBytes = 4 << 20 };

typedef enum { kHeap, kStack, kStatic, kVector, kVectorToContiguous, kColumn, kKinds } Kind;
extern const char* const kKindNames[kKinds];

typedef struct {
  int rank, ranks, repetitions, calibrating;
  double sample_ms;
  const char *tests, *shapes, *modes, *kinds;  // comma-separated lists
  size_t sizes[kMaxSizes];
  int size_count;
  char* stack_send;  // 2 MiB each in main's frame, see od_p2p.c
  char* stack_receive;
} Bench;

// One side of a message: `count` elements of `type` at `data`, holding `bytes` payload bytes in
// blocks of `block_bytes` every `stride_bytes` (equal for contiguous memory).
typedef struct {
  char* data;
  int count;
  MPI_Datatype type;
  size_t bytes, block_bytes, stride_bytes;
} Message;

// 1 if `list` (comma-separated) contains `name`.
int Listed(const char* list, const char* name);

// Buffers (buffers.c). `slot` selects one of kAlternatingBuffers heap buffers; other kinds have
// one. Returns 0 if the kind cannot hold this size.
void SetUpBuffers(const Bench* bench);
int MakeMessage(const Bench* bench, Kind kind, int sending, int slot, size_t bytes,
                Message* message);
void FreeMessage(Message* message);
// Writes every payload byte from `seed`; Checksum reads every one and ExpectedChecksum is what it
// must return.
void Fill(const Message* message, uint64_t seed);
uint64_t Checksum(const Message* message);
uint64_t ExpectedChecksum(size_t bytes, uint64_t seed);
// Ends the job with a message if `message` does not hold what Fill(seed) wrote.
void Verify(const Bench* bench, const Message* message, uint64_t seed, const char* where);

// A timed body: runs `iterations` on this rank.
typedef void (*Body)(void* context, int64_t iterations);
typedef struct {
  const char *test, *shape, *mode, *kind, *unit;
  size_t bytes;
} Label;
// Collective: warms up, calibrates `*iterations` if it is 0 (so that a sample lasts about
// bench->sample_ms), and otherwise takes one sample and prints scale(ns per iteration).
void Sample(const Bench* bench, const Label* label, Body body, void* context, int64_t* iterations,
            double (*scale)(const Label* label, double ns_per_iteration));
// Prints one value (rank 0 does) with the probes around it and the share of the time that a rank
// waited for its core.
void Report(const Bench* bench, const Label* label, double value, double before_ns, double after_ns,
            double waited);

double HalfRoundTripMicroseconds(const Label* label, double ns_per_iteration);
double StepMicroseconds(const Label* label, double ns_per_iteration);

// The tests; each is called once per round, and the first time with bench->calibrating set.
void RunLatency(const Bench* bench);
void RunFortranLatency(const Bench* bench);
void RunStreams(const Bench* bench);
void RunExchanges(const Bench* bench);
void RunCallCosts(const Bench* bench);
void RunRaw(const Bench* bench);
void RunMemory(const Bench* bench);

#endif  // OVERDRIVE_BENCH_P2P_OD_P2P_H_
