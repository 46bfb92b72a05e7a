// The program of reachable.c, to be linked with an allocator of its own (own_malloc.c).
#include "reachable.c"
