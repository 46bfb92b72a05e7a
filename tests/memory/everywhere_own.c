// The program of everywhere.c, to be linked with an allocator of its own (own_malloc.c).
#include "everywhere.c"
