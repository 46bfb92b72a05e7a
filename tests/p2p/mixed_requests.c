// Arrays of requests of every origin - local messages, messages to oneself, messages through the
// host, the host's non-blocking collectives, generalised, null and inactive ones - in every Wait
// and Test call, many rounds in random mixtures.
#include "odtest.h"

enum { kMost = 24 };

enum Kind { kRecv, kSend, kSelf, kBarrier, kGeneral, kNull, kInactive, kPersistent, kKinds };

typedef struct {
  enum Kind kind;
  long bytes;
  int tag;
  int peer;
  uint64_t key;
  char* buffer;
} Entry;

static MPI_Comm comm;
static MPI_Request inactive;

static int general_query(void* state, MPI_Status* status) {
  (void)state;
  MPI_Status_set_elements(status, MPI_BYTE, 77);
  MPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = 5;
  status->MPI_TAG = 6;
  return MPI_SUCCESS;
}
static int general_free(void* state) {
  (void)state;
  return MPI_SUCCESS;
}
static int general_cancel(void* state, int done) {
  (void)state;
  (void)done;
  return MPI_SUCCESS;
}

// All ranks plan the same list, from the seed and the round; entry i of a pair of ranks has tag i.
static int make(int round, Entry* entries, MPI_Request* requests) {
  OdtRandom random = odt_random((uint64_t)round);
  int count = 4 + (int)odt_below(&random, kMost - 4);
  for (int i = 0; i < count; i++) {
    Entry* entry = &entries[i];
    uint64_t roll = odt_next(&random);
    long bytes = odt_size(&random, odt_below(&random, 10) == 0 ? 500000 : 5000);
    int distance = 1 + (int)odt_below(&random, odt.size - 1);
    entry->buffer = odt_memory((size_t)bytes);
    entry->bytes = bytes;
    entry->tag = i;
    switch (roll % 9) {
      case 0:
        entry->kind = kNull;
        break;
      case 1:
        entry->kind = kInactive;
        break;
      case 2:
        entry->kind = kBarrier;
        break;
      case 3:
        entry->kind = kGeneral;
        break;
      case 4:
        entry->kind = kSelf;
        break;
      case 5:
        entry->kind = kPersistent;
        break;
      default:
        entry->kind = kRecv;
    }
    requests[i] = MPI_REQUEST_NULL;
    switch (entry->kind) {
      case kInactive:
        requests[i] = inactive;
        break;
      case kBarrier:
        MUST(MPI_Ibarrier(comm, &requests[i]));
        break;
      case kGeneral:
        MUST(MPI_Grequest_start(general_query, general_free, general_cancel, NULL, &requests[i]));
        MUST(MPI_Grequest_complete(requests[i]));
        break;
      case kSelf:
        entry->peer = odt.rank;
        entry->key = odt_key(odt.rank, odt.rank, round, i);
        MUST(MPI_Irecv(entry->buffer, (int)bytes, MPI_BYTE, odt.rank, i, comm, &requests[i]));
        break;
      case kRecv:
      case kPersistent: {
        // In each distance class half of the ranks would deadlock nobody: everything is posted
        // before anything is waited for. Rank r receives from r - distance.
        entry->peer = (odt.rank - distance + odt.size) % odt.size;
        entry->key = odt_key(entry->peer, odt.rank, round, i);
        if (entry->kind == kPersistent) {
          MUST(MPI_Recv_init(entry->buffer, (int)bytes, MPI_BYTE, entry->peer, i, comm,
                             &requests[i]));
          MUST(MPI_Start(&requests[i]));
        } else {
          MUST(MPI_Irecv(entry->buffer, (int)bytes, MPI_BYTE, i % 2 ? entry->peer : MPI_ANY_SOURCE,
                         i, comm, &requests[i]));
        }
        break;
      }
      default:
        break;
    }
  }
  return count;
}

// The sends that match: their requests go into a second array.
static int make_sends(int round, Entry* sends, MPI_Request* requests) {
  OdtRandom random = odt_random((uint64_t)round);
  int count = 4 + (int)odt_below(&random, kMost - 4), made = 0;
  for (int i = 0; i < count; i++) {
    uint64_t roll = odt_next(&random);
    long bytes = odt_size(&random, odt_below(&random, 10) == 0 ? 500000 : 5000);
    int distance = 1 + (int)odt_below(&random, odt.size - 1);
    int to;
    if (roll % 9 < 4) continue;
    to = roll % 9 == 4 ? odt.rank : (odt.rank + distance) % odt.size;
    sends[made].buffer = odt_memory((size_t)bytes);
    sends[made].kind = kSend;
    odt_fill(sends[made].buffer, (size_t)bytes, odt_key(odt.rank, to, round, i));
    if (roll % 2) {
      MUST(MPI_Isend(sends[made].buffer, (int)bytes, MPI_BYTE, to, i, comm, &requests[made]));
    } else {
      MUST(MPI_Issend(sends[made].buffer, (int)bytes, MPI_BYTE, to, i, comm, &requests[made]));
    }
    made++;
  }
  return made;
}

static void check(const Entry* entry, MPI_Status* status, int round, int i) {
  int count = -1;
  MPI_Get_count(status, MPI_BYTE, &count);
  switch (entry->kind) {
    case kRecv:
    case kPersistent:
    case kSelf:
      CHECK(status->MPI_SOURCE == entry->peer && status->MPI_TAG == i && count == entry->bytes,
            "round %d entry %d: %d bytes from %d tag %d, not %ld from %d", round, i, count,
            status->MPI_SOURCE, status->MPI_TAG, entry->bytes, entry->peer);
      CHECK_DATA(entry->buffer, entry->bytes, entry->key);
      break;
    case kGeneral:
      CHECK(count == 77 && status->MPI_SOURCE == 5 && status->MPI_TAG == 6,
            "round %d entry %d: the generalised request's status is lost", round, i);
      break;
    case kNull:
    case kInactive:
      CHECK(count == 0 && status->MPI_SOURCE == MPI_ANY_SOURCE, "round %d entry %d: not empty",
            round, i);
      break;
    default:
      break;
  }
}

static int is_pending(const Entry* entry) {
  return entry->kind != kNull && entry->kind != kInactive;
}

static void finish(int how, int round, int count, Entry* entries, MPI_Request* requests) {
  MPI_Status statuses[kMost];
  int indices[kMost], done = 0, index = 0, flag = 0, left = 0;
  for (int i = 0; i < count; i++) left += is_pending(&entries[i]);
  switch (how % 8) {
    case 0:
      MUST(MPI_Waitall(count, requests, statuses));
      for (int i = 0; i < count; i++) check(&entries[i], &statuses[i], round, i);
      left = 0;
      break;
    case 1:
      while (!flag) MUST(MPI_Testall(count, requests, &flag, statuses));
      for (int i = 0; i < count; i++) check(&entries[i], &statuses[i], round, i);
      left = 0;
      break;
    case 2:
    case 3:
      while (left > 0) {
        if (how % 8 == 2) {
          MUST(MPI_Waitsome(count, requests, &done, indices, statuses));
          CHECK(done != MPI_UNDEFINED && done > 0, "Waitsome: %d with %d left", done, left);
        } else {
          MUST(MPI_Testsome(count, requests, &done, indices, statuses));
          CHECK(done != MPI_UNDEFINED, "Testsome: undefined with %d left", left);
        }
        if (done == MPI_UNDEFINED) break;
        for (int i = 0; i < done; i++) {
          check(&entries[indices[i]], &statuses[i], round, indices[i]);
        }
        left -= done;
      }
      break;
    case 4:
    case 5:
      while (left > 0) {
        if (how % 8 == 4) {
          flag = 1;
          MUST(MPI_Waitany(count, requests, &index, &statuses[0]));
        } else {
          MUST(MPI_Testany(count, requests, &index, &flag, &statuses[0]));
        }
        if (!flag) continue;
        CHECK(index >= 0 && index < count, "any: index %d with %d left", index, left);
        if (index < 0 || index >= count) break;
        check(&entries[index], &statuses[0], round, index);
        left--;
      }
      break;
    case 6:
      for (int i = count - 1; i >= 0; i--) {
        MUST(MPI_Wait(&requests[i], &statuses[i]));
        check(&entries[i], &statuses[i], round, i);
      }
      left = 0;
      break;
    default:
      for (int i = 0; i < count; i++) {
        flag = 0;
        while (!flag) {
          // MPI_Request_get_status must drive progress too.
          MUST(MPI_Request_get_status(requests[i], &flag, &statuses[i]));
        }
        check(&entries[i], &statuses[i], round, i);
        MUST(MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE));
        CHECK(flag, "round %d entry %d: complete, then not complete", round, i);
      }
      left = 0;
  }
  for (int i = 0; i < count; i++) {
    if (entries[i].kind == kInactive) {
      CHECK(requests[i] == inactive, "an inactive request was freed");
    } else if (entries[i].kind == kPersistent) {
      CHECK(requests[i] != MPI_REQUEST_NULL, "a persistent request was freed");
      if (requests[i] != MPI_REQUEST_NULL) MUST(MPI_Request_free(&requests[i]));
    } else {
      CHECK(requests[i] == MPI_REQUEST_NULL, "round %d entry %d kind %d: not null at the end",
            round, i, entries[i].kind);
    }
  }
}

int main(int argc, char** argv) {
  odt_start("mixed_requests", &argc, &argv);
  const long rounds = odt_number("rounds", 300);
  char nothing = 0;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MUST(MPI_Recv_init(&nothing, 1, MPI_BYTE, 0, 9999, comm, &inactive));
  for (int round = 0; round < rounds; round++) {
    Entry entries[kMost], sends[kMost];
    MPI_Request requests[kMost], send_requests[kMost];
    int count = make(round, entries, requests);
    int sent = make_sends(round, sends, send_requests);
    finish((round + odt.rank) % 8, round, count, entries, requests);
    MUST(MPI_Waitall(sent, send_requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < count; i++) free(entries[i].buffer);
    for (int i = 0; i < sent; i++) free(sends[i].buffer);
    // Receives from any source must not take the next round's messages.
    MUST(MPI_Barrier(comm));
  }
  MUST(MPI_Request_free(&inactive));
  MUST(MPI_Comm_free(&comm));
  return odt_finish();
}
