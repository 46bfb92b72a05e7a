// IS: ranks integer keys. Keys are put into buckets, every rank gets a range of buckets of about
// the same number of keys, and counts.
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { kBuckets = 512, kTestValues = 7, kResultSteps = 3 };

typedef struct {
  Team* team;
  int key_bits, bucket_shift;
  int keys;          // of this rank
  int64_t all_keys;  // of all
  int step;
  uint32_t *key, *packed, *received, *count;
  int received_keys;
  int local[kBuckets], global[kBuckets];
  int *send_bytes, *send_at, *receive_bytes, *receive_at;
  int first_bucket, end_bucket;  // of this rank
} Is;

static void Destroy(void* state) {
  Is* is = state;
  void* arrays[] = {is->key,     is->packed,        is->received,   is->count, is->send_bytes,
                    is->send_at, is->receive_bytes, is->receive_at, is};
  for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); ++i) free(arrays[i]);
}

static void SetKeys(Is* is) {
  uint64_t first = (uint64_t)is->team->rank * (uint64_t)is->keys;
  for (int i = 0; i < is->keys; ++i) {
    // The mean of four equally distributed numbers: middle values are frequent.
    uint64_t random = Scrambled(first + (uint64_t)i), sum = 0;
    for (int part = 0; part < 4; ++part) sum += random >> (16 * part) & 0xffff;
    is->key[i] = (uint32_t)(sum >> (18 - is->key_bits));
  }
  is->step = 0;
}

static void* Create(Team* team, int long_messages) {
  Is* is = AllocateOrEnd(sizeof(*is));
  is->team = team;
  is->key_bits = long_messages ? 15 : 10;
  is->bucket_shift = is->key_bits - 9;
  is->all_keys = long_messages ? 1 << 20 : 1 << 13;
  if (is->all_keys % team->ranks != 0) {
    Destroy(is);
    return NULL;
  }
  is->keys = (int)(is->all_keys / team->ranks);
  is->key = AllocateOrEnd((size_t)is->keys * sizeof(uint32_t));
  is->packed = AllocateOrEnd((size_t)is->keys * sizeof(uint32_t));
  // In the worst case one rank gets all keys.
  is->received = AllocateOrEnd((size_t)is->all_keys * sizeof(uint32_t));
  is->count = AllocateOrEnd(sizeof(uint32_t) << is->key_bits);
  int** lists[] = {&is->send_bytes, &is->send_at, &is->receive_bytes, &is->receive_at};
  for (int i = 0; i < 4; ++i) *lists[i] = AllocateOrEnd((size_t)team->ranks * sizeof(int));
  SetKeys(is);
  return is;
}

// Which buckets go to which rank follows from the global sizes, so all ranks agree without asking.
static void DivideBuckets(Is* is) {
  Team* team = is->team;
  int bucket = 0, packed = 0;
  int64_t given = 0;
  for (int rank = 0; rank < team->ranks; ++rank) {
    int64_t goal = is->all_keys * (rank + 1) / team->ranks;
    int first = bucket, start = packed;
    while (bucket < kBuckets && (given < goal || rank + 1 == team->ranks)) {
      given += is->global[bucket];
      packed += is->local[bucket++];
    }
    is->send_at[rank] = start * (int)sizeof(uint32_t);
    is->send_bytes[rank] = (packed - start) * (int)sizeof(uint32_t);
    if (rank == team->rank) {
      is->first_bucket = first;
      is->end_bucket = bucket;
    }
  }
}

static void RankKeys(Is* is) {
  int next[kBuckets];
  memset(is->local, 0, sizeof(is->local));
  for (int i = 0; i < is->keys; ++i) ++is->local[is->key[i] >> is->bucket_shift];
  memcpy(is->global, is->local, sizeof(is->local));
  SumIntegers(is->team, is->global, kBuckets);
  DivideBuckets(is);
  for (int bucket = 0, at = 0; bucket < kBuckets; ++bucket) {
    next[bucket] = at;
    at += is->local[bucket];
  }
  for (int i = 0; i < is->keys; ++i) {
    is->packed[next[is->key[i] >> is->bucket_shift]++] = is->key[i];
  }
  AllToAll(is->team, is->send_bytes, is->receive_bytes, sizeof(int));
  int bytes = 0;
  for (int rank = 0; rank < is->team->ranks; ++rank) {
    is->receive_at[rank] = bytes;
    bytes += is->receive_bytes[rank];
  }
  AllToAllV(is->team, is->packed, is->send_bytes, is->send_at, is->received, is->receive_bytes,
            is->receive_at);
  is->received_keys = bytes / (int)sizeof(uint32_t);
  // The rank of a key is the number of smaller ones: count, then add up.
  uint32_t first = (uint32_t)is->first_bucket << is->bucket_shift;
  uint32_t end = (uint32_t)is->end_bucket << is->bucket_shift;
  if (end > first) memset(is->count + first, 0, (end - first) * sizeof(uint32_t));
  for (int i = 0; i < is->received_keys; ++i) ++is->count[is->received[i]];
  uint32_t smaller = 0;
  for (int bucket = 0; bucket < is->first_bucket; ++bucket) smaller += (uint32_t)is->global[bucket];
  for (uint32_t value = first; value < end; ++value) {
    uint32_t here = is->count[value];
    is->count[value] = smaller;
    smaller += here;
  }
}

static void Run(void* state, int64_t iterations) {
  Is* is = state;
  for (int64_t i = 0; i < iterations; ++i) {
    // One key more changes in each iteration, so that none repeats the last one.
    int64_t changed = (int64_t)(Scrambled((uint64_t)is->step) % (uint64_t)is->all_keys);
    int64_t mine = changed - (int64_t)is->team->rank * is->keys;
    if (mine >= 0 && mine < is->keys)
      is->key[mine] = (uint32_t)(is->step & ((1 << is->key_bits) - 1));
    ++is->step;
    RankKeys(is);
  }
}

static double Result(void* state) {
  Is* is = state;
  double result = 0;
  SetKeys(is);
  for (int step = 0; step < kResultSteps; ++step) {
    Run(is, 1);
    uint32_t first = (uint32_t)is->first_bucket << is->bucket_shift;
    uint32_t end = (uint32_t)is->end_bucket << is->bucket_shift;
    for (int i = 0; i < is->received_keys; ++i) {
      Require(is->received[i] >= first && is->received[i] < end, "IS, a key in a wrong place");
    }
    Require(Sum(is->team, is->received_keys) == (double)is->all_keys, "IS, a key is lost");
    double ranks = 0;
    for (uint32_t test = 1; test <= kTestValues; ++test) {
      uint32_t value = (test << is->key_bits) / (kTestValues + 1);
      if (value >= first && value < end) ranks += (double)test * is->count[value];
    }
    result += (step + 1) * Sum(is->team, ranks);
  }
  SetKeys(is);
  return result;
}

const Kernel kIntegerSort = {"is", Create, Destroy, Run, Result, 1};
