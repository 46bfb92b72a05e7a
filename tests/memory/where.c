// For Fortran: whether an array lies in the reach file.
#include "where.h"

int where_is(const void* start, const long* bytes);

int where_is(const void* start, const long* bytes) { return in_reach_file(start, (size_t)*bytes); }
