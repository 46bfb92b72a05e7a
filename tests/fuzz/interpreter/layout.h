// Datatypes of random programs: the MPI handle, and where each basic element lies.
//
// A specification is `B` or `B:K:A:...`: the basic type B (c s i l u U f d b) and a kind
//   c:A      A elements in a row                  v:A:L:S  A blocks of L elements, S apart
//   x:A:S    A irregular blocks with gaps, from seed S     r:A:G  A elements, then a gap of G
//   w:A      A elements, the last one first       n:A      A elements, half of them before the
//   address z:A:S    as x, each block one element (many runs that nothing merges)
// Places are in bytes, in the order of the type map.
#ifndef LAYOUT_H_
#define LAYOUT_H_

#include "program.h"

typedef struct {
  MPI_Datatype type;
  MPI_Datatype base;
  char letter;
  int size;     // of a basic element
  int derived;  // the handle is ours to free
  long per;     // basic elements in one element of the type
  long* place;  // NULL: in a row
  long extent;
  long lower, upper;  // of the bytes that are used, relative to the address
} Layout;

static MPI_Datatype base_type(const Op* op, char letter, int* size) {
  static const char kLetters[] = "csiluUfdb";
  static const int kSizes[] = {1, 2, 4, 8, 4, 8, 4, 8, 1};
  const MPI_Datatype types[] = {MPI_SIGNED_CHAR,   MPI_SHORT, MPI_INT,    MPI_LONG, MPI_UNSIGNED,
                                MPI_UNSIGNED_LONG, MPI_FLOAT, MPI_DOUBLE, MPI_BYTE};
  const char* at = strchr(kLetters, letter);
  REQUIRE(op, at != NULL && letter != '\0', "the program is wrong: basic type %c", letter);
  *size = kSizes[at - kLetters];
  return types[at - kLetters];
}

// Irregular blocks: each of one to three elements, with a gap of one to four behind it.
static void irregular(Layout* l, long blocks, uint64_t seed, int most_length, const Op* op) {
  int* lengths = (int*)need_memory((size_t)blocks * sizeof(int));
  MPI_Aint* at = (MPI_Aint*)need_memory((size_t)blocks * sizeof(MPI_Aint));
  long next = 0;
  l->per = 0;
  for (long i = 0; i < blocks; i++) {
    const uint64_t hash = mix(seed * 1000003u + (uint64_t)i);
    lengths[i] = 1 + (int)(hash % (uint64_t)most_length);
    at[i] = next * l->size;
    next += lengths[i] + 1 + (long)(hash >> 32) % 4;
    l->per += lengths[i];
  }
  l->place = (long*)need_memory((size_t)l->per * sizeof(long));
  long element = 0;
  for (long i = 0; i < blocks; i++) {
    for (int j = 0; j < lengths[i]; j++) l->place[element++] = at[i] + (long)j * l->size;
  }
  MUST(op, MPI_Type_create_hindexed((int)blocks, lengths, at, l->base, &l->type));
  free(lengths);
  free(at);
}

static void hand_placed(Layout* l, const Op* op) {
  int* lengths = (int*)need_memory((size_t)l->per * sizeof(int));
  MPI_Aint* at = (MPI_Aint*)need_memory((size_t)l->per * sizeof(MPI_Aint));
  for (long i = 0; i < l->per; i++) lengths[i] = 1, at[i] = l->place[i];
  MUST(op, MPI_Type_create_hindexed((int)l->per, lengths, at, l->base, &l->type));
  free(lengths);
  free(at);
}

static Layout layout_make(const Op* op, const char* spec) {
  Layout l = {.letter = spec[0], .per = 1};
  l.base = base_type(op, spec[0], &l.size);
  l.type = l.base;
  long n[3] = {0, 0, 0};
  const char kind = spec[1] == ':' ? spec[2] : 'p';
  if (kind != 'p') sscanf(spec + 3, ":%ld:%ld:%ld", &n[0], &n[1], &n[2]);
  l.derived = kind != 'p';
  if (kind == 'c' || kind == 'r') {
    l.per = n[0];
    MUST(op, MPI_Type_contiguous((int)n[0], l.base, &l.type));
    if (kind == 'r') {
      MPI_Datatype inner = l.type;
      MUST(op, MPI_Type_create_resized(inner, 0, (n[0] + n[1]) * l.size, &l.type));
      MUST(op, MPI_Type_free(&inner));
    }
  } else if (kind == 'v') {
    l.per = n[0] * n[1];
    l.place = (long*)need_memory((size_t)l.per * sizeof(long));
    for (long i = 0; i < l.per; i++) l.place[i] = (i / n[1] * n[2] + i % n[1]) * l.size;
    MUST(op, MPI_Type_vector((int)n[0], (int)n[1], (int)n[2], l.base, &l.type));
  } else if (kind == 'x' || kind == 'z') {
    irregular(&l, n[0], (uint64_t)n[1], kind == 'z' ? 1 : 3, op);
  } else if (kind == 'w' || kind == 'n') {
    l.per = n[0];
    l.place = (long*)need_memory((size_t)l.per * sizeof(long));
    for (long i = 0; i < l.per; i++) {
      l.place[i] = (kind == 'w' ? l.per - 1 - i : i - l.per / 2) * l.size;
    }
    hand_placed(&l, op);
  } else {
    REQUIRE(op, kind == 'p', "the program is wrong: datatype %s", spec);
  }
  if (l.derived) MUST(op, MPI_Type_commit(&l.type));
  MPI_Aint lower, extent;
  MUST(op, MPI_Type_get_extent(l.type, &lower, &extent));
  l.extent = (long)extent;
  l.lower = 0, l.upper = l.per * l.size;
  for (long i = 0; l.place != NULL && i < l.per; i++) {
    if (i == 0 || l.place[i] < l.lower) l.lower = l.place[i];
    if (i == 0 || l.place[i] + l.size > l.upper) l.upper = l.place[i] + l.size;
  }
  return l;
}

static void layout_free_handle(Layout* l) {
  if (l->derived) MPI_Type_free(&l->type);
  l->derived = 0;
}

static void layout_free(Layout* l) {
  layout_free_handle(l);
  free(l->place);
  l->place = NULL;
}

// Where basic element e lies, relative to the address.
static inline long layout_place(const Layout* l, long e) {
  const long whole = e / l->per, part = e % l->per;
  return whole * l->extent + (l->place != NULL ? l->place[part] : part * l->size);
}

// How many elements of the type hold so many basic ones.
static long layout_count(const Layout* l, long elements) {
  return (elements + l->per - 1) / l->per;
}

// The content of basic element e of a message.
static inline uint64_t content_word(uint64_t key, long e) {
  const uint64_t value = (key + (uint64_t)e) * 0x9e3779b97f4a7c15u;
  return value ^ (value >> 29);
}

// Writes elements [0, n) of the message with this key, beginning at basic element `first`.
static void layout_fill(const Layout* l, char* address, long first, long n, uint64_t key) {
  for (long e = 0; e < n; e++) {
    const uint64_t word = content_word(key, e);
    memcpy(address + layout_place(l, first + e), &word, (size_t)l->size);
  }
}

#endif  // LAYOUT_H_
