/* Changes its directory before its first MPI call. */
#include <unistd.h>
int MPI_Init(int*, char***);
int main(int argc, char** argv) { return chdir("/") != 0 || MPI_Init(&argc, &argv); }
