// Input and output of a rank in a collective: blocks of elements, each described by a datatype.
//
// A message is so many basic elements; how a rank describes them is its own choice: as such, or by
// a derived datatype of one to three of them with gaps, in any order, also before its address
// (Shape). A Side is a buffer with its blocks. Bytes between the elements belong to nobody and must
// stay as they are.
#ifndef SIDES_H_
#define SIDES_H_

#include "elements.h"

enum { kMostRanks = 96, kShapeKinds = 7, kGuardBytes = 64, kUntouched = 0x6b };

typedef struct {
  const Base* base;
  MPI_Datatype type;
  int kind;
  int parts;       // basic elements of one element
  long place[3];   // theirs, in bytes
  long extent;     // between elements
  long low, high;  // bytes of one element
} Shape;

// Basic elements that every shape can be cut into.
enum { kWholeParts = 6 };

static Shape shape_make(const Base* base, int kind) {
  const long e = base->extent;
  Shape shape = {.base = base, .type = base->type, .kind = kind, .parts = 1};
  int lengths[3] = {1, 1, 1};
  MPI_Aint places[3] = {2 * e, 0, 5 * e};
  MPI_Datatype types[3] = {base->type, base->type, base->type};
  switch (kind) {
    case 1:
      shape.parts = 3;
      shape.place[1] = e;
      shape.place[2] = 2 * e;
      MUST(MPI_Type_contiguous(3, base->type, &shape.type));
      break;
    case 2:
      shape.parts = 2;
      shape.place[1] = 3 * e;
      MUST(MPI_Type_vector(2, 1, 3, base->type, &shape.type));
      break;
    case 3:
      shape.parts = 3;
      shape.place[1] = -2 * e;
      shape.place[2] = -4 * e;
      MUST(MPI_Type_vector(3, 1, -2, base->type, &shape.type));
      break;
    case 4:
      MUST(MPI_Type_create_resized(base->type, -(MPI_Aint)e, 3 * (MPI_Aint)e, &shape.type));
      break;
    case 5:
      shape.parts = 3;
      for (int i = 0; i < 3; i++) shape.place[i] = (long)places[i];
      MUST(MPI_Type_create_struct(3, lengths, places, types, &shape.type));
      break;
    case 6:
      shape.parts = 3;
      shape.place[0] = 4 * e;
      shape.place[1] = 5 * e;
      lengths[0] = 2;
      places[0] = 4 * e;
      MUST(MPI_Type_create_hindexed(2, lengths, places, base->type, &shape.type));
      break;
    default:
      break;
  }
  if (kind != 0) MUST(MPI_Type_commit(&shape.type));
  MPI_Aint lower, extent;
  MUST(MPI_Type_get_extent(shape.type, &lower, &extent));
  shape.extent = (long)extent;
  for (int i = 0; i < shape.parts; i++) {
    if (shape.place[i] < shape.low) shape.low = shape.place[i];
    if (shape.place[i] + e > shape.high) shape.high = shape.place[i] + e;
  }
  return shape;
}

static void shape_free(Shape* shape) {
  if (shape->kind != 0 && shape->type != MPI_DATATYPE_NULL) MUST(MPI_Type_free(&shape->type));
}

typedef struct {
  int used;  // 0: not significant at this rank
  int blocks;
  int typed;                // each block has a shape of its own, displacements are bytes
  Shape shape[kMostRanks];  // only the first unless typed
  MPI_Datatype types[kMostRanks];
  long parts[kMostRanks];  // basic elements of each block
  int count[kMostRanks];   // elements
  int displ[kMostRanks];   // elements, or bytes
  MPI_Count count_c[kMostRanks];
  MPI_Aint displ_c[kMostRanks];
  long place[kMostRanks];  // bytes
  size_t bytes;
  char* memory;
  char* origin;  // what the program passes
} Side;

static Shape* side_shape(Side* side, int block) { return &side->shape[side->typed ? block : 0]; }

static char* side_part(Side* side, int block, long part) {
  const Shape* shape = side_shape(side, block);
  return side->origin + side->place[block] + part / shape->parts * shape->extent +
         shape->place[part % shape->parts];
}

// Places the blocks one after the other, in the given order of ranks, with gaps between them.
static void side_place(Side* side, const int* order, int gap) {
  long next = 0;  // bytes
  long low = 0, high = 1;
  for (int i = 0; i < side->blocks; i++) {
    const int b = order != NULL ? order[i] : i;
    const Shape* shape = side_shape(side, b);
    side->types[b] = shape->type;
    side->count[b] = (int)(side->parts[b] / shape->parts);
    side->place[b] = next;
    if (side->typed) side->place[b] -= shape->low;
    side->displ[b] = (int)(side->typed ? side->place[b] : next / shape->extent);
    const long end = side->count[b] > 0
                         ? side->place[b] + (side->count[b] - 1) * shape->extent + shape->high
                         : side->place[b];
    if (side->count[b] > 0 && side->place[b] + shape->low < low) low = side->place[b] + shape->low;
    if (end > high) high = end;
    next = side->typed ? (end + 15) / 16 * 16 + gap * 16
                       : next + (side->count[b] + gap) * shape->extent;
    side->count_c[b] = side->count[b];
    side->displ_c[b] = side->displ[b];
  }
  side->bytes = (size_t)(high - low) + 2 * kGuardBytes;
  side->memory = odt_memory(side->bytes);
  memset(side->memory, kUntouched, side->bytes);
  side->origin = side->memory + kGuardBytes - low;
}

static void side_copy(Side* to, const Side* from) {
  *to = *from;
  if (!from->used) return;
  to->memory = odt_memory(from->bytes);
  memcpy(to->memory, from->memory, from->bytes);
  to->origin = to->memory + (from->origin - from->memory);
}

static void side_reset(Side* side, const Side* from) {
  if (side->used) memcpy(side->memory, from->memory, from->bytes);
}

static void side_fill(Side* side, int block, long first, long parts, int op, uint64_t key) {
  const Base* base = side_shape(side, block)->base;
  for (long i = 0; i < parts; i++) {
    fill_element(base, op, side_part(side, block, first + i), odt_mix(key + (uint64_t)i));
  }
}

// What is wrong with a result, or 0. Of each block the first `defined` parts count (all if null).
static int side_differs(Side* ours, Side* expected, const Side* before, const long* defined,
                        char* text, size_t room) {
  if (!ours->used) return 0;
  char* seen = calloc(1, ours->bytes);
  for (int b = 0; b < ours->blocks; b++) {
    const Base* base = side_shape(ours, b)->base;
    for (long i = 0; i < ours->parts[b]; i++) {
      const char* is = side_part(ours, b, i);
      const char* should = side_part(expected, b, i);
      memset(seen + (is - ours->memory), 1, (size_t)base->extent);
      if (defined != NULL && i >= defined[b]) continue;
      if (same_element(base, is, should)) continue;
      char a[128] = "", c[128] = "";
      print_element(base, is, a, sizeof a);
      print_element(base, should, c, sizeof c);
      snprintf(text, room, "block %d of %d, element %ld of %ld is %s, not %s", b, ours->blocks, i,
               ours->parts[b], a, c);
      free(seen);
      return 1;
    }
  }
  for (size_t i = 0; i < ours->bytes; i++) {
    if (seen[i] || ours->memory[i] == before->memory[i]) continue;
    snprintf(text, room, "byte %ld of %zu was changed although it belongs to no element",
             (long)i - (long)(ours->origin - ours->memory), ours->bytes);
    free(seen);
    return 1;
  }
  free(seen);
  return 0;
}

#endif  // SIDES_H_
