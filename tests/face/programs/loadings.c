/* Calls dlopen in MPI, to find things and to load something. */
#include <dlfcn.h>
#include <stddef.h>

int MPI_Init(int*, char***);
int MPI_Finalize(void);

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (dlopen(NULL, RTLD_LAZY) == NULL) return 1;
  if (dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD) == NULL) return 2;
  if (dlopen("libm.so.6", RTLD_LAZY) == NULL) return 3;
  MPI_Finalize();
  return 0;
}
