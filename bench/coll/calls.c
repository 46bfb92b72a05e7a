// The collective calls of the benchmark, blocking, non-blocking and persistent, and the lengths of
// their blocks.
#include <stdio.h>
#include <stdlib.h>

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
                                                    "scan",
                                                    "exscan",
                                                    "allgatherv",
                                                    "alltoallv",
                                                    "alltoallw",
                                                    "gatherv",
                                                    "scatterv"};
const char* const kModeNames[kModes] = {"blocking", "nonblocking", "persistent"};

static int IsRooted(Collective collective) {
  switch (collective) {
    case kBcast:
    case kReduce:
    case kGather:
    case kScatter:
    case kGatherv:
    case kScatterv:
      return 1;
    default:
      return 0;
  }
}

int RootOf(const Calls* c, int64_t turn) {
  return IsRooted(c->collective) ? (int)(turn % c->bench->ranks) : -1;
}

int RunsBothWays(Collective collective) { return collective == kScan || collective == kExscan; }

int IsReversed(const Calls* c, int64_t turn) {
  return RunsBothWays(c->collective) && turn % 2 == 1;
}

// The ranks in the order in which a scan runs.
static MPI_Comm Directed(const Calls* c, int64_t turn) {
  return IsReversed(c, turn) ? c->reversed : c->comm;
}

int DifferentTurns(const Calls* c) { return IsRooted(c->collective) ? c->bench->ranks : 2; }

// Of calls whose blocks differ: half and one and a half of the size in turn, so that a pair of
// neighbours has the size in the mean. `first`: the parity of the first block.
static size_t UnevenBlock(size_t words, int number) {
  return number % 2 == 0 ? words / 2 : 2 * words - words / 2;
}

// Where block `blocks` begins: what those before it have.
static size_t UnevenPlace(size_t words, int first, int blocks) {
  size_t place = (size_t)blocks / 2 * 2 * words;
  return blocks % 2 == 0 ? place : place + UnevenBlock(words, first);
}

// Where the block of a rank begins, where the size is that of all blocks.
static size_t SharePlace(const Calls* c, int rank) {
  size_t ranks = (size_t)c->bench->ranks, r = (size_t)rank;
  if (c->collective == kAllgatherv) {
    // Of two neighbours the second one has three times as much.
    return c->words * (2 * r - r % 2) / (2 * ranks - ranks % 2);
  }
  size_t more = c->words % ranks;
  return c->words / ranks * r + (r < more ? r : more);
}

size_t BlockPlace(const Calls* c, int rank, int block) {
  switch (c->collective) {
    case kAllgatherv:
    case kReduceScatter:
    case kReduceScatterBlock:
      return SharePlace(c, block);
    case kGatherv:
    case kScatterv:
      return UnevenPlace(c->words, 0, block);
    case kAlltoallv:
    case kAlltoallw:
      // The block between two ranks has the same length in both directions.
      return UnevenPlace(c->words, rank, block);
    default:
      return c->words * (size_t)block;
  }
}

static void* NewArray(const Calls* c, size_t element_bytes) {
  void* made = calloc((size_t)c->bench->ranks, element_bytes);
  if (made == NULL) {
    fputs("out of memory\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return made;
}

void MakeBlocks(Calls* c) {
  c->counts = NewArray(c, sizeof(int));
  c->places = NewArray(c, sizeof(int));
  c->places_bytes = NewArray(c, sizeof(int));
  c->types = NewArray(c, sizeof(MPI_Datatype));
}

void LayOutBlocks(Calls* c) {
  for (int rank = 0; rank < c->bench->ranks; ++rank) {
    size_t begin = BlockPlace(c, c->bench->rank, rank);
    c->places[rank] = (int)begin;
    c->counts[rank] = (int)(BlockPlace(c, c->bench->rank, rank + 1) - begin);
    c->places_bytes[rank] = (int)(begin * sizeof(double));
    c->types[rank] = MPI_DOUBLE;
  }
}

size_t BufferWords(Collective collective, size_t words, int ranks) {
  switch (collective) {
    case kAllgather:
    case kAlltoall:
    case kGather:
    case kScatter:
      return words * (size_t)ranks;
    case kAlltoallv:
    case kAlltoallw:
    case kGatherv:
    case kScatterv:
      return UnevenPlace(words, 1, ranks);
    default:
      return words;
  }
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
  int root = RootOf(c, turn), count = (int)c->words, bytes = count * (int)sizeof(double);
  int mine = c->counts[c->bench->rank];
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
      MPI_Scan(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, Directed(c, turn));
      break;
    case kExscan:
      MPI_Exscan(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, Directed(c, turn));
      break;
    case kAllgatherv:
      MPI_Allgatherv(c->in, mine, MPI_DOUBLE, c->out, c->counts, c->places, MPI_DOUBLE, world);
      break;
    case kAlltoallv:
      MPI_Alltoallv(c->in, c->counts, c->places, MPI_DOUBLE, c->out, c->counts, c->places,
                    MPI_DOUBLE, world);
      break;
    case kAlltoallw:
      MPI_Alltoallw(c->in, c->counts, c->places_bytes, c->types, c->out, c->counts, c->places_bytes,
                    c->types, world);
      break;
    case kGatherv:
      MPI_Gatherv(c->in, mine, MPI_DOUBLE, c->out, c->counts, c->places, MPI_DOUBLE, root, world);
      break;
    case kScatterv:
      MPI_Scatterv(c->in, c->counts, c->places, MPI_DOUBLE, c->out, mine, MPI_DOUBLE, root, world);
      break;
    default:
      break;
  }
}

static void StartNonblocking(const Calls* c, int64_t turn, MPI_Request* request) {
  int root = RootOf(c, turn), count = (int)c->words, bytes = count * (int)sizeof(double);
  int mine = c->counts[c->bench->rank];
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
      MPI_Iscan(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, Directed(c, turn), request);
      break;
    case kExscan:
      MPI_Iexscan(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, Directed(c, turn), request);
      break;
    case kAllgatherv:
      MPI_Iallgatherv(c->in, mine, MPI_DOUBLE, c->out, c->counts, c->places, MPI_DOUBLE, world,
                      request);
      break;
    case kAlltoallv:
      MPI_Ialltoallv(c->in, c->counts, c->places, MPI_DOUBLE, c->out, c->counts, c->places,
                     MPI_DOUBLE, world, request);
      break;
    case kAlltoallw:
      MPI_Ialltoallw(c->in, c->counts, c->places_bytes, c->types, c->out, c->counts,
                     c->places_bytes, c->types, world, request);
      break;
    case kGatherv:
      MPI_Igatherv(c->in, mine, MPI_DOUBLE, c->out, c->counts, c->places, MPI_DOUBLE, root, world,
                   request);
      break;
    case kScatterv:
      MPI_Iscatterv(c->in, c->counts, c->places, MPI_DOUBLE, c->out, mine, MPI_DOUBLE, root, world,
                    request);
      break;
    default:
      break;
  }
}

#if HAVE_PERSISTENT
static void MakePersistent(const Calls* c, int64_t turn, MPI_Request* request) {
  int root = RootOf(c, turn), count = (int)c->words, bytes = count * (int)sizeof(double);
  int mine = c->counts[c->bench->rank];
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
      MPI_Scan_init(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, Directed(c, turn), none, request);
      break;
    case kExscan:
      MPI_Exscan_init(c->in, c->out, count, MPI_DOUBLE, MPI_SUM, Directed(c, turn), none, request);
      break;
    case kAllgatherv:
      MPI_Allgatherv_init(c->in, mine, MPI_DOUBLE, c->out, c->counts, c->places, MPI_DOUBLE, world,
                          none, request);
      break;
    case kAlltoallv:
      MPI_Alltoallv_init(c->in, c->counts, c->places, MPI_DOUBLE, c->out, c->counts, c->places,
                         MPI_DOUBLE, world, none, request);
      break;
    case kAlltoallw:
      MPI_Alltoallw_init(c->in, c->counts, c->places_bytes, c->types, c->out, c->counts,
                         c->places_bytes, c->types, world, none, request);
      break;
    case kGatherv:
      MPI_Gatherv_init(c->in, mine, MPI_DOUBLE, c->out, c->counts, c->places, MPI_DOUBLE, root,
                       world, none, request);
      break;
    case kScatterv:
      MPI_Scatterv_init(c->in, c->counts, c->places, MPI_DOUBLE, c->out, mine, MPI_DOUBLE, root,
                        world, none, request);
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

void BeginCalls(Calls* c) {
  if (c->mode != kPersistent) return;
  for (int turn = 0; turn < DifferentTurns(c); ++turn)
    MakePersistent(c, turn, &c->persistent[turn]);
}

void EndCalls(Calls* c) {
  if (c->mode != kPersistent) return;
  for (int turn = 0; turn < DifferentTurns(c); ++turn) MPI_Request_free(&c->persistent[turn]);
}

void Call(const Calls* c, int64_t turn) {
  if (c->mode == kBlocking) {
    CallBlocking(c, turn);
  } else if (c->mode == kPersistent) {
    MPI_Request* request = &c->persistent[turn % DifferentTurns(c)];
    MPI_Start(request);
    MPI_Wait(request, MPI_STATUS_IGNORE);
  } else {
    MPI_Request request;
    StartNonblocking(c, turn, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}
