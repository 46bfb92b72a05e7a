/* Asks the process for MPI functions by name, before and after an MPI library is loaded, and prints
 * the answers; the same lines must come out with and without the loader in the process.
 * usage: probe LIBMPI (loads it) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const char* names[] = {"MPI_Get_version", "MPI_Send",    "PMPI_Send",
                              "MPI_Send_c",      "PMPI_Send_c", "MPI_Session_init",
                              "MPI_Wtime",       "MPI_Bogus",   "printf"};

static void ask(const char* when, const char* how, void* handle) {
  for (unsigned i = 0; i < sizeof(names) / sizeof(*names); ++i) {
    dlerror();
    void* found = dlsym(handle, names[i]);
    const char* error = dlerror();
    /* The message starts with the name of the object asked, which may differ. */
    const char* text = error != NULL ? strstr(error, "undefined symbol") : NULL;
    printf("%s %s %s: %s %s\n", when, how, names[i], found != NULL ? "yes" : "no",
           error == NULL  ? "-"
           : text != NULL ? text
                          : error);
  }
}

int main(int argc, char** argv) {
  void* self = dlopen(NULL, RTLD_NOW);
  ask("before", "default", RTLD_DEFAULT);
  ask("before", "program", self);
  void* mpi = dlopen(argv[argc - 1], RTLD_NOW | RTLD_GLOBAL);
  if (mpi == NULL) return puts(dlerror()), 1;
  ask("after", "default", RTLD_DEFAULT);
  ask("after", "program", self);
  ask("after", "library", mpi);
  return 0;
}
