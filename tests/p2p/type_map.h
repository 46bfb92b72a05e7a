// A datatype beside its type map, worked out from the standard's definition (MPI 4.1, 5.1): what
// sends, receives and MPI_Pack of the type must do, without asking any MPI for it. Hosts are no
// reference for types of their own making: Open MPI 4.1 packs two elements of a struct whose last
// member is empty without the gap that it reports itself as part of the extent, MPICH 4.0 truncates
// them, and both agree with themselves.
//
// Only the extent is the host's: it has padding that the standard leaves open.
#ifndef TYPE_MAP_H_
#define TYPE_MAP_H_

#include "odtest.h"

// Bytes that lie together, at a distance from the buffer's address.
typedef struct {
  MPI_Aint at;
  long bytes;
} TypeBlock;

// A datatype and its type map, in the order of the map.
typedef struct {
  MPI_Datatype type;
  TypeBlock* blocks;
  long blocks_count;
  long room;
} MappedType;

// What the parts of a derived type's map are: `copies` elements of `inner` from `at` on.
static void map_append(MappedType* map, const MappedType* inner, long copies, MPI_Aint at) {
  MPI_Aint lower, extent;
  MUST(MPI_Type_get_extent(inner->type, &lower, &extent));
  for (long copy = 0; copy < copies; copy++) {
    for (long i = 0; i < inner->blocks_count; i++) {
      if (map->blocks_count == map->room) {
        map->room = map->room == 0 ? 16 : map->room * 2;
        map->blocks = realloc(map->blocks, (size_t)map->room * sizeof *map->blocks);
        if (map->blocks == NULL) abort();
      }
      map->blocks[map->blocks_count++] =
          (TypeBlock){inner->blocks[i].at + at + copy * extent, inner->blocks[i].bytes};
    }
  }
}

// The map of a predefined type without gaps.
static MappedType map_basic(MPI_Datatype basic) {
  int bytes = 0;
  MappedType map = {MPI_DATATYPE_NULL, NULL, 1, 1};
  MUST(MPI_Type_dup(basic, &map.type));
  MUST(MPI_Type_size(basic, &bytes));
  map.blocks = malloc(sizeof *map.blocks);
  if (map.blocks == NULL) abort();
  map.blocks[0] = (TypeBlock){0, bytes};
  return map;
}

static void map_free(MappedType* map) {
  MUST(MPI_Type_free(&map->type));
  free(map->blocks);
  map->blocks = NULL;
}

static long map_bytes(const MappedType* map) {
  long bytes = 0;
  for (long i = 0; i < map->blocks_count; i++) bytes += map->blocks[i].bytes;
  return bytes;
}

// The lowest byte of one element and the one after its highest; both 0 for an empty type.
static void map_bounds(const MappedType* map, long* low, long* high) {
  *low = *high = 0;
  for (long i = 0; i < map->blocks_count; i++) {
    const long first = (long)map->blocks[i].at, last = first + map->blocks[i].bytes;
    if (i == 0 || first < *low) *low = first;
    if (i == 0 || last > *high) *high = last;
  }
}

// Copies `count` elements, `extent` apart, between `data` and the packed form.
static void map_copy(const MappedType* map, long count, MPI_Aint extent, char* data, char* packed,
                     int pack) {
  for (long element = 0; element < count; element++) {
    for (long i = 0; i < map->blocks_count; i++) {
      char* at = data + element * extent + map->blocks[i].at;
      const size_t bytes = (size_t)map->blocks[i].bytes;
      memcpy(pack ? packed : at, pack ? at : packed, bytes);
      packed += bytes;
    }
  }
}

#endif  // TYPE_MAP_H_
