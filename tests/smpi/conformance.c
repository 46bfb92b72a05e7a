// The SMPI interface by its contract: every case prints one line with an answer that does not
// depend on where the ranks are, so the runs on one node, over nodes and without Overdrive must
// print the same. Needs at least 2 ranks.
//
// Options: --only=TEXT runs the cases whose names contain TEXT.
#include <overdrive/smpi.h>
#include <sys/mman.h>

#include "odtest.h"

static long g_cases;
static const char* g_only;
static uint64_t g_answer;
static MPI_Comm g_comm;

// Adds to the answer of this rank.
static void tell(uint64_t value) { g_answer = odt_mix(g_answer * 31 + value); }

static int begin_case(const char* name) {
  if (g_only != NULL && strstr(name, g_only) == NULL) return 0;
  // Receives from any source must not meet messages of the next case.
  MPI_Barrier(MPI_COMM_WORLD);
  g_answer = 1;
  g_cases++;
  return 1;
}

static void end_case(const char* name) {
  uint64_t all[64];
  MPI_Gather(&g_answer, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (odt.rank != 0) return;
  uint64_t sum = 0;
  for (int i = 0; i < odt.size; i++) sum = odt_mix(sum + all[i]);
  printf("case %s: %016llx\n", name, (unsigned long long)sum);
}

static uint64_t hash_bytes(const void* data, size_t bytes) {
  const unsigned char* in = data;
  uint64_t hash = 1469598103934665603u;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ in[i]) * 1099511628211u;
  return hash;
}

static void tell_status(const MPI_Status* status, MPI_Datatype type) {
  int count = -7;
  MPI_Get_count(status, type, &count);
  tell((uint64_t)status->MPI_SOURCE);
  tell((uint64_t)status->MPI_TAG);
  tell((uint64_t)count);
}

static void* block_of(size_t bytes, uint64_t key) {
  void* block = NULL;
  CHECK(SMPI_Alloc((MPI_Aint)bytes, &block) == MPI_SUCCESS, "%zu bytes", bytes);
  CHECK((uintptr_t)block % 64 == 0, "%p", block);
  odt_fill(block, bytes, key);
  return block;
}

// Looks at a view, tells and releases it.
static void see(SMPI_View* view, size_t bytes, uint64_t key) {
  const void* data = NULL;
  MPI_Status status;
  CHECK(SMPI_View_get(*view, &data, &status) == MPI_SUCCESS, "%zu bytes", bytes);
  int count = -1;
  MPI_Get_count(&status, MPI_BYTE, &count);
  CHECK(count == (int)bytes, "%d, not %zu", count, bytes);
  CHECK_DATA(data, bytes, key);
  tell(hash_bytes(data, bytes));
  tell_status(&status, MPI_BYTE);
  CHECK(SMPI_View_release(view) == MPI_SUCCESS, "release");
  CHECK(*view == SMPI_VIEW_NULL, "not null");
}

// --- messages in all ways

enum { kSend, kIsend, kPass, kIpass, kForeign, kIforeign, kMiddle, kWays };
static const char* const kWayNames[] = {"send",    "isend",    "pass",  "ipass",
                                        "foreign", "iforeign", "middle"};

static void send_by(int way, size_t bytes, uint64_t key, int dest, int tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Count count = (MPI_Count)bytes;
  if (way == kForeign || way == kIforeign) {
    void* memory = odt_memory(bytes);
    odt_fill(memory, bytes, key);
    if (way == kForeign) {
      CHECK(SMPI_Send(memory, count, MPI_BYTE, dest, tag, g_comm) == MPI_SUCCESS, "send");
    } else {
      CHECK(SMPI_Isend(memory, count, MPI_BYTE, dest, tag, g_comm, &request) == MPI_SUCCESS,
            "isend");
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    memset(memory, 0xee, bytes);  // it is the program's again
    free(memory);
    return;
  }
  if (way == kMiddle) {
    char* block = block_of(bytes + 4000, 1);
    odt_fill(block + 1234, bytes, key);
    CHECK(SMPI_Send(block + 1234, count, MPI_BYTE, dest, tag, g_comm) == MPI_SUCCESS, "send");
    CHECK(SMPI_Reclaim(block) == MPI_SUCCESS, "reclaim");
    memset(block, 0xee, bytes + 4000);
    CHECK(SMPI_Free(block) == MPI_SUCCESS, "free");
    return;
  }
  void* block = block_of(bytes, key);
  if (way == kSend) {
    CHECK(SMPI_Send(block, count, MPI_BYTE, dest, tag, g_comm) == MPI_SUCCESS, "send");
  } else if (way == kIsend) {
    CHECK(SMPI_Isend(block, count, MPI_BYTE, dest, tag, g_comm, &request) == MPI_SUCCESS, "isend");
  } else if (way == kPass) {
    CHECK(SMPI_Pass(block, count, MPI_BYTE, dest, tag, g_comm) == MPI_SUCCESS, "pass");
  } else {
    CHECK(SMPI_Ipass(block, count, MPI_BYTE, dest, tag, g_comm, &request) == MPI_SUCCESS, "ipass");
  }
  if (way == kIsend || way == kIpass) MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(request == MPI_REQUEST_NULL, "request left");
  if (way == kSend || way == kIsend) CHECK(SMPI_Free(block) == MPI_SUCCESS, "free");
}

static void messages(void) {
  static const size_t kSizes[] = {0, 1, 8, 64, 1000, 4096, 4097, 70000, 1 << 20};
  for (int way = 0; way < kWays; way++) {
    for (size_t s = 0; s < sizeof kSizes / sizeof kSizes[0]; s++) {
      for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        char name[64];
        const size_t bytes = kSizes[s];
        snprintf(name, sizeof name, "%s-%zu-%s", kWayNames[way], bytes,
                 nonblocking ? "irecv" : "recv");
        if (!begin_case(name)) continue;
        // A ring of pairs: even ranks send first.
        const int peer = odt.rank ^ 1;
        if (peer < odt.size) {
          for (int turn = 0; turn < 2; turn++) {
            const uint64_t key = odt_key(turn, 1 - turn, way, (long)s);
            if ((odt.rank & 1) == turn) {
              send_by(way, bytes, key, peer, 7);
              continue;
            }
            SMPI_View view;
            MPI_Status status;
            if (nonblocking) {
              MPI_Request request;
              CHECK(SMPI_Irecv(&view, (MPI_Count)bytes + 5, MPI_BYTE, peer, 7, g_comm, &request) ==
                        MPI_SUCCESS,
                    "irecv");
              MPI_Wait(&request, &status);
              CHECK(status.MPI_SOURCE == peer && status.MPI_TAG == 7, "%d %d", status.MPI_SOURCE,
                    status.MPI_TAG);
            } else {
              CHECK(SMPI_Recv(&view, (MPI_Count)bytes, MPI_BYTE, peer, 7, g_comm, &status) ==
                        MPI_SUCCESS,
                    "recv");
              tell_status(&status, MPI_BYTE);
            }
            see(&view, bytes, key);
          }
        }
        end_case(name);
      }
    }
  }
}

// --- collectives

static void collectives(MPI_Comm comm, const char* prefix) {
  static const size_t kSizes[] = {0, 1, 64, 5000, 300000};
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  CHECK(SMPI_Comm_attach(comm) == MPI_SUCCESS, "attach");
  SMPI_View* views = odt_memory((size_t)size * sizeof *views);
  for (size_t s = 0; s < sizeof kSizes / sizeof kSizes[0]; s++) {
    const size_t bytes = kSizes[s];
    const MPI_Count count = (MPI_Count)bytes;
    char name[64];
    for (int which = 0; which < 2; which++) {
      const int root = which == 0 ? 0 : size - 1;
      snprintf(name, sizeof name, "%s-bcast-%zu-from-%s", prefix, bytes, which ? "last" : "first");
      if (begin_case(name)) {
        void* block = rank == root ? block_of(bytes, s + 100) : NULL;
        CHECK(SMPI_Bcast(block, count, MPI_BYTE, root, comm, &views[0]) == MPI_SUCCESS, "bcast");
        if (rank == root) CHECK(SMPI_Free(block) == MPI_SUCCESS, "free");
        const void* data;
        SMPI_View_get(views[0], &data, MPI_STATUS_IGNORE);
        CHECK_DATA(data, bytes, s + 100);
        tell(hash_bytes(data, bytes));
        CHECK(SMPI_View_release(&views[0]) == MPI_SUCCESS, "release");
        end_case(name);
      }
      snprintf(name, sizeof name, "%s-scatter-%zu-from-%s", prefix, bytes,
               which ? "last" : "first");
      if (begin_case(name)) {
        char* block = rank == root ? block_of(bytes * (size_t)size, 1) : NULL;
        for (int i = 0; rank == root && i < size; i++) {
          odt_fill(block + bytes * (size_t)i, bytes, (uint64_t)i + 50);
        }
        CHECK(SMPI_Scatter(block, count, MPI_BYTE, root, comm, &views[0]) == MPI_SUCCESS,
              "scatter");
        const void* data;
        SMPI_View_get(views[0], &data, MPI_STATUS_IGNORE);
        CHECK_DATA(data, bytes, (uint64_t)rank + 50);
        tell(hash_bytes(data, bytes));
        CHECK(SMPI_View_release(&views[0]) == MPI_SUCCESS, "release");
        if (rank == root) {
          CHECK(SMPI_Reclaim(block) == MPI_SUCCESS, "reclaim");
          CHECK(SMPI_Free(block) == MPI_SUCCESS, "free");
        }
        end_case(name);
      }
    }
    snprintf(name, sizeof name, "%s-allgather-%zu", prefix, bytes);
    if (begin_case(name)) {
      void* block = block_of(bytes, (uint64_t)rank + 900);
      CHECK(SMPI_Allgather(block, count, MPI_BYTE, comm, views) == MPI_SUCCESS, "allgather");
      for (int i = 0; i < size; i++) {
        const void* data;
        MPI_Status status;
        SMPI_View_get(views[i], &data, &status);
        CHECK(status.MPI_SOURCE == i, "%d of %d", status.MPI_SOURCE, i);
        CHECK_DATA(data, bytes, (uint64_t)i + 900);
        tell(hash_bytes(data, bytes));
        CHECK(SMPI_View_release(&views[i]) == MPI_SUCCESS, "release");
      }
      CHECK(SMPI_Reclaim(block) == MPI_SUCCESS, "reclaim");
      CHECK(SMPI_Free(block) == MPI_SUCCESS, "free");
      end_case(name);
    }
  }
  free(views);
}

// Collective calls under way at once, together with a message of MPI's own, in one MPI_Waitall.
static void waiting_collectives(MPI_Comm comm, const char* prefix, int in_blocks) {
  static const size_t kSizes[] = {0, 1, 64, 5000, 300000};
  enum { kOthers = 6 };
  int rank, size;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  SMPI_View* views = odt_memory((size_t)size * sizeof *views);
  for (size_t s = 0; s < sizeof kSizes / sizeof kSizes[0]; s++) {
    const size_t bytes = kSizes[s];
    const MPI_Count count = (MPI_Count)bytes;
    const int last = size - 1;
    char name[64];
    snprintf(name, sizeof name, "%s-waiting-%zu%s", prefix, bytes, in_blocks ? "" : "-foreign");
    if (!begin_case(name)) continue;
    const size_t rooms[3] = {bytes, bytes, bytes * (size_t)size};
    char* given[3];
    for (int i = 0; i < 3; i++) {
      given[i] = in_blocks ? block_of(rooms[i], 1) : odt_memory(rooms[i] + 1);
    }
    odt_fill(given[0], bytes, s + 100);
    odt_fill(given[1], bytes, (uint64_t)rank + 900);
    for (int i = 0; i < size; i++) {
      odt_fill(given[2] + bytes * (size_t)i, bytes, (uint64_t)i + 50);
    }
    SMPI_View one[3];
    MPI_Request requests[kOthers];
    MPI_Status statuses[kOthers];
    int sent = rank, got = -1;
    MPI_Irecv(&got, 1, MPI_INT, (rank + last) % size, 9, comm, &requests[0]);
    CHECK(SMPI_Ibcast(given[0], count, MPI_BYTE, 0, comm, &one[0], &requests[1]) == MPI_SUCCESS,
          "ibcast");
    CHECK(SMPI_Iallgather(given[1], count, MPI_BYTE, comm, views, &requests[2]) == MPI_SUCCESS,
          "iallgather");
    CHECK(
        SMPI_Iscatter(given[2], count, MPI_BYTE, last, comm, &one[1], &requests[3]) == MPI_SUCCESS,
        "iscatter");
    CHECK(SMPI_Ibcast(given[0], count, MPI_BYTE, last, comm, &one[2], &requests[4]) == MPI_SUCCESS,
          "ibcast");
    MPI_Isend(&sent, 1, MPI_INT, (rank + 1) % size, 9, comm, &requests[5]);
    MPI_Waitall(kOthers, requests, statuses);
    CHECK(got == (rank + last) % size, "%d", got);
    // Other memory is the program's again.
    for (int i = 0; i < 3 && !in_blocks; i++) memset(given[i], 0xee, rooms[i]);
    for (int i = 0; i < 3; i++) {
      const uint64_t key = i == 1 ? (uint64_t)rank + 50 : s + 100;
      const void* data;
      MPI_Status status;
      CHECK(SMPI_View_get(one[i], &data, &status) == MPI_SUCCESS, "get %d", i);
      CHECK(status.MPI_SOURCE == (i == 0 ? 0 : last), "%d: from %d", i, status.MPI_SOURCE);
      CHECK_DATA(data, bytes, key);
      tell(hash_bytes(data, bytes));
      tell_status(&status, MPI_BYTE);
      if (i != 2) {
        CHECK(SMPI_View_release(&one[i]) == MPI_SUCCESS, "release");
        continue;
      }
      char* own;
      CHECK(SMPI_View_own(&one[i], &own) == MPI_SUCCESS, "own");
      CHECK_DATA(own, bytes, key);
      CHECK(SMPI_Free(own) == MPI_SUCCESS, "free");
    }
    for (int i = 0; i < size; i++) {
      const int at = (i + rank) % size;  // in any order
      const void* data;
      MPI_Status status;
      // One of them goes without having been looked at.
      if (i != 1) {
        CHECK(SMPI_View_get(views[at], &data, &status) == MPI_SUCCESS, "get");
        CHECK(status.MPI_SOURCE == at, "%d of %d", status.MPI_SOURCE, at);
        CHECK_DATA(data, bytes, (uint64_t)at + 900);
        tell(hash_bytes(data, bytes) * (uint64_t)(at + 1));
      }
      CHECK(SMPI_View_release(&views[at]) == MPI_SUCCESS, "release");
    }
    for (int i = 0; i < 3; i++) {
      if (in_blocks) {
        CHECK(SMPI_Reclaim(given[i]) == MPI_SUCCESS, "reclaim");
        CHECK(SMPI_Free(given[i]) == MPI_SUCCESS, "free");
      } else {
        free(given[i]);
      }
    }
    end_case(name);
  }
  free(views);
}

// --- single cases; each between ranks 0 and 1 unless it says otherwise

// Every length around those at which messages change their way, from the end of what can be read.
static void case_lengths(void) {
  enum { kPage = 4096, kRoom = 3 * kPage };
  char* const memory =
      mmap(NULL, kRoom + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED && mprotect(memory + kRoom, kPage, PROT_NONE) == 0, "mmap");
  for (size_t bytes = 0; bytes < 4200; bytes = bytes == 80    ? 500
                                               : bytes == 530 ? 4070
                                                              : bytes + 1) {
    const uint64_t key = odt_key(0, 1, 77, (long)bytes);
    if (odt.rank == 0) {
      odt_fill(memory + kRoom - bytes, bytes, key);
      CHECK(SMPI_Send(memory + kRoom - bytes, (MPI_Count)bytes, MPI_BYTE, 1, 3, g_comm) ==
                MPI_SUCCESS,
            "send of %zu", bytes);
    } else if (odt.rank == 1) {
      SMPI_View view;
      CHECK(SMPI_Recv(&view, (MPI_Count)bytes, MPI_BYTE, 0, 3, g_comm, MPI_STATUS_IGNORE) ==
                MPI_SUCCESS,
            "receive of %zu", bytes);
      see(&view, bytes, key);
    }
  }
  munmap(memory, kRoom + kPage);
}

static void case_order(void) {
  // Messages of one sender come in order, whatever their way and size.
  enum { kCount = 60 };
  for (int i = 0; i < kCount && odt.rank == 0; i++) {
    send_by(i % kWays == kMiddle ? kIpass : i % kWays, (size_t)(i * 397 % 9000), (uint64_t)i, 1, 3);
  }
  for (int i = 0; i < kCount && odt.rank == 1; i++) {
    SMPI_View view;
    SMPI_Recv(&view, 9000, MPI_BYTE, i % 2 ? 0 : MPI_ANY_SOURCE, i % 3 ? 3 : MPI_ANY_TAG, g_comm,
              MPI_STATUS_IGNORE);
    see(&view, (size_t)(i * 397 % 9000), (uint64_t)i);
  }
}

static void case_tags(void) {
  if (odt.rank == 0) {
    for (int tag = 0; tag < 10; tag++) send_by(kSend, 100 + (size_t)tag, (uint64_t)tag, 1, tag);
  }
  for (int tag = 9; tag >= 0 && odt.rank == 1; tag--) {
    SMPI_View view;
    SMPI_Recv(&view, 200, MPI_BYTE, 0, tag, g_comm, MPI_STATUS_IGNORE);
    see(&view, 100 + (size_t)tag, (uint64_t)tag);
  }
}

static void case_any_source(void) {
  // Rank 0 receives one message of everybody else; the answer must not depend on their order.
  uint64_t sum = 0;
  if (odt.rank != 0) send_by(kSend, 500 + (size_t)odt.rank, (uint64_t)odt.rank, 0, odt.rank);
  for (int i = 1; i < odt.size && odt.rank == 0; i++) {
    SMPI_View view;
    MPI_Status status;
    SMPI_Recv(&view, 1000, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, g_comm, &status);
    CHECK(status.MPI_SOURCE == status.MPI_TAG, "%d %d", status.MPI_SOURCE, status.MPI_TAG);
    const void* data;
    SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
    CHECK_DATA(data, 500 + status.MPI_SOURCE, (uint64_t)status.MPI_SOURCE);
    sum += hash_bytes(data, 500 + (size_t)status.MPI_SOURCE);
    SMPI_View_release(&view);
  }
  tell(sum);
}

static void case_waitall_mixed(void) {
  // Views and ordinary messages in one array, both directions.
  const int peer = odt.rank ^ 1;
  if (peer >= odt.size) return;
  enum { kEach = 6 };
  MPI_Request requests[4 * kEach];
  MPI_Status statuses[4 * kEach];
  SMPI_View views[kEach];
  int out[kEach], in[kEach];
  void* blocks[kEach];
  for (int i = 0; i < kEach; i++) {
    const size_t bytes = (size_t)(1 + i * i * 3000);
    SMPI_Irecv(&views[i], (MPI_Count)bytes, MPI_BYTE, peer, i, g_comm, &requests[4 * i]);
    MPI_Irecv(&in[i], 1, MPI_INT, peer, i, g_comm, &requests[4 * i + 1]);
    blocks[i] = block_of(bytes, odt_key(odt.rank, peer, 1, i));
    SMPI_Isend(blocks[i], (MPI_Count)bytes, MPI_BYTE, peer, i, g_comm, &requests[4 * i + 2]);
    out[i] = 100 * odt.rank + i;
    MPI_Isend(&out[i], 1, MPI_INT, peer, i, g_comm, &requests[4 * i + 3]);
  }
  CHECK(MPI_Waitall(4 * kEach, requests, statuses) == MPI_SUCCESS, "waitall");
  for (int i = 0; i < kEach; i++) {
    CHECK(statuses[4 * i].MPI_SOURCE == peer && statuses[4 * i].MPI_TAG == i, "status %d", i);
    CHECK(in[i] == 100 * peer + i, "%d", in[i]);
    see(&views[i], (size_t)(1 + i * i * 3000), odt_key(peer, odt.rank, 1, i));
    SMPI_Free(blocks[i]);
  }
}

static void case_waitany(void) {
  enum { kCount = 8 };
  MPI_Request requests[kCount];
  SMPI_View views[kCount];
  uint64_t sum = 0;
  if (odt.rank == 0) {
    for (int i = 0; i < kCount; i++) send_by(kIsend, 2000, (uint64_t)i, 1, kCount - 1 - i);
  }
  if (odt.rank != 1) return;
  for (int i = 0; i < kCount; i++) {
    SMPI_Irecv(&views[i], 2000, MPI_BYTE, 0, i, g_comm, &requests[i]);
  }
  for (int i = 0; i < kCount; i++) {
    int index = -1;
    MPI_Waitany(kCount, requests, &index, MPI_STATUS_IGNORE);
    CHECK(index >= 0 && index < kCount, "%d", index);
    const void* data;
    SMPI_View_get(views[index], &data, MPI_STATUS_IGNORE);
    CHECK_DATA(data, 2000, (uint64_t)(kCount - 1 - index));
    sum += hash_bytes(data, 2000);
    SMPI_View_release(&views[index]);
  }
  tell(sum);
}

static void case_testsome(void) {
  enum { kCount = 8 };
  MPI_Request requests[kCount];
  SMPI_View views[kCount];
  if (odt.rank == 0) {
    for (int i = 0; i < kCount; i++) send_by(kIpass, 3000, (uint64_t)i, 1, i);
  }
  if (odt.rank != 1) return;
  for (int i = 0; i < kCount; i++) {
    SMPI_Irecv(&views[i], 3000, MPI_BYTE, MPI_ANY_SOURCE, i, g_comm, &requests[i]);
  }
  for (int left = kCount; left > 0;) {
    MPI_Status statuses[kCount];
    int done = 0, indices[kCount];
    MPI_Testsome(kCount, requests, &done, indices, statuses);
    left -= done;
  }
  for (int i = 0; i < kCount; i++) see(&views[i], 3000, (uint64_t)i);
}

static void case_probe(void) {
  static const size_t kSizes[] = {0, 10, 5000, 200000};
  for (int i = 0; i < 4; i++) {
    if (odt.rank == 0) send_by(i % 2 ? kPass : kSend, kSizes[i], (uint64_t)i, 1, 20 + i);
    if (odt.rank != 1) continue;
    MPI_Status status;
    int flag = 0, count;
    if (i % 2) {
      SMPI_Probe(0, MPI_ANY_TAG, g_comm, &status);
    } else {
      while (!flag) SMPI_Iprobe(MPI_ANY_SOURCE, 20 + i, g_comm, &flag, &status);
    }
    tell_status(&status, MPI_BYTE);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == (int)kSizes[i], "%d", count);
    // A second look finds the same.
    SMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, g_comm, &flag, &status);
    CHECK(flag && status.MPI_TAG == 20 + i, "flag %d tag %d", flag, status.MPI_TAG);
    SMPI_View view;
    if (i < 2) {
      SMPI_Recv(&view, count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, g_comm, &status);
    } else {
      MPI_Request request;
      SMPI_Irecv(&view, count, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, g_comm, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    see(&view, kSizes[i], (uint64_t)i);
  }
}

static void case_iprobe_nothing(void) {
  int flag = 1;
  MPI_Status status;
  CHECK(SMPI_Iprobe(MPI_ANY_SOURCE, 12345, g_comm, &flag, &status) == MPI_SUCCESS, "iprobe");
  CHECK(flag == 0, "found something");
  tell((uint64_t)flag);
}

static void case_probe_overtakes_nothing(void) {
  // A probe of the second message leaves the first one first.
  if (odt.rank == 0) {
    send_by(kSend, 100, 1, 1, 1);
    send_by(kSend, 200, 2, 1, 2);
    send_by(kSend, 300, 3, 1, 1);
  }
  if (odt.rank != 1) return;
  MPI_Status status;
  SMPI_View view;
  SMPI_Probe(0, 2, g_comm, &status);
  tell_status(&status, MPI_BYTE);
  SMPI_Recv(&view, 400, MPI_BYTE, 0, 1, g_comm, &status);
  see(&view, 100, 1);
  SMPI_Recv(&view, 400, MPI_BYTE, 0, MPI_ANY_TAG, g_comm, &status);
  see(&view, 200, 2);
  SMPI_Recv(&view, 400, MPI_BYTE, 0, 1, g_comm, &status);
  see(&view, 300, 3);
}

static void case_self(void) {
  send_by(kSend, 5000, 5, odt.rank, 1);
  send_by(kPass, 50, 6, odt.rank, 1);
  for (int i = 0; i < 2; i++) {
    SMPI_View view;
    SMPI_Recv(&view, 5000, MPI_BYTE, odt.rank, 1, g_comm, MPI_STATUS_IGNORE);
    see(&view, i == 0 ? 5000 : 50, i == 0 ? 5 : 6);
  }
}

static void case_proc_null(void) {
  SMPI_View view;
  MPI_Status status;
  MPI_Request request;
  const void* data = &view;
  void* block = block_of(10, 1);
  CHECK(SMPI_Send(block, 10, MPI_BYTE, MPI_PROC_NULL, 1, g_comm) == MPI_SUCCESS, "send");
  CHECK(SMPI_Isend(block, 10, MPI_BYTE, MPI_PROC_NULL, 1, g_comm, &request) == MPI_SUCCESS,
        "isend");
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(SMPI_Pass(block, 10, MPI_BYTE, MPI_PROC_NULL, 1, g_comm) == MPI_SUCCESS, "pass");
  CHECK(SMPI_Recv(&view, 10, MPI_BYTE, MPI_PROC_NULL, 1, g_comm, &status) == MPI_SUCCESS, "recv");
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG, "status");
  SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
  CHECK(data == NULL, "data");
  SMPI_View_release(&view);
  CHECK(SMPI_Irecv(&view, 10, MPI_BYTE, MPI_PROC_NULL, 1, g_comm, &request) == MPI_SUCCESS,
        "irecv");
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  // The host's own status of such a receive is not always that of MPI_PROC_NULL.
  SMPI_View_get(view, NULL, &status);
  CHECK(status.MPI_SOURCE == MPI_PROC_NULL, "source");
  SMPI_View_release(&view);
  int flag = 0;
  SMPI_Iprobe(MPI_PROC_NULL, 1, g_comm, &flag, &status);
  CHECK(flag == 1 && status.MPI_SOURCE == MPI_PROC_NULL, "probe");
  tell(1);
}

static void case_own_passed(void) {
  // Round and round: the new owner writes and passes on.
  const int next = (odt.rank + 1) % odt.size, before = (odt.rank + odt.size - 1) % odt.size;
  long* block = NULL;
  if (odt.rank == 0) {
    SMPI_Alloc(1000 * sizeof(long), &block);
    for (int i = 0; i < 1000; i++) block[i] = i;
    SMPI_Pass(block, 1000, MPI_LONG, next, 1, g_comm);
  }
  for (int round = 0; round < 5; round++) {
    SMPI_View view;
    MPI_Status status;
    SMPI_Recv(&view, 1000, MPI_LONG, before, 1, g_comm, &status);
    tell_status(&status, MPI_LONG);
    CHECK(SMPI_View_own(&view, &block) == MPI_SUCCESS, "own");
    CHECK(view == SMPI_VIEW_NULL, "view left");
    for (int i = 0; i < 1000; i++) {
      const long expected =
          i + (long)(round * odt.size) + (odt.rank == 0 ? odt.size : odt.rank) - 1;
      CHECK(block[i] == expected, "%ld, not %ld, in round %d", block[i], expected, round);
      block[i]++;
    }
    tell(hash_bytes(block, 1000 * sizeof(long)));
    if (round == 4 && odt.rank == 0) {
      SMPI_Free(block);
    } else {
      SMPI_Pass(block, 1000, MPI_LONG, next, 1, g_comm);
    }
  }
}

static void case_own_lent(void) {
  // Of a block that was only lent: a copy.
  if (odt.rank == 0) {
    char* block = block_of(3000, 3);
    SMPI_Send(block, 3000, MPI_BYTE, 1, 1, g_comm);
    SMPI_Reclaim(block);
    memset(block, 0, 3000);
    SMPI_Send(block, 1, MPI_BYTE, 1, 2, g_comm);
    SMPI_Free(block);
  }
  if (odt.rank != 1) return;
  SMPI_View view;
  void* block = NULL;
  SMPI_Recv(&view, 3000, MPI_BYTE, 0, 1, g_comm, MPI_STATUS_IGNORE);
  CHECK(SMPI_View_own(&view, &block) == MPI_SUCCESS, "own");
  SMPI_Recv(&view, 3000, MPI_BYTE, 0, 2, g_comm, MPI_STATUS_IGNORE);
  SMPI_View_release(&view);
  CHECK_DATA(block, 3000, 3);
  odt_fill(block, 3000, 4);
  tell(hash_bytes(block, 3000));
  CHECK(SMPI_Free(block) == MPI_SUCCESS, "free");
}

static void case_freed_while_lent(void) {
  // A view outlives the owner's free, and new blocks do not disturb it.
  if (odt.rank == 0) {
    void* block = block_of(20000, 8);
    SMPI_Send(block, 20000, MPI_BYTE, 1, 1, g_comm);
    CHECK(SMPI_Free(block) == MPI_SUCCESS, "free");
    for (int i = 0; i < 50; i++) {
      void* other = block_of(20000, 9);
      SMPI_Free(other);
    }
    SMPI_Send(NULL, 0, MPI_BYTE, 1, 2, g_comm);
  }
  if (odt.rank != 1) return;
  SMPI_View view, empty;
  SMPI_Recv(&view, 20000, MPI_BYTE, 0, 1, g_comm, MPI_STATUS_IGNORE);
  SMPI_Recv(&empty, 0, MPI_BYTE, 0, 2, g_comm, MPI_STATUS_IGNORE);
  SMPI_View_release(&empty);
  see(&view, 20000, 8);
}

static void case_reclaim(void) {
  // After Reclaim the owner writes and the viewers have seen what was there before.
  char* block = NULL;
  if (odt.rank == 0) block = block_of(10000, 0);
  for (int round = 0; round < 20; round++) {
    if (odt.rank == 0) {
      odt_fill(block, 10000, (uint64_t)round);
      for (int i = 1; i < odt.size; i++) SMPI_Send(block, 10000, MPI_BYTE, i, 1, g_comm);
      CHECK(SMPI_Reclaim(block) == MPI_SUCCESS, "reclaim");
      int views = -1;
      CHECK(SMPI_Lent(block, &views) == MPI_SUCCESS && views == 0, "%d views", views);
    } else {
      SMPI_View view;
      SMPI_Recv(&view, 10000, MPI_BYTE, 0, 1, g_comm, MPI_STATUS_IGNORE);
      see(&view, 10000, (uint64_t)round);
    }
  }
  if (odt.rank == 0) SMPI_Free(block);
}

static void case_many_views(void) {
  // One block, many messages of it, released in another order.
  enum { kViews = 200 };
  if (odt.rank == 0) {
    char* block = block_of(64 * kViews, 11);
    for (int i = 0; i < kViews; i++) {
      odt_fill(block + 64 * i, 64, (uint64_t)i);
    }
    for (int i = 0; i < kViews; i++) SMPI_Send(block + 64 * i, 64, MPI_BYTE, 1, i, g_comm);
    SMPI_Reclaim(block);
    SMPI_Free(block);
  }
  if (odt.rank != 1) return;
  SMPI_View views[kViews];
  for (int i = 0; i < kViews; i++) {
    SMPI_Recv(&views[i], 64, MPI_BYTE, 0, i, g_comm, MPI_STATUS_IGNORE);
  }
  for (int i = 0; i < kViews; i++)
    see(&views[(i * 77) % kViews], 64, (uint64_t)((i * 77) % kViews));
}

static void case_types(void) {
  MPI_Datatype pair, gap;
  MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
  MPI_Type_commit(&pair);
  MPI_Type_vector(2, 1, 2, MPI_INT, &gap);
  MPI_Type_commit(&gap);
  if (odt.rank == 0) {
    double* block;
    SMPI_Alloc(20 * sizeof *block, &block);
    for (int i = 0; i < 20; i++) block[i] = i;
    CHECK(SMPI_Send(block, 10, pair, 1, 1, g_comm) == MPI_SUCCESS, "send");
    CHECK(odt_class(SMPI_Send(block, 1, gap, 1, 1, g_comm)) == MPI_ERR_TYPE, "gaps");
    SMPI_Reclaim(block);
    SMPI_Free(block);
  }
  if (odt.rank == 1) {
    SMPI_View view;
    MPI_Status status;
    const double* data;
    SMPI_Recv(&view, 20, MPI_DOUBLE, 0, 1, g_comm, &status);
    tell_status(&status, pair);
    SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
    for (int i = 0; i < 20; i++) CHECK(data[i] == i, "%g", data[i]);
    SMPI_View_release(&view);
  }
  MPI_Type_free(&pair);
  MPI_Type_free(&gap);
}

static void case_truncated_recv(void) {
  if (odt.rank == 0) {
    send_by(kSend, 9000, 1, 1, 1);
    send_by(kPass, 9000, 1, 1, 1);
    send_by(kSend, 900, 1, 1, 1);
    send_by(kSend, 10, 2, 1, 1);
  }
  if (odt.rank != 1) return;
  SMPI_View view;
  for (int i = 0; i < 3; i++) {
    const int code = SMPI_Recv(&view, 100, MPI_BYTE, 0, 1, g_comm, MPI_STATUS_IGNORE);
    CHECK(odt_class(code) == MPI_ERR_TRUNCATE, "%s", odt_class_name(code));
    tell((uint64_t)(odt_class(code) == MPI_ERR_TRUNCATE));
  }
  SMPI_Recv(&view, 100, MPI_BYTE, 0, 1, g_comm, MPI_STATUS_IGNORE);
  see(&view, 10, 2);
}

static void case_truncated_irecv(void) {
  SMPI_View view;
  MPI_Request request;
  if (odt.rank == 1) SMPI_Irecv(&view, 100, MPI_BYTE, 0, 1, g_comm, &request);
  if (odt.rank == 0) send_by(kSend, 900, 1, 1, 1);
  if (odt.rank != 1) return;
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  const int code = SMPI_View_get(view, NULL, MPI_STATUS_IGNORE);
  CHECK(odt_class(code) == MPI_ERR_TRUNCATE, "%s", odt_class_name(code));
  tell((uint64_t)(odt_class(code) == MPI_ERR_TRUNCATE));
  CHECK(SMPI_View_release(&view) == MPI_SUCCESS, "release");
}

static void case_cancel(void) {
  if (odt.rank != 1) return;
  SMPI_View view;
  MPI_Request request;
  MPI_Status status;
  int cancelled = 0;
  SMPI_Irecv(&view, 100, MPI_BYTE, 0, 999, g_comm, &request);
  MPI_Cancel(&request);
  MPI_Wait(&request, &status);
  MPI_Test_cancelled(&status, &cancelled);
  CHECK(cancelled, "not cancelled");
  CHECK(SMPI_View_release(&view) == MPI_SUCCESS, "release");
  tell((uint64_t)cancelled);
}

static int g_handled, g_handled_class;
static void handler(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  g_handled++;
  MPI_Error_class(*code, &g_handled_class);
}

static void expect_error(int code, int wanted, const char* what) {
  CHECK(odt_class(code) == wanted, "%s: %s", what, odt_class_name(code));
  tell((uint64_t)(odt_class(code) == wanted));
}

static void case_errors(void) {
  SMPI_View view = SMPI_VIEW_NULL;
  MPI_Request request;
  MPI_Status status;
  int flag = 0, *tag_ub;
  char* block = block_of(100, 1);
  char outside[10] = {0};
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &flag);
  expect_error(SMPI_Send(block, -1, MPI_BYTE, 0, 1, g_comm), MPI_ERR_COUNT, "count");
  expect_error(SMPI_Send(block, 1, MPI_BYTE, odt.size, 1, g_comm), MPI_ERR_RANK, "rank");
  expect_error(SMPI_Send(block, 1, MPI_BYTE, -77, 1, g_comm), MPI_ERR_RANK, "negative rank");
  expect_error(SMPI_Send(block, 1, MPI_BYTE, 0, -5, g_comm), MPI_ERR_TAG, "tag");
  expect_error(SMPI_Send(block, 1, MPI_DATATYPE_NULL, 0, 1, g_comm), MPI_ERR_TYPE, "type");
  expect_error(SMPI_Send(NULL, 1, MPI_BYTE, 0, 1, g_comm), MPI_ERR_BUFFER, "null");
  expect_error(SMPI_Isend(block, 1, MPI_BYTE, odt.size, 1, g_comm, &request), MPI_ERR_RANK,
               "isend rank");
  expect_error(SMPI_Isend(block, -1, MPI_BYTE, 0, 1, g_comm, &request), MPI_ERR_COUNT,
               "isend count");
  expect_error(SMPI_Pass(outside, 1, MPI_BYTE, 0, 1, g_comm), MPI_ERR_BUFFER, "pass of other");
  expect_error(SMPI_Pass(block + 64, 1, MPI_BYTE, 0, 1, g_comm), MPI_ERR_BUFFER, "pass of middle");
  expect_error(SMPI_Pass(block, 101, MPI_BYTE, 0, 1, g_comm), MPI_ERR_BUFFER, "pass of too much");
  expect_error(SMPI_Recv(&view, 1, MPI_BYTE, odt.size, 1, g_comm, &status), MPI_ERR_RANK,
               "recv rank");
  expect_error(SMPI_Recv(&view, -1, MPI_BYTE, 0, 1, g_comm, &status), MPI_ERR_COUNT, "recv count");
  expect_error(SMPI_Recv(&view, 1, MPI_BYTE, 0, -9, g_comm, &status), MPI_ERR_TAG, "recv tag");
  expect_error(SMPI_Recv(NULL, 1, MPI_BYTE, 0, 1, g_comm, &status), MPI_ERR_ARG, "recv view");
  expect_error(SMPI_Irecv(&view, 1, MPI_BYTE, -8, 1, g_comm, &request), MPI_ERR_RANK, "irecv rank");
  expect_error(SMPI_Probe(odt.size, 1, g_comm, &status), MPI_ERR_RANK, "probe rank");
  expect_error(SMPI_Bcast(block, 1, MPI_BYTE, odt.size, g_comm, &view), MPI_ERR_ROOT, "root");
  expect_error(SMPI_Bcast(block, -1, MPI_BYTE, 0, g_comm, &view), MPI_ERR_COUNT, "bcast count");
  expect_error(SMPI_Ibcast(block, 1, MPI_BYTE, -1, g_comm, &view, &request), MPI_ERR_ROOT, "root");
  expect_error(SMPI_Iscatter(block, 1, MPI_BYTE, 0, g_comm, &view, NULL), MPI_ERR_ARG, "request");
  expect_error(SMPI_Iallgather(block, 1, MPI_DATATYPE_NULL, g_comm, &view, &request), MPI_ERR_TYPE,
               "iallgather type");
  expect_error(SMPI_View_release(&view), MPI_ERR_ARG, "release of null");
  expect_error(SMPI_View_get(view, NULL, &status), MPI_ERR_ARG, "get of null");
  expect_error(SMPI_Alloc(-1, &block), MPI_ERR_ARG, "alloc");
  expect_error(SMPI_Free(outside), MPI_ERR_BUFFER, "free of other");
  expect_error(SMPI_Free(block + 64), MPI_ERR_BUFFER, "free of middle");
  expect_error(SMPI_Free(NULL), MPI_ERR_BUFFER, "free of null");
  expect_error(SMPI_Lent(outside, &flag), MPI_ERR_BUFFER, "lent of other");
  expect_error(SMPI_Reclaim(outside), MPI_ERR_BUFFER, "reclaim of other");
  expect_error(SMPI_Free(block), MPI_SUCCESS, "free");
  expect_error(SMPI_Free(block), MPI_ERR_BUFFER, "second free");
}

static void case_not_attached(void) {
  MPI_Comm other;
  SMPI_View view;
  int flag;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
  expect_error(SMPI_Send(NULL, 0, MPI_BYTE, 0, 0, other), MPI_ERR_COMM, "send");
  expect_error(SMPI_Recv(&view, 0, MPI_BYTE, 0, 0, other, MPI_STATUS_IGNORE), MPI_ERR_COMM, "recv");
  expect_error(SMPI_Comm_near(other, 0, &flag), MPI_ERR_COMM, "near");
  expect_error(SMPI_Comm_detach(other), MPI_ERR_COMM, "detach");
  expect_error(SMPI_Comm_attach(other), MPI_SUCCESS, "attach");
  expect_error(SMPI_Comm_attach(other), MPI_SUCCESS, "attach again");
  expect_error(SMPI_Comm_near(other, odt.rank, &flag), MPI_SUCCESS, "near");
  CHECK(flag == 1, "not near to myself");
  expect_error(SMPI_Comm_detach(other), MPI_SUCCESS, "detach");
  expect_error(SMPI_Comm_detach(other), MPI_ERR_COMM, "detach again");
  MPI_Comm_free(&other);
}

static void case_error_handler(void) {
  // The program's handler of the communicator is called, with our code.
  MPI_Errhandler mine;
  MPI_Comm_create_errhandler(handler, &mine);
  MPI_Comm_set_errhandler(g_comm, mine);
  g_handled = 0;
  SMPI_Send(NULL, -1, MPI_BYTE, 0, 0, g_comm);
  CHECK(g_handled == 1 && g_handled_class == MPI_ERR_COUNT, "%d %d", g_handled, g_handled_class);
  tell((uint64_t)g_handled);
  MPI_Comm_set_errhandler(g_comm, MPI_ERRORS_RETURN);
  MPI_Errhandler_free(&mine);
}

static void case_double_release(void) {
  SMPI_View view, copy;
  void* block = block_of(100, 1);
  SMPI_Send(block, 100, MPI_BYTE, odt.rank, 1, g_comm);
  SMPI_Recv(&view, 100, MPI_BYTE, odt.rank, 1, g_comm, MPI_STATUS_IGNORE);
  copy = view;
  CHECK(SMPI_View_release(&view) == MPI_SUCCESS, "release");
  expect_error(SMPI_View_release(&copy), MPI_ERR_ARG, "second release");
  int views = -1;
  SMPI_Lent(block, &views);
  CHECK(views == 0, "%d", views);
  SMPI_Free(block);
}

static void case_isolation(void) {
  // Neither ordinary messages nor another communicator's views are taken.
  MPI_Comm other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  SMPI_Comm_attach(other);
  if (odt.rank == 0) {
    int number = 42;
    void *a = block_of(10, 1), *b = block_of(20, 2);
    MPI_Send(&number, 1, MPI_INT, 1, 5, g_comm);
    SMPI_Send(a, 10, MPI_BYTE, 1, 5, other);
    SMPI_Send(b, 20, MPI_BYTE, 1, 5, g_comm);
    SMPI_Free(a);
    SMPI_Free(b);
  }
  if (odt.rank == 1) {
    SMPI_View view;
    int number = 0;
    SMPI_Recv(&view, 100, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, g_comm, MPI_STATUS_IGNORE);
    see(&view, 20, 2);
    SMPI_Recv(&view, 100, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, other, MPI_STATUS_IGNORE);
    see(&view, 10, 1);
    MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, g_comm, MPI_STATUS_IGNORE);
    CHECK(number == 42, "%d", number);
  }
  MPI_Comm_free(&other);
}

static void case_intercomm(void) {
  MPI_Comm half, inter;
  SMPI_View view;
  MPI_Comm_split(MPI_COMM_WORLD, odt.rank % 2, odt.rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, odt.rank % 2 ? 0 : 1, 17, &inter);
  MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
  CHECK(SMPI_Comm_attach(inter) == MPI_SUCCESS, "attach");
  expect_error(SMPI_Bcast(NULL, 0, MPI_BYTE, 0, inter, &view), MPI_ERR_COMM, "bcast");
  MPI_Request none;
  expect_error(SMPI_Ibcast(NULL, 0, MPI_BYTE, 0, inter, &view, &none), MPI_ERR_COMM, "ibcast");
  if (odt.rank < 2) {
    void* block = block_of(7777, (uint64_t)odt.rank);
    MPI_Request request;
    SMPI_Irecv(&view, 8000, MPI_BYTE, MPI_ANY_SOURCE, 1, inter, &request);
    SMPI_Send(block, 7777, MPI_BYTE, 0, 1, inter);
    SMPI_Free(block);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    see(&view, 7777, (uint64_t)(1 - odt.rank));
  }
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

static void case_alloc_sizes(void) {
  for (size_t bytes = 0; bytes < 300000; bytes = bytes * 5 / 4 + 1) {
    char* block = block_of(bytes, bytes);
    CHECK_DATA(block, bytes, bytes);
    CHECK(SMPI_Free(block) == MPI_SUCCESS, "free %zu", bytes);
  }
  tell(1);
}

static void case_unreceived(void) {
  // Lent and never looked at: the view is released unseen; passed and never owned: the block goes.
  if (odt.rank == 0) {
    send_by(kIsend, 5000, 1, 1, 1);
    send_by(kIpass, 5000, 1, 1, 1);
  }
  if (odt.rank != 1) return;
  for (int i = 0; i < 2; i++) {
    SMPI_View view;
    MPI_Request request;
    SMPI_Irecv(&view, 5000, MPI_BYTE, 0, 1, g_comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(SMPI_View_release(&view) == MPI_SUCCESS, "release");
  }
  tell(1);
}

static void case_pass_while_lent(void) {
  // A block is lent to rank 1, then passed to it: both arrive, and the view stays.
  if (odt.rank == 0) {
    void* block = block_of(6000, 4);
    MPI_Request request;
    SMPI_Isend(block, 6000, MPI_BYTE, 1, 1, g_comm, &request);
    SMPI_Pass(block, 6000, MPI_BYTE, 1, 2, g_comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (odt.rank != 1) return;
  SMPI_View lent, passed;
  void* block = NULL;
  SMPI_Recv(&passed, 6000, MPI_BYTE, 0, 2, g_comm, MPI_STATUS_IGNORE);
  SMPI_Recv(&lent, 6000, MPI_BYTE, 0, 1, g_comm, MPI_STATUS_IGNORE);
  SMPI_View_own(&passed, &block);
  CHECK_DATA(block, 6000, 4);
  SMPI_Free(block);
  see(&lent, 6000, 4);
}

static void case_short_blocks(void) {
  // One block, written anew and sent from its start and from behind it to ranks that are near and
  // not, also while a message to another node leaves with a head in front of it; and its memory
  // again when it is another block.
  static const int kSizes[] = {8, 9, 16, 17, 64, 100, 512, 513, 600};
  enum { kCount = sizeof kSizes / sizeof kSizes[0], kRounds = 3 };
  const int last = odt.size - 1;
  uint64_t key = 50;
  for (int round = 0; round < kRounds; round++) {
    char* block = odt.rank == 0 ? block_of(700, key) : NULL;
    for (int i = 0; i < kCount; i++, key++) {
      const int dest = i % 2 ? last : 1;
      if (odt.rank == 0) {
        MPI_Request request;
        CHECK(SMPI_Reclaim(block) == MPI_SUCCESS, "reclaim");
        odt_fill(block, 700, key);
        SMPI_Isend(block, 650, MPI_BYTE, last, 1, g_comm, &request);
        SMPI_Send(block, kSizes[i], MPI_BYTE, dest, 2, g_comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        SMPI_Send(block, kSizes[i], MPI_BYTE, dest, 3, g_comm);
        SMPI_Send(block, kSizes[i] - 1, MPI_BYTE, dest, 4, g_comm);
      }
      SMPI_View view;
      if (odt.rank == last) {
        SMPI_Recv(&view, 650, MPI_BYTE, 0, 1, g_comm, MPI_STATUS_IGNORE);
        see(&view, 650, key);
      }
      for (int tag = 2; tag <= 4 && odt.rank == dest; tag++) {
        SMPI_Recv(&view, 700, MPI_BYTE, 0, tag, g_comm, MPI_STATUS_IGNORE);
        see(&view, (size_t)(kSizes[i] - (tag == 4)), key);
      }
    }
    if (odt.rank != 0) continue;
    CHECK(SMPI_Reclaim(block) == MPI_SUCCESS, "reclaim");
    CHECK(SMPI_Free(block) == MPI_SUCCESS, "free");
  }
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } kCases[] = {
      {"lengths", case_lengths},
      {"order", case_order},
      {"tags", case_tags},
      {"any-source", case_any_source},
      {"waitall-mixed", case_waitall_mixed},
      {"waitany", case_waitany},
      {"testsome", case_testsome},
      {"probe", case_probe},
      {"iprobe-nothing", case_iprobe_nothing},
      {"probe-overtakes-nothing", case_probe_overtakes_nothing},
      {"self", case_self},
      {"proc-null", case_proc_null},
      {"own-passed", case_own_passed},
      {"own-lent", case_own_lent},
      {"freed-while-lent", case_freed_while_lent},
      {"reclaim", case_reclaim},
      {"many-views", case_many_views},
      {"types", case_types},
      {"truncated-recv", case_truncated_recv},
      {"truncated-irecv", case_truncated_irecv},
      {"cancel", case_cancel},
      {"errors", case_errors},
      {"not-attached", case_not_attached},
      {"error-handler", case_error_handler},
      {"double-release", case_double_release},
      {"isolation", case_isolation},
      {"intercomm", case_intercomm},
      {"alloc-sizes", case_alloc_sizes},
      {"unreceived", case_unreceived},
      {"pass-while-lent", case_pass_while_lent},
      {"short-blocks", case_short_blocks},
  };
  odt_start("smpi", &argc, &argv);
  g_only = odt_option("only", NULL);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_dup(MPI_COMM_WORLD, &g_comm);
  CHECK(SMPI_Comm_attach(g_comm) == MPI_SUCCESS, "attach");
  messages();
  for (size_t i = 0; i < sizeof kCases / sizeof kCases[0]; i++) {
    if (!begin_case(kCases[i].name)) continue;
    kCases[i].run();
    end_case(kCases[i].name);
  }
  MPI_Comm reversed, halves;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -odt.rank, &reversed);
  MPI_Comm_split(MPI_COMM_WORLD, odt.rank % 2, odt.rank, &halves);
  collectives(g_comm, "all");
  collectives(reversed, "reversed");
  collectives(halves, "halves");
  waiting_collectives(g_comm, "all", 1);
  waiting_collectives(g_comm, "all", 0);
  waiting_collectives(reversed, "reversed", 1);
  waiting_collectives(halves, "halves", 1);
  int near = 0;
  for (int i = 0; i < odt.size; i++) {
    int flag = 0;
    SMPI_Comm_near(g_comm, i, &flag);
    near += flag;
  }
  if (odt.rank == 0) printf("cases: %ld\nnear: %d\n", g_cases, near);
  MPI_Comm_free(&reversed);
  MPI_Comm_free(&halves);
  MPI_Comm_free(&g_comm);
  return odt_finish();
}
