// Blocks of more than 2 GiB between nodes, without as much memory: buffers are one piece of memory
// that is mapped over and over again, so that what one block brings is what lies everywhere in it.
#define _GNU_SOURCE
#include <sys/mman.h>

#include "odtest.h"

enum { kMiB = 1 << 20, kBlockMiB = 2050 };
// Divides no power of two that is larger: what goes to a wrong place is out of phase.
static const size_t kPiece = 4096 * 8191;
static const size_t kBlock = (size_t)kBlockMiB * kMiB;

static char* blocks(int count) {
  const size_t bytes = kBlock * (size_t)count;
  const int file = memfd_create("long_blocks", 0);
  CHECK(file >= 0 && ftruncate(file, (off_t)kPiece) == 0, "no memory");
  char* start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (size_t at = 0; at < bytes;) {
    // Every block begins with the beginning of the piece.
    const size_t left = kBlock - at % kBlock;
    const size_t now = left < kPiece ? left : kPiece;
    void* found = mmap(start + at, now, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    CHECK(found == start + at, "cannot map %zu bytes", now);
    at += now;
  }
  close(file);
  return start;
}

// What a rank sends, the same from all.
static void fill(char* block) { odt_fill(block, kPiece, odt_key(0, 0, 7, 7)); }
static void verify(char* block) {
  CHECK_DATA(block, kPiece, odt_key(0, 0, 7, 7));
  memset(block, 0, kPiece);
}

int main(int argc, char** argv) {
  odt_start("long_blocks", &argc, &argv);
  MPI_Datatype type;
  MUST(MPI_Type_contiguous(kMiB, MPI_BYTE, &type));
  MUST(MPI_Type_commit(&type));
  char* mine = blocks(1);
  char* all = odt.rank == 0 ? blocks(odt.size) : NULL;
  fill(mine);
  MUST(MPI_Gather(mine, kBlockMiB, type, all, kBlockMiB, type, 0, MPI_COMM_WORLD));
  if (odt.rank == 0) {
    verify(all);
    fill(all);
  }
  memset(mine, 0, kPiece);
  MUST(MPI_Scatter(all, kBlockMiB, type, mine, kBlockMiB, type, 0, MPI_COMM_WORLD));
  verify(mine);
  MUST(MPI_Type_free(&type));
  return odt_finish();
}
