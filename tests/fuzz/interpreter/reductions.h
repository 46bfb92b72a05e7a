// Operations of reductions: handles, operands whose result is exact in every order, and the result.
//
// `op=` is a predefined name in lower case, or one of the program's own: `add` (commutes; sum
// modulo a prime on longs) and `chain` (does not; x -> a x + b one after the other on pairs of
// longs, the datatype l:c:2 or l:r:2:1). Basic types as in layout.h; minloc and maxloc work on
// pairs, which are `P` (MPI_2INT) here.
#ifndef REDUCTIONS_H_
#define REDUCTIONS_H_

#include "layout.h"

enum { kPrime = 1000003 };

typedef struct {
  MPI_Op handle;
  int own;  // to be freed
  char name[8];
} Reduction;

static void add_function(void* in, void* inout, int* length, MPI_Datatype* type) {
  (void)type;
  const long* from = (const long*)in;
  long* to = (long*)inout;
  for (int i = 0; i < *length; i++) to[i] = (from[i] + to[i]) % kPrime;
}

static void chain(const long* left, long* right) {
  const long product = left[0] * right[0] % kPrime;
  right[1] = (left[1] * right[0] + right[1]) % kPrime;
  right[0] = product;
}

static void chain_function(void* in, void* inout, int* length, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *length; i++) chain((const long*)in + 2 * i, (long*)inout + 2 * i);
}

static void gap_function(void* in, void* inout, int* length, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *length; i++) chain((const long*)in + 3 * i, (long*)inout + 3 * i);
}

static Reduction reduction_make(const Op* op, const char* name, const Layout* l) {
  static const char* const kNames[] = {"max",  "min", "sum", "prod", "land",
                                       "band", "lor", "bor", "lxor", "bxor"};
  const MPI_Op handles[] = {MPI_MAX,  MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND,
                            MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR};
  Reduction r = {.handle = MPI_OP_NULL};
  snprintf(r.name, sizeof r.name, "%s", name);
  for (int i = 0; i < 10; i++) {
    if (strcmp(name, kNames[i]) == 0) r.handle = handles[i];
  }
  if (strcmp(name, "add") == 0) {
    r.own = 1;
    MUST(op, MPI_Op_create(add_function, 1, &r.handle));
  } else if (strcmp(name, "chain") == 0) {
    r.own = 1;
    MUST(op, MPI_Op_create(l->extent == 24 ? gap_function : chain_function, 0, &r.handle));
  }
  REQUIRE(op, r.handle != MPI_OP_NULL, "the program is wrong: operation %s", name);
  return r;
}

static void reduction_free(Reduction* r) {
  if (r->own) MPI_Op_free(&r->handle);
  r->own = 0;
}

// A number as the program's types hold it: whole, also where the type is a real one.
typedef struct {
  int64_t v[2];
} Number;

static int is_unsigned(char letter) { return letter == 'u' || letter == 'U' || letter == 'b'; }

// The operand that a rank contributes as element e (pair e of `chain`).
static Number operand(const char* op, char letter, uint64_t key, long e) {
  const uint64_t hash = mix(key + (uint64_t)e * 31);
  const int64_t small = (int64_t)(hash % 100);
  Number n = {{0, 0}};
  if (strcmp(op, "chain") == 0 || strcmp(op, "add") == 0) {
    n.v[0] = (int64_t)(hash % kPrime);
    n.v[1] = (int64_t)((hash >> 24) % kPrime);
  } else if (op[0] == 'm') {  // max, min
    n.v[0] = is_unsigned(letter) ? small : small - 50;
  } else if (strcmp(op, "sum") == 0) {
    n.v[0] = small % 4;
  } else if (strcmp(op, "prod") == 0) {
    n.v[0] = is_unsigned(letter) || small % 2 == 0 ? 1 + (letter != 'c' && small % 3 == 0) : -1;
  } else if (op[0] == 'l') {  // land, lor, lxor
    n.v[0] = small % 3 == 0 ? 0 : small % 5;
  } else {
    n.v[0] = (int64_t)(hash >> 3);
  }
  return n;
}

static Number combine(const char* op, Number a, Number b) {
  Number r = b;
  if (strcmp(op, "chain") == 0) {
    r.v[0] = a.v[0] * b.v[0] % kPrime;
    r.v[1] = (a.v[1] * b.v[0] + b.v[1]) % kPrime;
  } else if (strcmp(op, "add") == 0) {
    r.v[0] = (a.v[0] + b.v[0]) % kPrime;
  } else if (strcmp(op, "max") == 0) {
    r.v[0] = a.v[0] > b.v[0] ? a.v[0] : b.v[0];
  } else if (strcmp(op, "min") == 0) {
    r.v[0] = a.v[0] < b.v[0] ? a.v[0] : b.v[0];
  } else if (strcmp(op, "sum") == 0) {
    r.v[0] = a.v[0] + b.v[0];
  } else if (strcmp(op, "prod") == 0) {
    r.v[0] = a.v[0] * b.v[0];
  } else if (strcmp(op, "land") == 0) {
    r.v[0] = a.v[0] != 0 && b.v[0] != 0;
  } else if (strcmp(op, "lor") == 0) {
    r.v[0] = a.v[0] != 0 || b.v[0] != 0;
  } else if (strcmp(op, "lxor") == 0) {
    r.v[0] = (a.v[0] != 0) != (b.v[0] != 0);
  } else if (strcmp(op, "band") == 0) {
    r.v[0] = a.v[0] & b.v[0];
  } else if (strcmp(op, "bor") == 0) {
    r.v[0] = a.v[0] | b.v[0];
  } else {
    r.v[0] = a.v[0] ^ b.v[0];
  }
  return r;
}

static void store_number(char letter, char* to, int64_t value) {
  const float f = (float)value;
  const double d = (double)value;
  const void* from = letter == 'f' ? (const void*)&f : letter == 'd' ? (const void*)&d : &value;
  const int size = letter == 'c' || letter == 'b'                    ? 1
                   : letter == 's'                                   ? 2
                   : letter == 'i' || letter == 'u' || letter == 'f' ? 4
                                                                     : 8;
  memcpy(to, from, (size_t)size);  // little-endian
}

// Writes the operand (or result) of basic element e; `chain` has two to a pair.
static void store_element(const char* op, const Layout* l, char* address, long e, Number n) {
  const int part = strcmp(op, "chain") == 0 ? (int)(e % 2) : 0;
  store_number(l->letter, address + layout_place(l, e), n.v[part]);
}

static Number operand_of_element(const char* op, const Layout* l, uint64_t key, long e) {
  return operand(op, l->letter, key, strcmp(op, "chain") == 0 ? e / 2 : e);
}

#endif  // REDUCTIONS_H_
