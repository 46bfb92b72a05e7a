// Tells where an address lies, by the list of the process's mappings: what the kernel says, not
// what Overdrive says about itself.
#ifndef WHERE_H_
#define WHERE_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

// Whether all of [start, start + bytes) is mapped from the own reach file, shared.
__attribute__((unused)) static int in_reach_file(const void* start, size_t bytes) {
  FILE* maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) return -1;
  unsigned long at = (unsigned long)start;
  const unsigned long end = at + bytes;
  char line[4096];
  while (at < end && fgets(line, sizeof line, maps) != NULL) {
    unsigned long from, to;
    char access[5];
    if (sscanf(line, "%lx-%lx %4s", &from, &to, access) != 3 || to <= at) continue;
    if (from > at || access[3] != 's' || strstr(line, "memfd:overdrive-reach") == NULL) break;
    at = to;
  }
  fclose(maps);
  return at >= end;
}

#endif
