// What the parts of the point-to-point benchmark share beyond the harness: message buffers.
#ifndef OVERDRIVE_BENCH_P2P_OD_P2P_H_
#define OVERDRIVE_BENCH_P2P_OD_P2P_H_

#include "harness.h"

enum { kAlternatingBuffers = 16, kInFlight = 64 };

typedef enum { kHeap, kStack, kStatic, kVector, kVectorToContiguous, kColumn, kKinds } Kind;
extern const char* const kKindNames[kKinds];

// One side of a message: `count` elements of `type` at `data`, holding `bytes` payload bytes in
// blocks of `block_bytes` every `stride_bytes` (equal for contiguous memory).
typedef struct {
  char* data;
  int count;
  MPI_Datatype type;
  size_t bytes, block_bytes, stride_bytes;
} Message;

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

// The tests; each is called once per round, and the first time with bench->calibrating set.
void RunLatency(const Bench* bench);
void RunFortranLatency(const Bench* bench);
void RunStreams(const Bench* bench);
void RunExchanges(const Bench* bench);
void RunCallCosts(const Bench* bench);
void RunRaw(const Bench* bench);
void RunMemory(const Bench* bench);
void RunMemcpy(const Bench* bench);
void RunSkew(const Bench* bench);
void RunCollectives(const Bench* bench);

#endif  // OVERDRIVE_BENCH_P2P_OD_P2P_H_
