// Communicators that come and go between windows of all and of some ranks, with barriers on each,
// and then a file of all. With MPICH 5.0 what the library makes for the file got messages of others
// where a communicator of the same ranks had been made by MPI_Comm_create in between, as
// Overdrive did for the first barrier.
#include <unistd.h>

#include "odtest.h"

enum { kWords = 100, kPath = 200 };

static MPI_Win window(MPI_Comm comm, void* words) {
  MPI_Win made;
  MUST(MPI_Win_create(words, kWords * sizeof(long), sizeof(long), MPI_INFO_NULL, comm, &made));
  return made;
}

int main(int argc, char** argv) {
  odt_start("created", &argc, &argv);
  const int last = odt.size - 1;
  long words[kWords];
  MPI_Comm grid, some;
  MPI_Win dynamic;
  const int lengths[2] = {last, 1}, periods[2] = {1, 0};
  MUST(MPI_Cart_create(MPI_COMM_WORLD, 2, lengths, periods, 0, &grid));
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  MPI_Win all = window(MPI_COMM_WORLD, words);
  MUST(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));
  if (grid != MPI_COMM_NULL) MUST(MPI_Barrier(grid));
  MUST(MPI_Win_free(&all));
  MUST(MPI_Win_free(&dynamic));
  if (grid != MPI_COMM_NULL) MUST(MPI_Comm_free(&grid));

  MUST(MPI_Comm_split(MPI_COMM_WORLD, odt.rank == last, odt.rank == 1 ? -1 : 0, &some));
  MPI_Win theirs = MPI_WIN_NULL;
  if (odt.rank != last) {
    theirs = window(some, words);
    MUST(MPI_Barrier(some));
  }
  char path[kPath];
  snprintf(path, sizeof path, "/tmp/odtest-created-%d", (int)getpid());
  MUST(MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD));
  MPI_File file;
  MUST(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  const long mine = odt.rank;
  MUST(MPI_File_write_at_all(file, odt.rank * (MPI_Offset)sizeof mine, &mine, 1, MPI_LONG,
                             MPI_STATUS_IGNORE));
  MUST(MPI_File_sync(file));
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  long first = -1;
  MUST(MPI_File_read_at_all(file, 0, &first, 1, MPI_LONG, MPI_STATUS_IGNORE));
  CHECK(first == 0, "the file begins with %ld", first);
  MUST(MPI_File_close(&file));
  if (odt.rank != last) {
    MUST(MPI_Barrier(some));
    MUST(MPI_Win_free(&theirs));
  }
  MUST(MPI_Comm_free(&some));
  MUST(MPI_Barrier(MPI_COMM_WORLD));
  if (odt.rank == 0) unlink(path);
  return odt_finish();
}
