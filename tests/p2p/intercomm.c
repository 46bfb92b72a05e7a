// Inter-communicators: creation, messages both ways between groups of unequal size, wildcards,
// probes, isolation from the communicators they were made of and from their duplicates, merging.
#include "odtest.h"

static const long kSizes[] = {0, 1, 100, 5000, 65536, 65537, 700000};
enum { kSizeCount = 7 };

// Every rank of one group sends to every rank of the other; sources are ranks of the remote group.
static void all_pairs(MPI_Comm inter, int stream) {
  int remote = 0, me = 0;
  MUST(MPI_Comm_remote_size(inter, &remote));
  MUST(MPI_Comm_rank(inter, &me));
  for (int i = 0; i < kSizeCount; i++) {
    const int bytes = (int)kSizes[i];
    MPI_Request* requests = odt_memory((size_t)remote * sizeof *requests);
    char* out = odt_memory((size_t)bytes + 8);
    char* in = odt_memory((size_t)bytes + 8);
    // The payload names the sender's world rank and its rank in the group.
    int32_t header[2] = {odt.rank, me};
    memcpy(out, header, 8);
    odt_fill(out + 8, (size_t)bytes, odt_key(odt.rank, 0, stream, i));
    for (int to = 0; to < remote; to++) {
      MUST(MPI_Isend(out, bytes + 8, MPI_BYTE, to, i, inter, &requests[to]));
    }
    char* seen = calloc((size_t)remote, 1);
    for (int k = 0; k < remote; k++) {
      MPI_Status status;
      if (i % 3 == 0) {
        MUST(MPI_Recv(in, bytes + 8, MPI_BYTE, k, i, inter, &status));
      } else if (i % 3 == 1) {
        MUST(MPI_Recv(in, bytes + 8, MPI_BYTE, MPI_ANY_SOURCE, i, inter, &status));
      } else {
        MUST(MPI_Probe(MPI_ANY_SOURCE, i, inter, &status));
        MUST(MPI_Recv(in, bytes + 8, MPI_BYTE, status.MPI_SOURCE, i, inter, &status));
      }
      memcpy(header, in, 8);
      CHECK(header[1] == status.MPI_SOURCE, "source %d, but group rank %d sent it",
            status.MPI_SOURCE, header[1]);
      if (status.MPI_SOURCE >= 0 && status.MPI_SOURCE < remote) {
        CHECK(!seen[status.MPI_SOURCE], "two messages from %d", status.MPI_SOURCE);
        seen[status.MPI_SOURCE] = 1;
      }
      CHECK_DATA(in + 8, bytes, odt_key(header[0], 0, stream, i));
    }
    MUST(MPI_Waitall(remote, requests, MPI_STATUSES_IGNORE));
    free(seen);
    free(in);
    free(out);
    free(requests);
  }
}

// The leaders are the last ranks of their groups, and know each other by a communicator on which a
// receive from any rank waits for a message that comes later, and a message for its receive.
static void made_while_messages_wait(MPI_Comm half, int color, int first_of_second) {
  int size = 0, me = 0;
  MUST(MPI_Comm_size(half, &size));
  MUST(MPI_Comm_rank(half, &me));
  const int remote_leader = color ? first_of_second - 1 : odt.size - 1;
  const int leads = me == size - 1;
  int late = -1, early = -1, sent[2] = {odt.rank, odt.rank + 1000};
  MPI_Request requests[3];
  if (leads) {
    MUST(MPI_Irecv(&late, 1, MPI_INT, MPI_ANY_SOURCE, 57, MPI_COMM_WORLD, &requests[0]));
    MUST(MPI_Isend(&sent[0], 1, MPI_INT, remote_leader, 58, MPI_COMM_WORLD, &requests[1]));
  }
  MPI_Comm inter;
  MUST(MPI_Intercomm_create(half, size - 1, MPI_COMM_WORLD, remote_leader, 56, &inter));
  if (leads) {
    MUST(MPI_Isend(&sent[1], 1, MPI_INT, remote_leader, 57, MPI_COMM_WORLD, &requests[2]));
    MUST(MPI_Recv(&early, 1, MPI_INT, MPI_ANY_SOURCE, 58, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MUST(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    CHECK(early == remote_leader && late == remote_leader + 1000, "got %d and %d", early, late);
  }
  all_pairs(inter, 40);
  MUST(MPI_Comm_free(&inter));
}

int main(int argc, char** argv) {
  odt_start("intercomm", &argc, &argv);
  if (odt.size >= 2) {
    MPI_Comm half, inter, copy, merged;
    // Unequal groups: rank 0 of three or more is alone.
    const int color = odt.rank >= (odt.size == 2 ? 1 : odt.size / 3);
    const int other_leader = color ? 0 : (odt.size == 2 ? 1 : odt.size / 3);
    int remote_size = 0, is_inter = 0, merged_rank = -1, merged_size = 0;
    MUST(MPI_Comm_split(MPI_COMM_WORLD, color, odt.rank, &half));
    MUST(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, other_leader, 55, &inter));
    MUST(MPI_Comm_test_inter(inter, &is_inter));
    MUST(MPI_Comm_remote_size(inter, &remote_size));
    CHECK(is_inter && remote_size >= 1, "not an inter-communicator");
    all_pairs(inter, 1);
    // The same tags at the same time on a duplicate and on the world: nobody gets another's
    // message.
    MUST(MPI_Comm_dup(inter, &copy));
    char on_inter = 1, on_copy = 2, on_world = 3, got = 0;
    int me = 0;
    MUST(MPI_Comm_rank(inter, &me));
    if (me == 0) {
      const int world_peer = color ? 0 : other_leader;
      MPI_Request requests[3];
      MPI_Status status;
      MUST(MPI_Isend(&on_world, 1, MPI_BYTE, world_peer, 3, MPI_COMM_WORLD, &requests[0]));
      MUST(MPI_Isend(&on_inter, 1, MPI_BYTE, 0, 3, inter, &requests[1]));
      MUST(MPI_Isend(&on_copy, 1, MPI_BYTE, 0, 3, copy, &requests[2]));
      MUST(MPI_Recv(&got, 1, MPI_BYTE, MPI_ANY_SOURCE, 3, copy, &status));
      CHECK(got == 2, "the duplicate got %d", got);
      MUST(MPI_Recv(&got, 1, MPI_BYTE, MPI_ANY_SOURCE, 3, inter, &status));
      CHECK(got == 1, "the inter-communicator got %d", got);
      MUST(MPI_Recv(&got, 1, MPI_BYTE, world_peer, 3, MPI_COMM_WORLD, &status));
      CHECK(got == 3, "the world got %d", got);
      MUST(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    }
    all_pairs(copy, 2);
    MUST(MPI_Intercomm_merge(inter, color, &merged));
    MUST(MPI_Comm_rank(merged, &merged_rank));
    MUST(MPI_Comm_size(merged, &merged_size));
    CHECK(merged_size == odt.size, "merged size %d", merged_size);
    int right = (merged_rank + 1) % merged_size,
        left = (merged_rank + merged_size - 1) % merged_size;
    int value = merged_rank, from_left = -1;
    MUST(MPI_Sendrecv(&value, 1, MPI_INT, right, 3, &from_left, 1, MPI_INT, left, 3, merged,
                      MPI_STATUS_IGNORE));
    CHECK(from_left == left, "got %d from %d", from_left, left);
    MUST(MPI_Comm_free(&merged));
    MUST(MPI_Comm_free(&copy));
    made_while_messages_wait(half, color, odt.size == 2 ? 1 : odt.size / 3);
    // Again after freeing: new ones do not see old ones' messages.
    for (int round = 0; round < 20; round++) {
      MPI_Comm again;
      MUST(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, other_leader, 55 + round % 3, &again));
      if (round % 5 == 0) all_pairs(again, 3 + round);
      MUST(MPI_Comm_free(&again));
    }
    MUST(MPI_Comm_free(&inter));
    MUST(MPI_Comm_free(&half));
  }
  return odt_finish();
}
