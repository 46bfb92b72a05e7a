// What every C and C++ test program shares: checks, reproducible random numbers, data patterns, and
// the verdict. A program calls odt_start, CHECKs things, and returns odt_finish(). Rank 0 prints
// "PASS name" only if no rank found anything wrong; each failure is printed as "FAIL ..." at once.
// Arguments of the form --name=value are read with odt_option.
#ifndef ODTEST_H_
#define ODTEST_H_

#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// A program that is wrong once is usually wrong everywhere; the first failures tell the story.
enum { kOdtMaxFailures = 20 };

typedef struct {
  const char* name;
  int argc;
  char** argv;
  int rank;
  int size;
  int provided;
  uint64_t seed;
  long checks;
  long failures;
} OdtState;

static OdtState odt;

__attribute__((unused)) static const char* odt_option(const char* name, const char* otherwise) {
  size_t length = strlen(name);
  for (int i = 1; i < odt.argc; i++) {
    if (strncmp(odt.argv[i], "--", 2) == 0 && strncmp(odt.argv[i] + 2, name, length) == 0 &&
        odt.argv[i][2 + length] == '=') {
      return odt.argv[i] + 3 + length;
    }
  }
  return otherwise;
}

__attribute__((unused)) static long odt_number(const char* name, long otherwise) {
  const char* text = odt_option(name, NULL);
  return text != NULL ? atol(text) : otherwise;
}

__attribute__((format(printf, 4, 5), unused)) static void odt_fail(const char* file, int line,
                                                                   const char* condition,
                                                                   const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char* base = strrchr(file, '/');
  fprintf(stderr, "FAIL %s rank %d %s:%d: %s: %s\n", odt.name, odt.rank,
          base != NULL ? base + 1 : file, line, condition, text);
  fflush(stderr);
  if (__atomic_add_fetch(&odt.failures, 1, __ATOMIC_RELAXED) >= kOdtMaxFailures) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
}

// CHECK(condition, "text with the values, printf style", ...)
#define CHECK(condition, ...)                                \
  do {                                                       \
    __atomic_add_fetch(&odt.checks, 1, __ATOMIC_RELAXED);    \
    if (!(condition)) {                                      \
      odt_fail(__FILE__, __LINE__, #condition, __VA_ARGS__); \
    }                                                        \
  } while (0)

// For calls that must succeed; gives the line when they do not.
#define MUST(call)                                                  \
  do {                                                              \
    int odt_code = (call);                                          \
    if (odt_code != MPI_SUCCESS) {                                  \
      odt_fail(__FILE__, __LINE__, #call, "returned %d", odt_code); \
    }                                                               \
  } while (0)

__attribute__((unused)) static void odt_start_as(const char* name, int* argc, char*** argv,
                                                 int required) {
  odt.name = name;
  odt.argc = *argc;
  odt.argv = *argv;
  MPI_Init_thread(argc, argv, required, &odt.provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &odt.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &odt.size);
  odt.seed = (uint64_t)odt_number("seed", 1);
  if (odt.rank == 0) {
    printf("%s: %d ranks, seed %llu\n", name, odt.size, (unsigned long long)odt.seed);
    fflush(stdout);
  }
}

__attribute__((unused)) static void odt_start(const char* name, int* argc, char*** argv) {
  odt_start_as(name, argc, argv, MPI_THREAD_SINGLE);
}

__attribute__((unused)) static int odt_finish(void) {
  long mine[2] = {odt.checks, odt.failures};
  long all[2] = {0, 0};
  MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (odt.rank == 0) {
    if (all[1] == 0 && all[0] > 0) {
      printf("PASS %s: %ld checks\n", odt.name, all[0]);
    } else {
      printf("WRONG %s: %ld of %ld checks failed\n", odt.name, all[1], all[0]);
    }
    fflush(stdout);
  }
  MPI_Finalize();
  return all[1] == 0 ? 0 : 1;
}

// --- Random numbers: the same sequence for the same state everywhere (splitmix64).
// ----------------

__attribute__((unused)) static uint64_t odt_mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

typedef struct {
  uint64_t state;
} OdtRandom;

__attribute__((unused)) static OdtRandom odt_random(uint64_t stream) {
  OdtRandom random;
  random.state = odt_mix(odt.seed * 1000003u + stream);
  return random;
}

__attribute__((unused)) static uint64_t odt_next(OdtRandom* random) {
  random->state += 0x9e3779b97f4a7c15u;
  return odt_mix(random->state);
}

// Uniform in [0, limit).
__attribute__((unused)) static long odt_below(OdtRandom* random, long limit) {
  return (long)(odt_next(random) % (uint64_t)limit);
}

// Sizes next to the boundaries where implementations change their protocol, and random ones.
__attribute__((unused)) static long odt_size(OdtRandom* random, long largest) {
  static const long kBoundaries[] = {
      0,     1,     8,     56,    64,     128,    256,    1024,    2048,    4096,    8192,
      12288, 16384, 32768, 65536, 131072, 262144, 524288, 1048576, 2097152, 4194304, 8388608};
  const long count = (long)(sizeof kBoundaries / sizeof kBoundaries[0]);
  for (;;) {
    long bytes;
    if (odt_below(random, 4) == 0) {
      // Random with a random magnitude, so that small sizes are as frequent as large ones.
      bytes = odt_below(random, 1L << odt_below(random, 24));
    } else {
      bytes = kBoundaries[odt_below(random, count)] + odt_below(random, 3) - 1;
    }
    if (bytes >= 0 && bytes <= largest) return bytes;
  }
}

// --- Data patterns: byte i depends on the key and on i; a shifted or mixed message is noticed.
// -----

__attribute__((unused)) static uint64_t odt_word(uint64_t key, uint64_t index) {
  uint64_t value = (key + index) * 0x9e3779b97f4a7c15u;
  return value ^ (value >> 29);
}

__attribute__((unused)) static void odt_fill(void* buffer, size_t bytes, uint64_t key) {
  unsigned char* out = (unsigned char*)buffer;
  size_t words = bytes / 8;
  key = odt_mix(key);
  for (size_t i = 0; i < words; i++) {
    uint64_t word = odt_word(key, i);
    memcpy(out + 8 * i, &word, 8);
  }
  uint64_t last = odt_word(key, words);
  memcpy(out + 8 * words, &last, bytes - 8 * words);
}

// Returns the offset of the first wrong byte (of its word), or -1.
__attribute__((unused)) static long odt_mismatch(const void* buffer, size_t bytes, uint64_t key) {
  const unsigned char* in = (const unsigned char*)buffer;
  size_t words = bytes / 8;
  key = odt_mix(key);
  for (size_t i = 0; i < words; i++) {
    uint64_t word = odt_word(key, i);
    if (memcmp(in + 8 * i, &word, 8) != 0) return (long)(8 * i);
  }
  uint64_t last = odt_word(key, words);
  if (memcmp(in + 8 * words, &last, bytes - 8 * words) != 0) return (long)(8 * words);
  return -1;
}

// The key of one message: unique for sender, receiver, stream and number.
__attribute__((unused)) static uint64_t odt_key(int from, int to, long stream, long number) {
  return odt_mix(odt.seed ^ odt_mix((uint64_t)from * 7919 + (uint64_t)to) ^
                 odt_mix((uint64_t)stream * 104729 + (uint64_t)number + 1));
}

#define CHECK_DATA(buffer, bytes, key)                                         \
  do {                                                                         \
    long odt_at = odt_mismatch(buffer, (size_t)(bytes), key);                  \
    CHECK(odt_at < 0, "wrong data at byte %ld of %ld", odt_at, (long)(bytes)); \
  } while (0)

// Allocates; ends the program when there is no memory.
__attribute__((unused)) static void* odt_memory(size_t bytes) {
  void* memory = malloc(bytes > 0 ? bytes : 1);
  if (memory == NULL) {
    fprintf(stderr, "FAIL %s: no memory for %zu bytes\n", odt.name, bytes);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return memory;
}

__attribute__((unused)) static double odt_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

__attribute__((unused)) static void odt_sleep_ms(long ms) {
  struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
  nanosleep(&time, NULL);
}

// The error class of a return code.
__attribute__((unused)) static int odt_class(int code) {
  int error_class = 0;
  MPI_Error_class(code, &error_class);
  return error_class;
}

__attribute__((unused)) static const char* odt_class_name(int code) {
  int error_class = odt_class(code);
  if (error_class == MPI_SUCCESS) return "SUCCESS";
  if (error_class == MPI_ERR_BUFFER) return "BUFFER";
  if (error_class == MPI_ERR_COUNT) return "COUNT";
  if (error_class == MPI_ERR_TYPE) return "TYPE";
  if (error_class == MPI_ERR_TAG) return "TAG";
  if (error_class == MPI_ERR_COMM) return "COMM";
  if (error_class == MPI_ERR_RANK) return "RANK";
  if (error_class == MPI_ERR_REQUEST) return "REQUEST";
  if (error_class == MPI_ERR_TRUNCATE) return "TRUNCATE";
  if (error_class == MPI_ERR_IN_STATUS) return "IN_STATUS";
  if (error_class == MPI_ERR_PENDING) return "PENDING";
  if (error_class == MPI_ERR_ARG) return "ARG";
  if (error_class == MPI_ERR_OTHER) return "OTHER";
  if (error_class == MPI_ERR_INTERN) return "INTERN";
  return "?";
}

#endif  // ODTEST_H_
