// The collective calls of the benchmark, what each rank writes before them and reads after them,
// and what must have arrived.
#include <math.h>
#include <stdio.h>

#include "../p2p/probe.h"
#include "od_coll.h"

const char* const kCollectiveNames[kCollectives] = {"bcast",
                                                    "reduce",
                                                    "allreduce",
                                                    "allgather",
                                                    "alltoall",
                                                    "reduce_scatter",
                                                    "reduce_scatter_block",
                                                    "barrier",
                                                    "gather",
                                                    "scatter",
                                                    "scan"};
const char* const kModeNames[kModes] = {"blocking", "nonblocking", "persistent"};

enum { kMaxRanks = 256 };
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

static int IsRooted(Collective collective) {
  return collective == kBcast || collective == kReduce || collective == kGather ||
         collective == kScatter;
}

static int Root(const Calls* c, int64_t turn) {
  return IsRooted(c->collective) ? (int)(turn % c->bench->ranks) : -1;
}

static int IsReversed(const Calls* c, int64_t turn) {
  return c->collective == kScan && turn % 2 == 1;
}

static int CountOf(const Calls* c, int rank) {
  size_t ranks = (size_t)c->bench->ranks;
  return (int)(c->words / ranks + ((size_t)rank < c->words % ranks ? 1 : 0));
}

static size_t OffsetOf(const Calls* c, int rank) {
  size_t ranks = (size_t)c->bench->ranks, more = c->words % ranks, r = (size_t)rank;
  return c->words / ranks * r + (r < more ? r : more);
}

size_t BufferWords(Collective collective, size_t words, int ranks) {
  int blocks = collective == kAllgather || collective == kAlltoall || collective == kGather ||
               collective == kScatter;
  return blocks ? words * (size_t)ranks : words;
}

int IsPossible(Collective collective, size_t words, int ranks) {
  if (ranks > kMaxRanks) return 0;
  if (collective == kBarrier) return 1;
  return words > 0 && (collective != kReduceScatterBlock || words % (size_t)ranks == 0);
}

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAVE_PERSISTENT 1
#else
#define HAVE_PERSISTENT 0
#endif

int IsModeKnown(Mode mode) { return mode != kPersistent || HAVE_PERSISTENT; }

static void CallBlocking(const Calls* c, int64_t turn) {
  int root = Root(c, turn), count = (int)c->words, bytes = count * (int)sizeof(double);
  MPI_Comm world = c->comm;
  switch (c->collective) {
    case kBcast:
      MPI_Bcast(c->out, bytes, MPI_BYTE, root, world);
      break;
    case kReduce:
      MPI_Reduce(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, root, world);
      break;
    case kAllreduce:
      MPI_Allreduce(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, world);
      break;
    case kAllgather:
      MPI_Allgather(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, world);
      break;
    case kAlltoall:
      MPI_Alltoall(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, world);
      break;
    case kReduceScatter:
      MPI_Reduce_scatter(c->in, c->out, c->counts, MPI_DOUBLE, MPI_SUM, world);
      break;
    case kReduceScatterBlock:
      MPI_Reduce_scatter_block(c->in, c->out, count / c->bench->ranks, MPI_DOUBLE, MPI_SUM, world);
      break;
    case kBarrier:
      MPI_Barrier(world);
      break;
    case kGather:
      MPI_Gather(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, root, world);
      break;
    case kScatter:
      MPI_Scatter(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, root, world);
      break;
    case kScan:
      MPI_Scan(c->in, c->out, count, MPI_DOUBLE, MPI_SUM,
               IsReversed(c, turn) ? c->reversed : world);
      break;
    default:
      break;
  }
}

static void StartNonblocking(const Calls* c, int64_t turn, MPI_Request* request) {
  int root = Root(c, turn), count = (int)c->words, bytes = count * (int)sizeof(double);
  MPI_Comm world = c->comm;
  switch (c->collective) {
    case kBcast:
      MPI_Ibcast(c->out, bytes, MPI_BYTE, root, world, request);
      break;
    case kReduce:
      MPI_Ireduce(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, root, world, request);
      break;
    case kAllreduce:
      MPI_Iallreduce(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, world, request);
      break;
    case kAllgather:
      MPI_Iallgather(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, world, request);
      break;
    case kAlltoall:
      MPI_Ialltoall(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, world, request);
      break;
    case kReduceScatter:
      MPI_Ireduce_scatter(c->in, c->out, c->counts, MPI_DOUBLE, MPI_SUM, world, request);
      break;
    case kReduceScatterBlock:
      MPI_Ireduce_scatter_block(c->in, c->out, count / c->bench->ranks, MPI_DOUBLE, MPI_SUM, world,
                                request);
      break;
    case kBarrier:
      MPI_Ibarrier(world, request);
      break;
    case kGather:
      MPI_Igather(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, root, world, request);
      break;
    case kScatter:
      MPI_Iscatter(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, root, world, request);
      break;
    case kScan:
      MPI_Iscan(c->in, c->out, count, MPI_DOUBLE, MPI_SUM,
                IsReversed(c, turn) ? c->reversed : world, request);
      break;
    default:
      break;
  }
}

#if HAVE_PERSISTENT
static void MakePersistent(const Calls* c, int64_t turn, MPI_Request* request) {
  int root = Root(c, turn), count = (int)c->words, bytes = count * (int)sizeof(double);
  MPI_Comm world = c->comm;
  MPI_Info none = MPI_INFO_NULL;
  switch (c->collective) {
    case kBcast:
      MPI_Bcast_init(c->out, bytes, MPI_BYTE, root, world, none, request);
      break;
    case kReduce:
      MPI_Reduce_init(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, root, world, none, request);
      break;
    case kAllreduce:
      MPI_Allreduce_init(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, world, none, request);
      break;
    case kAllgather:
      MPI_Allgather_init(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, world, none, request);
      break;
    case kAlltoall:
      MPI_Alltoall_init(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, world, none, request);
      break;
    case kReduceScatter:
      MPI_Reduce_scatter_init(c->in, c->out, c->counts, MPI_DOUBLE, MPI_SUM, world, none, request);
      break;
    case kReduceScatterBlock:
      MPI_Reduce_scatter_block_init(c->in, c->out, count / c->bench->ranks, MPI_DOUBLE, MPI_SUM,
                                    world, none, request);
      break;
    case kBarrier:
      MPI_Barrier_init(world, none, request);
      break;
    case kGather:
      MPI_Gather_init(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, root, world, none, request);
      break;
    case kScatter:
      MPI_Scatter_init(c->in, bytes, MPI_BYTE, c->out, bytes, MPI_BYTE, root, world, none, request);
      break;
    case kScan:
      MPI_Scan_init(c->in, c->out, count, MPI_DOUBLE, MPI_SUM,
                    IsReversed(c, turn) ? c->reversed : world, none, request);
      break;
    default:
      break;
  }
}
#else
static void MakePersistent(const Calls* c, int64_t turn, MPI_Request* request) {
  (void)c, (void)turn, (void)request;
}
#endif

// Different calls of one collective.
static int Turns(const Calls* c) { return IsRooted(c->collective) ? c->bench->ranks : 2; }

void BeginCalls(Calls* c) {
  if (c->mode != kPersistent) return;
  for (int turn = 0; turn < Turns(c); ++turn) MakePersistent(c, turn, &c->persistent[turn]);
}

void EndCalls(Calls* c) {
  if (c->mode != kPersistent) return;
  for (int turn = 0; turn < Turns(c); ++turn) MPI_Request_free(&c->persistent[turn]);
}

void Call(const Calls* c, int64_t turn) {
  if (c->mode == kBlocking) {
    CallBlocking(c, turn);
  } else if (c->mode == kPersistent) {
    MPI_Request* request = &c->persistent[turn % Turns(c)];
    MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
  } else {
    MPI_Request request;
    StartNonblocking(c, turn, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

static size_t InputWords(const Calls* c, int64_t turn) {
  int is_root = Root(c, turn) == c->bench->rank;
  switch (c->collective) {
    case kBarrier:
      return 0;
    case kBcast:
      return is_root ? c->words : 0;
    case kScatter:
      return is_root ? c->words * (size_t)c->bench->ranks : 0;
    case kAlltoall:
      return c->words * (size_t)c->bench->ranks;
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

// The parts of this rank's result, one after the other in `out`; returns how many.
static int Result(const Calls* c, int64_t turn, uint64_t seed, Segment* segments) {
  int ranks = c->bench->ranks, me = c->bench->rank, root = Root(c, turn), count = 0;
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
      if (me != root) break;
      // fall through
    case kAllgather:
      for (; count < ranks; ++count) segments[count] = (Segment){c->words, Base(seed, count), 1};
      break;
    case kAlltoall:
      for (; count < ranks; ++count) {
        double first = Base(seed, count) + (double)(c->words * (size_t)me);
        segments[count] = (Segment){c->words, first, 1};
      }
      break;
    case kReduceScatter:
    case kReduceScatterBlock:
      segments[count++] =
          (Segment){(size_t)CountOf(c, me), all + ranks * (double)OffsetOf(c, me), ranks};
      break;
    case kScatter:
      segments[count++] =
          (Segment){c->words, Base(seed, root) + (double)(c->words * (size_t)me), 1};
      break;
    case kScan: {
      int first = IsReversed(c, turn) ? me : 0, last = IsReversed(c, turn) ? ranks - 1 : me;
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
  int is_root = Root(c, turn) == c->bench->rank;
  size_t all = c->words * (size_t)c->bench->ranks;
  switch (c->collective) {
    case kBarrier:
      return 0;
    case kBcast:
      return is_root ? 0 : c->words;
    case kReduce:
      return is_root ? c->words : 0;
    case kGather:
      return is_root ? all : 0;
    case kAllgather:
    case kAlltoall:
      return all;
    case kReduceScatter:
    case kReduceScatterBlock:
      return (size_t)CountOf(c, c->bench->rank);
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
  int turns = Turns(c);
  double start = od_probe_now_ns(), spent_ns = 0;
  for (int turn = 0; turn < turns && spent_ns < kLongVerificationNs; ++turn) {
    VerifyCall(c, turn);
    spent_ns = Largest(od_probe_now_ns() - start);
  }
}
