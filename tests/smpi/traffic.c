// Random traffic of views and of ownership: --count=OPERATIONS (of all ranks together), --seed.
//
// Rounds of messages that all ranks have drawn alike: who sends to whom, with which tag, whether
// the data is new, lent before or passed on. Receives are blocking and non-blocking, of a given
// source and tag or with wildcards, probed or not. Views stay open for a while, blocks stay owned
// for a while; what they hold tells which block it is, and is looked at again before they go. An
// operation is an allocation, a message sent or received, a view released or taken over, a block
// written again or freed.
#include <overdrive/smpi.h>

#include "odtest.h"

enum { kMessages = 48, kTags = 3, kMostViews = 120, kUsualBlocks = 40, kMostBytes = 40000 };

typedef struct {
  uint64_t key, bytes;  // of the whole block, these words included
} Label;

typedef struct {
  int from, to, tag, passes, renewed, blocking;
  long bytes;
} Message;

typedef struct {
  Label* data;
  int sent;  // in this round: it may be read until the round is over, also by MPI
} Block;

static Block g_blocks[kUsualBlocks + kMessages];
static int g_block_count;
static SMPI_View g_views[kMostViews];
static uint64_t g_view_keys[kMostViews];
static int g_view_count;
static long g_operations;
static OdtRandom g_own;  // this rank's own choices
static uint64_t g_next_key;

static void write_block(Label* block, uint64_t bytes) {
  block->key = ++g_next_key;
  block->bytes = bytes;
  odt_fill(block + 1, bytes - sizeof(Label), block->key);
  g_operations++;
}

// The key of what lies there, once it has been found whole; `bytes` is how long the message was.
static uint64_t look(const Label* data, long bytes) {
  CHECK(bytes >= (long)sizeof(Label) && data->bytes == (uint64_t)bytes, "%ld bytes, not %ld", bytes,
        bytes >= (long)sizeof(Label) ? (long)data->bytes : -1);
  CHECK_DATA(data + 1, data->bytes - sizeof(Label), data->key);
  return data->key;
}

static void drop_block(int at) {
  MUST(SMPI_Free(g_blocks[at].data));
  g_blocks[at] = g_blocks[--g_block_count];
  g_operations++;
}

// Ends a view: released, or taken over if there is room for a block.
static void drop_view(int at) {
  const Label* data = NULL;
  MUST(SMPI_View_get(g_views[at], &data, MPI_STATUS_IGNORE));
  CHECK(data->key == g_view_keys[at], "a view has changed");
  CHECK_DATA(data + 1, data->bytes - sizeof(Label), data->key);
  if (g_block_count < kUsualBlocks && odt_below(&g_own, 3) == 0) {
    Label* block = NULL;
    MUST(SMPI_View_own(&g_views[at], &block));
    CHECK(block->key == g_view_keys[at], "taken over");
    g_blocks[g_block_count++] = (Block){block, 0};
  } else {
    MUST(SMPI_View_release(&g_views[at]));
  }
  CHECK(g_views[at] == SMPI_VIEW_NULL, "still a view");
  g_views[at] = g_views[--g_view_count];
  g_view_keys[at] = g_view_keys[g_view_count];
  g_operations++;
}

static void keep_view(SMPI_View view, const MPI_Status* found) {
  const Label* data = NULL;
  MPI_Status status;
  int bytes = 0;
  MUST(SMPI_View_get(view, &data, &status));
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (found != NULL) {
    CHECK(status.MPI_SOURCE == found->MPI_SOURCE && status.MPI_TAG == found->MPI_TAG, "status");
  }
  g_views[g_view_count] = view;
  g_view_keys[g_view_count++] = look(data, bytes);
  g_operations++;
}

// Which block this rank sends in one message.
static int block_for(const Message* message) {
  Label* block = NULL;
  if (!message->renewed && g_block_count > 0) {
    const int at = (int)odt_below(&g_own, g_block_count);
    if (!message->passes || !g_blocks[at].sent) return at;
  }
  MUST(SMPI_Alloc(message->bytes, &block));
  g_operations++;
  write_block(block, (uint64_t)message->bytes);
  g_blocks[g_block_count] = (Block){block, 0};
  return g_block_count++;
}

static void send_one(const Message* message, MPI_Request* request) {
  const int at = block_for(message), to = message->to, tag = message->tag;
  Label* block = g_blocks[at].data;
  const MPI_Count bytes = (MPI_Count)block->bytes;
  *request = MPI_REQUEST_NULL;
  g_operations++;
  if (message->passes) {
    g_blocks[at] = g_blocks[--g_block_count];
    if (message->blocking) {
      MUST(SMPI_Pass(block, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD));
    } else {
      MUST(SMPI_Ipass(block, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request));
    }
    return;
  }
  g_blocks[at].sent = 1;
  if (message->blocking && bytes <= 512 && to != odt.rank) {
    MUST(SMPI_Send(block, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD));  // waits for nobody
  } else {
    MUST(SMPI_Isend(block, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, request));
  }
}

// Receives what is left of a round, in one of five ways.
static void receive_all(Message* plan, int count, int way) {
  SMPI_View views[kMessages];
  MPI_Request requests[kMessages];
  int pending = 0;
  for (int i = 0; i < count; i++) {
    if (plan[i].to != odt.rank) continue;
    const int source = way == 0 ? MPI_ANY_SOURCE : plan[i].from;
    const int tag = way <= 1 ? MPI_ANY_TAG : plan[i].tag;
    if (way == 4) {
      MUST(SMPI_Irecv(&views[pending], kMostBytes, MPI_BYTE, source, tag, MPI_COMM_WORLD,
                      &requests[pending]));
      pending++;
      continue;
    }
    MPI_Status found;
    SMPI_View view = SMPI_VIEW_NULL;
    if (way == 3 && odt_below(&g_own, 2) == 0) {
      MUST(SMPI_Probe(source, tag, MPI_COMM_WORLD, &found));
    }
    MUST(SMPI_Recv(&view, kMostBytes, MPI_BYTE, source, tag, MPI_COMM_WORLD, &found));
    if (view == SMPI_VIEW_NULL) return;
    keep_view(view, &found);
  }
  MPI_Waitall(pending, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < pending; i++) keep_view(views[i], NULL);
}

static void one_round(OdtRandom* common) {
  Message plan[kMessages];
  MPI_Request requests[kMessages];
  int to_me = 0, started = 0;
  const int way = (int)odt_below(common, 5);
  for (int i = 0; i < kMessages; i++) {
    Message* m = &plan[i];
    m->from = (int)odt_below(common, odt.size);
    m->to = (int)odt_below(common, odt.size);
    m->tag = (int)odt_below(common, kTags);
    m->passes = odt_below(common, 3) == 0;
    m->renewed = odt_below(common, 2) == 0;
    m->blocking = odt_below(common, 2) == 0;
    const long most = odt_below(common, 8) == 0 ? kMostBytes : odt_below(common, 3) ? 700 : 100;
    m->bytes = (long)sizeof(Label) + odt_below(common, most - (long)sizeof(Label) + 1);
    to_me += m->to == odt.rank;
  }
  // A receive from any source must not meet messages of the next round.
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  while (g_view_count + to_me > kMostViews) drop_view((int)odt_below(&g_own, g_view_count));
  for (int i = 0; i < kMessages; i++) {
    if (plan[i].from == odt.rank) send_one(&plan[i], &requests[started++]);
  }
  receive_all(plan, kMessages, way);
  MPI_Waitall(started, requests, MPI_STATUSES_IGNORE);
  for (int i = (int)odt_below(&g_own, 12); i > 0 && g_view_count > 0; i--) {
    drop_view((int)odt_below(&g_own, g_view_count));
  }
  // Nothing is under way from here, so a block that nobody looks at is the owner's to write.
  for (int i = (int)odt_below(&g_own, 6); i > 0 && g_block_count > 0; i--) {
    const int at = (int)odt_below(&g_own, g_block_count);
    int views = -1;
    MUST(SMPI_Lent(g_blocks[at].data, &views));
    CHECK(views >= 0, "%d views", views);
    if (odt_below(&g_own, 2) == 0) {
      drop_block(at);  // its views stay as they are
    } else if (views == 0) {
      write_block(g_blocks[at].data, g_blocks[at].data->bytes);
    }
  }
  while (g_block_count > kUsualBlocks) drop_block((int)odt_below(&g_own, g_block_count));
  for (int i = 0; i < g_block_count; i++) g_blocks[i].sent = 0;
}

int main(int argc, char** argv) {
  odt_start("smpi traffic", &argc, &argv);
  MUST(SMPI_Comm_attach(MPI_COMM_WORLD));
  const long count = odt_number("count", 20000);
  OdtRandom common = odt_random(1);
  g_own = odt_random(100 + (uint64_t)odt.rank);
  g_next_key = (uint64_t)odt.rank << 40;
  long all = 0;
  while (all < count) {
    for (int i = 0; i < 10; i++) one_round(&common);
    MPI_Allreduce(&g_operations, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  }
  while (g_view_count > 0) drop_view(g_view_count - 1);
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < g_block_count; i++) {
    int views = -1;
    MUST(SMPI_Lent(g_blocks[i].data, &views));
    CHECK(views == 0, "%d views are left", views);
  }
  while (g_block_count > 0) drop_block(0);
  if (odt.rank == 0) printf("operations: %ld\n", all);
  return odt_finish();
}
