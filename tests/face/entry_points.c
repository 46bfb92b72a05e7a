// Machine code of the loader: entry points at their first and later calls, dlsym, dlopen and vfork.
//
// Linked with the loader before tests/face/plain_mpi.c, which is where a preloaded library stands.
// No face serves that library, so every call must reach it as it was made. Needs no MPI: this is
// how the code for a processor without one is run. Each failed check is printed; the status counts
// them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

double MPI_Wtime(void);
double PMPI_Wtime(void);
int MPI_Init(int* argc, char*** argv);
int MPI_Barrier(void* comm);
int MPI_Pcontrol(const int level, ...);
int MPI_Alltoallw(const void*, const int*, const int*, const void*, void*, const int*, const int*,
                  const void*, void*);

static int failed;

static void check(int holds, const char* what) {
  if (holds) return;
  printf("failed: %s\n", what);
  ++failed;
}

// Whether an address lies in a file of this name.
static int lies_in(const void* address, const char* name) {
  Dl_info info;
  return address != NULL && dladdr(address, &info) != 0 && strstr(info.dli_fname, name) != NULL;
}

static int pcontrol(void) {
  return MPI_Pcontrol(10, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 7);
}

static int alltoallw(void) {
  return MPI_Alltoallw((void*)1000, (int*)1001, (int*)1002, (void*)1003, (void*)1004, (int*)1005,
                       (int*)1006, (void*)1007, (void*)1008);
}

// How a child ends that calls a function which the library lacks; its message is in `said`.
static int call_missing(char* said, size_t bytes) {
  int ends[2];
  if (pipe(ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    MPI_Barrier(NULL);
    _exit(0);
  }
  close(ends[1]);
  size_t used = 0;
  for (ssize_t got; used + 1 < bytes && (got = read(ends[0], said + used, bytes - 1 - used)) > 0;) {
    used += (size_t)got;
  }
  said[used] = '\0';
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void) {
  // The first call of all resolves the entries, and has its own arguments in the registers.
  check(pcontrol() == 1023 + 7, "arguments of the first call");
  check(pcontrol() == 1023 + 7, "arguments of a later call");
  check(alltoallw() == 0, "arguments on the stack");
  check(MPI_Wtime() == 0.125, "a floating-point result");
  check(MPI_Init(NULL, NULL) == 0, "a function of two names");

  check(lies_in((void*)&MPI_Wtime, "liboverdrive"), "the program calls the loader");
  check(dlsym(RTLD_DEFAULT, "MPI_Barrier") == NULL, "dlsym finds no function that is missing");
  check(dlsym(RTLD_DEFAULT, "MPI_Alltoallw") != NULL, "dlsym finds one that is there");
  check(lies_in(dlsym(RTLD_NEXT, "printf"), "libc.so"), "dlsym knows who calls it");
  void* self = dlopen(NULL, RTLD_LAZY);
  check(self != NULL && dlsym(self, "MPI_Alltoallw") != NULL, "dlopen of the program");
  // Whoever asks the MPI library itself gets the loader's entry point, and the right one.
  void* library = dlopen("libplain_mpi.so", RTLD_LAZY | RTLD_NOLOAD);
  double (*now)(void) = NULL;
  if (library != NULL) *(void**)&now = dlsym(library, "MPI_Wtime");
  check(lies_in(*(void**)&now, "liboverdrive") && now() == 0.125, "dlsym in the MPI library");
  void* maths = dlopen("libm.so.6", RTLD_NOW);
  double (*root)(double) = NULL;
  if (maths != NULL) *(void**)&root = dlsym(maths, "sqrt");
  check(root != NULL && root(2.25) == 1.5, "dlopen of a library");

  char said[512];
  check(call_missing(said, sizeof(said)) == 127, "the status after a call of a missing function");
  check(strstr(said, "MPI_Barrier") != NULL, "the message names the missing function");

  const pid_t child = vfork();
  if (child == 0) _exit(11);
  int status = 0;
  check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 11,
        "vfork returns twice");
  if (failed == 0) puts("all checks hold");
  return failed;
}
