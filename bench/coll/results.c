// What each rank writes before a collective call of the benchmark and reads after it, and what must
// have arrived.
#include <math.h>
#include <stdio.h>

#include "../p2p/probe.h"
#include "od_coll.h"

// With more ranks than cores a call of some libraries takes seconds.
static const double kLongVerificationNs = 1e9;

static double Base(uint64_t seed, int rank) { return (double)(seed % 1024 * 64) + rank; }

WIDE static void Count(double* words, size_t count, double first) {
  for (size_t i = 0; i < count; ++i) words[i] = first + (double)(int)i;
}

WIDE static double Sum(const double* words, size_t count) {
  // Several sums at once: the additions of one would wait for each other.
  double sums[16] = {0};
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (size_t k = 0; k < 16; ++k) sums[k] += words[i + k];
  }
  for (; i < count; ++i) sums[0] += words[i];
  double sum = 0;
  for (size_t k = 0; k < 16; ++k) sum += sums[k];
  return sum;
}

// Words of all blocks together.
static size_t AllWords(const Calls* c) {
  int last = c->bench->ranks - 1;
  return (size_t)c->places[last] + (size_t)c->counts[last];
}

static size_t InputWords(const Calls* c, int64_t turn) {
  int is_root = RootOf(c, turn) == c->bench->rank;
  switch (c->collective) {
    case kBarrier:
      return 0;
    case kBcast:
      return is_root ? c->words : 0;
    case kScatter:
    case kScatterv:
      return is_root ? AllWords(c) : 0;
    case kAlltoall:
    case kAlltoallv:
    case kAlltoallw:
      return AllWords(c);
    case kAllgatherv:
    case kGatherv:
      return (size_t)c->counts[c->bench->rank];
    default:
      return c->words;
  }
}

void WriteInput(const Calls* c, int64_t turn, uint64_t seed) {
  double* buffer = c->collective == kBcast ? c->out : c->in;
  Count(buffer, InputWords(c, turn), Base(seed, c->bench->rank));
}

// A part of a result: word i of it is `first` + `step` * i.
typedef struct {
  size_t words;
  double first, step;
} Segment;

// Whether the result of this rank is not defined.
static int IsFirst(const Calls* c, int64_t turn) {
  return c->bench->rank == (IsReversed(c, turn) ? c->bench->ranks - 1 : 0);
}

// The parts of this rank's result, one after the other in `out`; returns how many.
static int Result(const Calls* c, int64_t turn, uint64_t seed, Segment* segments) {
  int ranks = c->bench->ranks, me = c->bench->rank, root = RootOf(c, turn), count = 0;
  double all = 0;
  for (int rank = 0; rank < ranks; ++rank) all += Base(seed, rank);
  switch (c->collective) {
    case kBcast:
      if (me != root) segments[count++] = (Segment){c->words, Base(seed, root), 1};
      break;
    case kReduce:
      if (me == root) segments[count++] = (Segment){c->words, all, ranks};
      break;
    case kAllreduce:
      segments[count++] = (Segment){c->words, all, ranks};
      break;
    case kGather:
    case kGatherv:
      if (me != root) break;
      // fall through
    case kAllgather:
    case kAllgatherv:
      for (; count < ranks; ++count) {
        segments[count] = (Segment){(size_t)c->counts[count], Base(seed, count), 1};
      }
      break;
    case kAlltoall:
    case kAlltoallv:
    case kAlltoallw:
      for (; count < ranks; ++count) {
        // Where it begins among the blocks that the other rank sends.
        double place = (double)BlockPlace(c, count, me);
        segments[count] = (Segment){(size_t)c->counts[count], Base(seed, count) + place, 1};
      }
      break;
    case kReduceScatter:
    case kReduceScatterBlock:
      segments[count++] =
          (Segment){(size_t)c->counts[me], all + ranks * (double)c->places[me], ranks};
      break;
    case kScatter:
    case kScatterv:
      segments[count++] =
          (Segment){(size_t)c->counts[me], Base(seed, root) + (double)c->places[me], 1};
      break;
    case kScan:
    case kExscan: {
      int first = IsReversed(c, turn) ? me : 0, last = IsReversed(c, turn) ? ranks - 1 : me;
      if (c->collective == kExscan) {
        if (IsFirst(c, turn)) break;
        if (IsReversed(c, turn))
          ++first;
        else
          --last;
      }
      double some = 0;
      for (int rank = first; rank <= last; ++rank) some += Base(seed, rank);
      segments[count++] = (Segment){c->words, some, last - first + 1};
      break;
    }
    default:
      break;
  }
  return count;
}

// Words of this rank's result.
static size_t ResultWords(const Calls* c, int64_t turn) {
  int is_root = RootOf(c, turn) == c->bench->rank;
  switch (c->collective) {
    case kBarrier:
      return 0;
    case kBcast:
      return is_root ? 0 : c->words;
    case kReduce:
      return is_root ? c->words : 0;
    case kGather:
    case kGatherv:
      return is_root ? AllWords(c) : 0;
    case kAllgather:
    case kAllgatherv:
    case kAlltoall:
    case kAlltoallv:
    case kAlltoallw:
      return AllWords(c);
    case kReduceScatter:
    case kReduceScatterBlock:
    case kScatterv:
      return (size_t)c->counts[c->bench->rank];
    case kExscan:
      return IsFirst(c, turn) ? 0 : c->words;
    default:
      return c->words;
  }
}

double ReadResult(const Calls* c, int64_t turn) { return Sum(c->out, ResultWords(c, turn)); }

double ExpectedSum(const Calls* c, int64_t turn, uint64_t seed) {
  Segment segments[kMaxRanks];
  int count = Result(c, turn, seed, segments);
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    double words = (double)segments[i].words;
    sum += words * segments[i].first + segments[i].step * (words * (words - 1) / 2);
  }
  return sum;
}

static void VerifyCall(const Calls* c, int64_t turn) {
  Segment segments[kMaxRanks];
  uint64_t seed = 7 * c->words + (uint64_t)turn;
  size_t words = ResultWords(c, turn);
  for (size_t i = 0; i < words; ++i) c->out[i] = NAN;
  WriteInput(c, turn, seed);
  Call(c, turn);
  int count = Result(c, turn, seed, segments);
  const double* at = c->out;
  for (int s = 0; s < count; ++s) {
    for (size_t i = 0; i < segments[s].words; ++i, ++at) {
      double expected = segments[s].first + segments[s].step * (double)i;
      if (*at == expected) continue;
      fprintf(stderr,
              "od_coll: wrong result of %s: rank %d of %d, call %d, %zu words, word %zu: %.17g "
              "instead of %.17g\n",
              kCollectiveNames[c->collective], c->bench->rank, c->bench->ranks, (int)turn, c->words,
              (size_t)(at - c->out), *at, expected);
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
  }
}

void Verify(Calls* c) {
  int turns = DifferentTurns(c);
  double start = od_probe_now_ns(), spent_ns = 0;
  for (int turn = 0; turn < turns && spent_ns < kLongVerificationNs; ++turn) {
    VerifyCall(c, turn);
    spent_ns = Largest(od_probe_now_ns() - start);
  }
}
