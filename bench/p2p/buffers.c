// Message buffers of the point-to-point benchmark: where they lie, how they are filled, and how
// their content is checked.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "od_p2p.h"

const char* const kKindNames[kKinds] = {"heap",   "stack",         "static",
                                        "vector", "vector_contig", "column"};

enum {
  kPage = 4096,
  kStackBytes = 2 << 20,
  kVectorBlock = 64,  // one cache line of each two
  kVectorStride = 128,
  kColumnBlock = 8,  // one double of each eight: a column of a matrix
  kColumnStride = 64,
};

static char* heap[2][kAlternatingBuffers];
static char* strided[2];
static _Alignas(4096) char static_buffer[2][kMaxBytes];

static char* Allocate(size_t bytes) {
  // Plain malloc, as programs do it, aligned by hand so that all hosts and runs get the same offset
  // within a page.
  char* memory = malloc(bytes + kPage);
  if (memory == NULL) {
    fputs("od_p2p: out of memory\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  memory += kPage - (uintptr_t)memory % kPage;
  memset(memory, 1, bytes);
  return memory;
}

void SetUpBuffers(const Bench* bench) {
  size_t largest = 1;
  for (int i = 0; i < bench->size_count; ++i) {
    if (bench->sizes[i] > largest) largest = bench->sizes[i];
  }
  for (int side = 0; side < 2; ++side) {
    int buffers = Listed(bench->shapes, "alternating") ? kAlternatingBuffers : 1;
    for (int i = 0; i < buffers; ++i) heap[side][i] = Allocate(largest);
    if (Listed(bench->kinds, "vector") || Listed(bench->kinds, "vector_contig") ||
        Listed(bench->kinds, "column")) {
      strided[side] = Allocate(largest / kColumnBlock * kColumnStride + kVectorStride);
    }
    memset(static_buffer[side], 1,
           Listed(bench->kinds, "static") ? sizeof(static_buffer[side]) : 1);
  }
  memset(bench->stack_send, 1, kStackBytes);
  memset(bench->stack_receive, 1, kStackBytes);
}

int MakeMessage(const Bench* bench, Kind kind, int sending, int slot, size_t bytes,
                Message* message) {
  int side = sending ? 0 : 1;
  size_t block = 0, stride = 0;
  *message = (Message){.count = (int)bytes, .type = MPI_BYTE, .bytes = bytes, .block_bytes = bytes};
  switch (kind) {
    case kHeap:
      message->data = heap[side][slot];
      break;
    case kStack:
      if (bytes > kStackBytes) return 0;
      message->data = sending ? bench->stack_send : bench->stack_receive;
      break;
    case kStatic:
      message->data = static_buffer[side];
      break;
    case kVectorToContiguous:
      if (bytes == 0 || bytes % kVectorBlock != 0) return 0;
      if (!sending) {
        message->data = heap[side][0];
        break;
      }
      // fall through
    case kVector:
      block = kVectorBlock;
      stride = kVectorStride;
      break;
    case kColumn:
      block = kColumnBlock;
      stride = kColumnStride;
      break;
    default:
      return 0;
  }
  if (block != 0) {
    if (bytes == 0 || bytes % block != 0) return 0;
    message->data = strided[side];
    message->count = 1;
    message->block_bytes = block;
    MPI_Type_vector((int)(bytes / block), (int)(block / sizeof(double)),
                    (int)(stride / sizeof(double)), MPI_DOUBLE, &message->type);
    MPI_Type_commit(&message->type);
  }
  message->stride_bytes = block != 0 ? stride : bytes;
  return 1;
}

void FreeMessage(Message* message) {
  if (message->type != MPI_BYTE) MPI_Type_free(&message->type);
}

WIDE static void FillWords(uint64_t* words, size_t count, uint64_t first) {
  for (size_t i = 0; i < count; ++i) words[i] = first + i;
}

WIDE static uint64_t SumWords(const uint64_t* words, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

void Fill(const Message* message, uint64_t seed) {
  size_t done = 0;
  for (size_t at = 0; done < message->bytes; at += message->stride_bytes) {
    FillWords((uint64_t*)(message->data + at), message->block_bytes / 8, seed + done / 8);
    done += message->block_bytes;
  }
  memset(message->data + message->bytes / 8 * 8, (int)(seed & 0xff), message->bytes % 8);
}

uint64_t Checksum(const Message* message) {
  uint64_t sum = 0;
  size_t done = 0;
  for (size_t at = 0; done < message->bytes; at += message->stride_bytes) {
    sum += SumWords((const uint64_t*)(message->data + at), message->block_bytes / 8);
    done += message->block_bytes;
  }
  for (size_t i = message->bytes / 8 * 8; i < message->bytes; ++i)
    sum += (unsigned char)message->data[i];
  return sum;
}

uint64_t ExpectedChecksum(size_t bytes, uint64_t seed) {
  uint64_t words = bytes / 8;
  uint64_t triangle = words % 2 == 0 ? words / 2 * (words - 1) : (words - 1) / 2 * words;
  return words * seed + (words != 0 ? triangle : 0) + bytes % 8 * (seed & 0xff);
}

void Verify(const Bench* bench, const Message* message, uint64_t seed, const char* where) {
  size_t done = 0;
  for (size_t at = 0; done < message->bytes; at += message->stride_bytes) {
    const uint64_t* words = (const uint64_t*)(message->data + at);
    for (size_t i = 0; i < message->block_bytes / 8; ++i) {
      uint64_t expected = seed + done / 8 + i;
      if (words[i] == expected) continue;
      fprintf(stderr,
              "od_p2p: wrong data: %s, rank %d, %zu bytes, word %zu: %llx instead of %llx\n", where,
              bench->rank, message->bytes, done / 8 + i, (unsigned long long)words[i],
              (unsigned long long)expected);
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
    done += message->block_bytes;
  }
  if (Checksum(message) != ExpectedChecksum(message->bytes, seed)) {
    fprintf(stderr, "od_p2p: wrong checksum: %s, rank %d, %zu bytes\n", where, bench->rank,
            message->bytes);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
}
