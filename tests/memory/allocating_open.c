// A C library whose open() allocates, small and large: as functions of older ones do that the heap
// calls while it finds out what it has to do. Preloaded behind Overdrive.
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(rest, int) : 0;
  va_end(rest);
  for (size_t bytes = 10; bytes <= 1000000; bytes *= 10) {
    char* volatile block = malloc(bytes);
    if (block == NULL) abort();
    block[bytes - 1] = 1;
    free(block);
    block = calloc(1, bytes);
    if (block == NULL || block[bytes - 1] != 0) abort();
    free(block);
  }
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
