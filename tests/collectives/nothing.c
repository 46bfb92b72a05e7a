// Messages and collectives without elements whose datatype, on one rank, is none or not committed:
// where the host lets that pass the call must take part like any other, since the other ranks wait
// for it. What the host refuses is left out: the host is asked on MPI_COMM_SELF first, where a call
// never belongs to anybody else. With --null=1 the last rank receives at a null pointer instead,
// which ends the job where the host does not refuse it.
#include "odtest.h"

enum { kSend, kSsend, kIsend, kRecv, kIrecv, kMessages };

static const char* const kMessageNames[] = {"Send", "Ssend", "Isend", "Recv", "Irecv"};

static int message(int kind, MPI_Datatype type, int peer, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  int code = MPI_SUCCESS;
  switch (kind) {
    case kSend:
      return MPI_Send(NULL, 0, type, peer, 5, comm);
    case kSsend:
      return MPI_Ssend(NULL, 0, type, peer, 5, comm);
    case kIsend:
      code = MPI_Isend(NULL, 0, type, peer, 5, comm, &request);
      break;
    case kRecv:
      return MPI_Recv(NULL, 0, type, peer, 5, comm, &status);
    default:
      code = MPI_Irecv(NULL, 0, type, peer, 5, comm, &request);
  }
  return code == MPI_SUCCESS ? MPI_Wait(&request, &status) : code;
}

enum {
  kBcast,
  kGather,
  kScatter,
  kAllgather,
  kAlltoall,
  kGatherv,
  kScatterv,
  kAllgatherv,
  kAlltoallv,
  kIbcast,
  kIgather,
  kIscatter,
  kIallgather,
  kIalltoall,
  kIgatherv,
  kIscatterv,
  kIallgatherv,
  kIalltoallv,
  kCollectives
};

static const char* const kNames[] = {
    "Bcast",      "Gather",     "Scatter",   "Allgather", "Alltoall",    "Gatherv",
    "Scatterv",   "Allgatherv", "Alltoallv", "Ibcast",    "Igather",     "Iscatter",
    "Iallgather", "Ialltoall",  "Igatherv",  "Iscatterv", "Iallgatherv", "Ialltoallv"};

static int collective(int kind, MPI_Datatype in, MPI_Datatype out, MPI_Comm comm) {
  enum { kMost = 64 };
  static const int none[kMost];
  static int a[4], b[4];
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_SUCCESS;
  switch (kind) {
    case kBcast:
      return MPI_Bcast(a, 0, in, 0, comm);
    case kGather:
      return MPI_Gather(a, 0, in, b, 0, out, 0, comm);
    case kScatter:
      return MPI_Scatter(a, 0, in, b, 0, out, 0, comm);
    case kAllgather:
      return MPI_Allgather(a, 0, in, b, 0, out, comm);
    case kAlltoall:
      return MPI_Alltoall(a, 0, in, b, 0, out, comm);
    case kGatherv:
      return MPI_Gatherv(a, 0, in, b, none, none, out, 0, comm);
    case kScatterv:
      return MPI_Scatterv(a, none, none, in, b, 0, out, 0, comm);
    case kAllgatherv:
      return MPI_Allgatherv(a, 0, in, b, none, none, out, comm);
    case kAlltoallv:
      return MPI_Alltoallv(a, none, none, in, b, none, none, out, comm);
    case kIbcast:
      code = MPI_Ibcast(a, 0, in, 0, comm, &request);
      break;
    case kIgather:
      code = MPI_Igather(a, 0, in, b, 0, out, 0, comm, &request);
      break;
    case kIscatter:
      code = MPI_Iscatter(a, 0, in, b, 0, out, 0, comm, &request);
      break;
    case kIallgather:
      code = MPI_Iallgather(a, 0, in, b, 0, out, comm, &request);
      break;
    case kIalltoall:
      code = MPI_Ialltoall(a, 0, in, b, 0, out, comm, &request);
      break;
    case kIgatherv:
      code = MPI_Igatherv(a, 0, in, b, none, none, out, 0, comm, &request);
      break;
    case kIscatterv:
      code = MPI_Iscatterv(a, none, none, in, b, 0, out, 0, comm, &request);
      break;
    case kIallgatherv:
      code = MPI_Iallgatherv(a, 0, in, b, none, none, out, comm, &request);
      break;
    default:
      code = MPI_Ialltoallv(a, none, none, in, b, none, none, out, comm, &request);
  }
  return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}

int main(int argc, char** argv) {
  odt_start("nothing", &argc, &argv);
  int last = odt.size - 1;
  if (odt_number("null", 0)) {
    int one = 1;
    MPI_Exscan(&one, odt.rank == last ? NULL : &one, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    return odt_finish();
  }
  MPI_Comm alone;
  MPI_Datatype odd[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
  MUST(MPI_Comm_dup(MPI_COMM_SELF, &alone));
  MUST(MPI_Comm_set_errhandler(alone, MPI_ERRORS_RETURN));
  MUST(MPI_Type_contiguous(2, MPI_INT, &odd[1]));
  int passed = 0;
  for (int t = 0; t < 2; t++) {
    for (int kind = 0; kind < kMessages; kind++) {
      if (message(kind, odd[t], MPI_PROC_NULL, alone) != MPI_SUCCESS) continue;
      passed++;
      if (odt.rank == 0) printf("passes: %s, type %d\n", kMessageNames[kind], t);
      // The one with the odd type is rank 0, the other one is valid.
      if (odt.rank == 0) MUST(message(kind, odd[t], last, MPI_COMM_WORLD));
      int other = kind == kRecv || kind == kIrecv ? kSend : kRecv;
      if (odt.rank == last) MUST(message(other, MPI_INT, 0, MPI_COMM_WORLD));
    }
    for (int kind = 0; kind < kCollectives; kind++) {
      for (int side = 0; side < 2; side++) {
        MPI_Datatype in = side == 0 ? odd[t] : MPI_INT;
        MPI_Datatype out = side == 1 ? odd[t] : MPI_INT;
        if (collective(kind, in, out, alone) != MPI_SUCCESS) continue;
        if (side == 1 && (kind == kBcast || kind == kIbcast)) continue;
        passed++;
        if (odt.rank == 0) printf("passes: %s, type %d, side %d\n", kNames[kind], t, side);
        for (int bad = 0; bad < odt.size; bad++) {
          int mine = odt.rank == bad;
          MUST(collective(kind, mine ? in : MPI_INT, mine ? out : MPI_INT, MPI_COMM_WORLD));
          MUST(MPI_Barrier(MPI_COMM_WORLD));
        }
      }
    }
  }
  CHECK(passed > 0, "the host lets none of these pass");
  MUST(MPI_Type_free(&odd[1]));
  MUST(MPI_Comm_free(&alone));
  return odt_finish();
}
