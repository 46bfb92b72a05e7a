// handlers.c, whose handlers leave by exceptions.
#include "handlers.c"
