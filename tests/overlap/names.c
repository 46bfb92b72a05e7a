// What a program receives may name its files, and nobody has looked at a name before the kernel
// does: functions that take one wait for it.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "odtest.h"

enum {
  kBytes = 4 << 20,
  kWays = 15,
  // Where the machine is fast nine names of ten are there before they are used.
  kRounds = 60,
};

// All that a run is told: large, with a name in the last quarter.
typedef struct {
  char before[kBytes / 4 * 3 + 100];
  char file[256];
  char folder[256];
  struct stat about;
  char after[kBytes / 4];
} Parameters;

static int closed(int file) {
  if (file < 0) return errno;
  close(file);
  return 0;
}

static int closed_file(FILE* file) {
  if (file == NULL) return errno;
  fclose(file);
  return 0;
}

static int closed_folder(DIR* folder) {
  if (folder == NULL) return errno;
  closedir(folder);
  return 0;
}

static int result(int code) { return code == 0 ? 0 : errno; }

// One use of the names per call, the first after it; the error number.
static int use(Parameters* got, int how) {
  struct stat about;
  struct statvfs system;
  char other[256];
  switch (how) {
    case 0:
      return closed(open(got->file, O_RDONLY));
    case 1:
      return closed(openat(AT_FDCWD, got->file, O_RDWR | O_CREAT, 0600));
    case 2:
      return closed_file(fopen(got->file, "r"));
    case 3:
      return closed_folder(opendir(got->folder));
    case 4:
      return result(stat(got->file, &about));
    case 5:
      return result(lstat(got->file, &about));
    case 6:
      return result(access(got->file, R_OK));
    case 7:
      return result(statvfs(got->folder, &system));
    case 8:
      return result(chmod(got->file, 0600));
    case 9:
      return result(truncate(got->file, 10));
    case 10:
      return readlink(got->file, other, sizeof other) < 0 && errno == EINVAL ? 0 : errno;
    case 11:
      return mkdir(got->folder, 0700) < 0 && errno == EEXIST ? 0 : errno;
    case 12:  // what is known about a file goes where something else is on its way
      snprintf(other, sizeof other, "/proc/self/exe");
      return result(stat(other, &got->about));
    case 13:
      return result(utimensat(AT_FDCWD, got->file, NULL, 0));
    case 14:
      return result(unlink(got->file));
    default:
      return -1;
  }
}

int main(int argc, char** argv) {
  odt_start("names", &argc, &argv);
  // Allocated where neighbours reach it.
  Parameters* got = malloc(sizeof *got);
  char folder[64] = "";
  if (odt.rank == 0) {
    snprintf(folder, sizeof folder, "/tmp/odnames-XXXXXX");
    CHECK(mkdtemp(folder) != NULL, "no folder: %s", strerror(errno));
  }
  for (int i = 0; i < kRounds * kWays; i++) {
    const int how = i % kWays;
    memset(got, 0, sizeof *got);
    if (odt.rank == 0) {
      snprintf(got->folder, sizeof got->folder, "%s", folder);
      snprintf(got->file, sizeof got->file, "%s/file", folder);
      CHECK(closed(open(got->file, O_RDWR | O_CREAT, 0600)) == 0, "%s", "a file is made");
    }
    MUST(MPI_Bcast(got, (int)sizeof *got, MPI_BYTE, 0, MPI_COMM_WORLD));
    if (odt.rank == 1) {
      const int error = use(got, how);
      CHECK(error == 0, "way %d: %s", how, strerror(error));
      struct stat exe;
      if (how == 12 && stat("/proc/self/exe", &exe) == 0) {
        CHECK(got->about.st_ino == exe.st_ino, "%s", "the answer has been overwritten");
      }
    }
    MUST(MPI_Barrier(MPI_COMM_WORLD));
  }
  if (odt.rank == 0) CHECK(rmdir(folder) == 0, "%s: %s", folder, strerror(errno));
  free(got);
  return odt_finish();
}
