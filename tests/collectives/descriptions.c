// The same collectives over and over, so that ways of serving them are measured and chosen, whose
// ranks describe the same message each in its own way: datatypes, counts, places, and in place
// where that is each root's own choice. Whatever ranks decide together must not follow from that.
//   --without=NAME   leaves out a collective that the host gets wrong
#include "odtest.h"

typedef enum {
  kBcast,
  kGather,
  kScatter,
  kAllgather,
  kAlltoall,
  kGatherv,
  kScatterv,
  kAllgatherv,
  kAlltoallv,
  kReduce,
  kCollectives
} Collective;
static const char* const kNames[kCollectives] = {"bcast",     "gather",  "scatter",  "allgather",
                                                 "alltoall",  "gatherv", "scatterv", "allgatherv",
                                                 "alltoallv", "reduce"};

enum { kKinds = 6, kSizes = 3, kCalls = 260, kMostRanks = 16, kMostExtent = 12, kUntouched = 0x11 };
static const int kInts[kSizes] = {4, 200, 6000};

// How a rank describes integers.
typedef struct {
  MPI_Datatype type;
  int kind;
  int ints;    // of an element
  int extent;  // bytes
} Form;

static Form form_make(int kind, int ints) {
  Form form = {MPI_INT, kind, 1, 4};
  const int one[2] = {1, 1};
  const MPI_Aint backwards[2] = {4, 0};
  switch (kind) {
    case 1:
      form = (Form){MPI_INT, kind, 4, 16};
      MUST(MPI_Type_contiguous(4, MPI_INT, &form.type));
      break;
    case 2:
      form = (Form){MPI_INT, kind, 2, 12};
      MUST(MPI_Type_vector(2, 1, 2, MPI_INT, &form.type));
      break;
    case 3:
      form = (Form){MPI_INT, kind, 2, 8};
      MUST(MPI_Type_create_hindexed(2, one, backwards, MPI_INT, &form.type));
      break;
    case 4:
      form = (Form){MPI_INT, kind, 1, 12};
      MUST(MPI_Type_create_resized(MPI_INT, 0, 12, &form.type));
      break;
    case 5:
      form = (Form){MPI_INT, kind, ints, 4 * ints};
      MUST(MPI_Type_contiguous(ints, MPI_INT, &form.type));
      break;
    default:
      return form;
  }
  MUST(MPI_Type_commit(&form.type));
  return form;
}

static long place_of(const Form* form, int i) {
  switch (form->kind) {
    case 2:
      return i / 2 * 12L + i % 2 * 8;
    case 3:
      return i / 2 * 8L + (i % 2 == 0 ? 4 : 0);
    case 4:
      return i * 12L;
    default:
      return i * 4L;
  }
}

static int content(int call, int from, int to, int i) {
  return call * 7919 + from * 1013 + to * 131 + i % 1000;
}

static void put(char* at, const Form* form, int ints, int call, int from, int to) {
  for (int i = 0; i < ints; i++) {
    const int value = content(call, from, to, i);
    memcpy(at + place_of(form, i), &value, sizeof value);
  }
}

static void look(const char* at, const Form* form, int ints, int call, int from, int to,
                 const char* what) {
  for (int i = 0; i < ints; i++) {
    int value;
    memcpy(&value, at + place_of(form, i), sizeof value);
    const int expected = content(call, from, to, i);
    CHECK(value == expected, "%s, call %d, of %d: from %d to %d, number %d is %d, not %d", what,
          call, ints, from, to, i, value, expected);
    if (value != expected) return;
  }
}

// Blocks with counts and places of their own.
typedef struct {
  int ints[kMostRanks], counts[kMostRanks], displs[kMostRanks];
} Blocks;

static char *in, *out;
static Form forms[kSizes][kKinds];

static char* block_at(char* memory, const Blocks* blocks, const Form* form, int rank) {
  return memory + (long)blocks->displs[rank] * form->extent;
}

// Ranks have blocks of different lengths in every other call.
static int length(int ints, int uneven, int number) {
  return uneven ? ints * (number % 3) / 8 * 4 : ints;
}

static Blocks blocks_make(const Form* form, int ints, int uneven, int pairs) {
  Blocks blocks;
  for (int rank = 0; rank < odt.size; rank++) {
    blocks.ints[rank] = length(ints, uneven, pairs ? rank + odt.rank : rank);
    blocks.counts[rank] = blocks.ints[rank] / form->ints;
    blocks.displs[rank] = (odt.size - 1 - rank) * (ints / form->ints + 1);
  }
  return blocks;
}

static void with_places(Collective which, int ints, int call, int root, int in_place,
                        const Form* sent, const Form* received, int uneven, MPI_Comm comm) {
  const int me = odt.rank, at_root = me == root;
  const int pairs = which == kAlltoallv;
  const Blocks to = blocks_make(sent, ints, uneven, pairs);
  const Blocks from = blocks_make(received, ints, uneven, pairs);
  const int own = from.ints[me];
  const void* own_send = in_place ? MPI_IN_PLACE : in;
  char* const own_place = block_at(out, &from, received, me);
  switch (which) {
    case kGatherv:
    case kAllgatherv:
      if (which == kGatherv && !at_root) own_send = in;
      put(own_send == in ? in : own_place, own_send == in ? sent : received, own, call, me, 0);
      if (which == kGatherv) {
        MUST(MPI_Gatherv(own_send, own / sent->ints, sent->type, out, from.counts, from.displs,
                         received->type, root, comm));
        if (!at_root) return;
      } else {
        MUST(MPI_Allgatherv(own_send, own / sent->ints, sent->type, out, from.counts, from.displs,
                            received->type, comm));
      }
      for (int rank = 0; rank < odt.size; rank++) {
        look(block_at(out, &from, received, rank), received, from.ints[rank], call, rank, 0,
             kNames[which]);
      }
      return;
    case kScatterv:
      for (int rank = 0; rank < odt.size && at_root; rank++) {
        put(block_at(in, &to, sent, rank), sent, to.ints[rank], call, me, rank);
      }
      MUST(MPI_Scatterv(in, to.counts, to.displs, sent->type,
                        at_root && in_place ? MPI_IN_PLACE : out, own / received->ints,
                        received->type, root, comm));
      if (!(at_root && in_place)) look(out, received, own, call, root, me, kNames[which]);
      return;
    default:
      for (int rank = 0; rank < odt.size; rank++) {
        put(block_at(in, &to, sent, rank), sent, to.ints[rank], call, me, rank);
      }
      MUST(MPI_Alltoallv(in, to.counts, to.displs, sent->type, out, from.counts, from.displs,
                         received->type, comm));
      for (int rank = 0; rank < odt.size; rank++) {
        look(block_at(out, &from, received, rank), received, from.ints[rank], call, rank, me,
             kNames[which]);
      }
  }
}

static void with_equal_blocks(Collective which, int ints, int call, int root, int in_place,
                              const Form* sent, const Form* received, MPI_Comm comm) {
  const int me = odt.rank, at_root = me == root;
  const int out_count = ints / sent->ints, in_count = ints / received->ints;
  const long out_block = (long)out_count * sent->extent;
  const long in_block = (long)in_count * received->extent;
  const int left_out = in_place && (at_root || which == kAllgather || which == kAlltoall);
  const void* const send = left_out ? MPI_IN_PLACE : in;
  const int to_all = which == kAlltoall;
  switch (which) {
    case kBcast:
      if (at_root) put(in, sent, ints, call, root, 0);
      MUST(MPI_Bcast(in, out_count, sent->type, root, comm));
      look(in, sent, ints, call, root, 0, kNames[which]);
      return;
    case kScatter:
      for (int rank = 0; rank < odt.size && at_root; rank++) {
        put(in + rank * out_block, sent, ints, call, me, rank);
      }
      MUST(MPI_Scatter(in, out_count, sent->type, left_out ? MPI_IN_PLACE : out, in_count,
                       received->type, root, comm));
      if (!left_out) look(out, received, ints, call, root, me, kNames[which]);
      return;
    default:
      for (int rank = 0; rank < (to_all ? odt.size : 1); rank++) {
        char* const kept = out + (to_all ? rank : me) * in_block;
        put(left_out ? kept : in + rank * out_block, left_out ? received : sent, ints, call, me,
            to_all ? rank : 0);
      }
      if (to_all) {
        MUST(MPI_Alltoall(send, out_count, sent->type, out, in_count, received->type, comm));
      } else if (which == kAllgather) {
        MUST(MPI_Allgather(send, out_count, sent->type, out, in_count, received->type, comm));
      } else {
        MUST(MPI_Gather(send, out_count, sent->type, out, in_count, received->type, root, comm));
        if (!at_root) return;
      }
      for (int rank = 0; rank < odt.size; rank++) {
        look(out + rank * in_block, received, ints, call, rank, to_all ? me : 0, kNames[which]);
      }
  }
}

static void reduce(int ints, int call, int root, MPI_Comm comm) {
  static const Form plain = {MPI_INT, 0, 1, 4};
  put(in, &plain, ints, call, odt.rank, 0);
  MUST(MPI_Reduce(in, out, ints, MPI_INT, MPI_MAX, root, comm));
  if (odt.rank == root) look(out, &plain, ints, call, odt.size - 1, 0, kNames[kReduce]);
}

int main(int argc, char** argv) {
  odt_start("descriptions", &argc, &argv);
  const char* const without = odt_option("without", "");
  const size_t room = (size_t)kMostExtent * kInts[kSizes - 1] * (size_t)(odt.size + 1);
  in = odt_memory(room);
  out = odt_memory(room);
  for (int size = 0; size < kSizes; size++) {
    for (int kind = 0; kind < kKinds; kind++) forms[size][kind] = form_make(kind, kInts[size]);
  }
  OdtRandom own = odt_random(1000 + (uint64_t)odt.rank), common = odt_random(1);
  MPI_Comm comm;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  int call = 0;
  for (int size = 0; size < kSizes; size++) {
    for (Collective which = 0; which < kCollectives; which++) {
      if (strcmp(kNames[which], without) == 0) continue;
      for (int k = 0; k < kCalls; k++, call++) {
        const int root = (int)odt_below(&common, odt.size);
        const int in_place = odt_below(&common, 3) == 0;
        const int uneven = (int)odt_below(&common, 2);
        // The last kind is as long as a whole block.
        const int kinds = which >= kGatherv ? kKinds - 1 : kKinds;
        const Form* const sent = &forms[size][odt_below(&own, kinds)];
        const Form* const received = &forms[size][odt_below(&own, kinds)];
        memset(in, kUntouched, room);
        memset(out, kUntouched, room);
        if (which == kReduce) {
          reduce(kInts[size], call, root, comm);
        } else if (which >= kGatherv) {
          with_places(which, kInts[size], call, root, in_place, sent, received, uneven, comm);
        } else {
          with_equal_blocks(which, kInts[size], call, root, in_place, sent, received, comm);
        }
        if (k != kCalls / 2) continue;
        MPI_Comm copy;
        MUST(MPI_Comm_dup(comm, &copy));
        MUST(MPI_Barrier(copy));
        MUST(MPI_Comm_free(&copy));
      }
    }
    MUST(MPI_Comm_free(&comm));
    MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  }
  MUST(MPI_Comm_free(&comm));
  for (int size = 0; size < kSizes; size++) {
    for (int kind = 1; kind < kKinds; kind++) MUST(MPI_Type_free(&forms[size][kind].type));
  }
  free(out);
  free(in);
  return odt_finish();
}
