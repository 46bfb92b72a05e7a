// The text of random programs, as every rank reads it.
//
// A line is `STEP STRAND RANKS VERB NAME=VALUE...`. Ranks are numbers of MPI_COMM_WORLD with commas
// between, or `*`. A rank executes its lines in the order of the file; `program ID ...` opens a
// program and `end` closes it. Lists have commas and no spaces, so a line is cut at blanks. What
// the verbs mean stands with the functions that execute them.
#ifndef PROGRAM_H_
#define PROGRAM_H_

#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  kMostRanks = 64,
  kMostStrands = 4,
  kMostRequests = 512,
  kMostComms = 128,
  kMostMessages = 2048,
  kMostCandidates = 64,
  kMostWindows = 64,
  kMostNeighbours = 64,
  kMostEdges = 256,
  kMostLate = 8,
};

typedef struct {
  int step, strand;
  const char* verb;
  char* text;   // the whole line, for messages to the reader
  char* words;  // a copy, cut at blanks: NAME=VALUE, each ends with a zero, an empty one at the end
} Op;

typedef struct {
  long id;
  uint64_t seed;
  int strands;
  Op* ops;  // this rank's only
  int op_count;
  Op* messages;  // declarations of messages
  int message_count;
} Program;

static int world_rank, world_size;
static long current_program = -1;

// --- failures ------------------------------------------------------------------------------------

// Says what is wrong where and ends the job: after one failure nothing that follows is meaningful.
__attribute__((format(printf, 2, 3), noreturn)) static void fail(const Op* op, const char* format,
                                                                 ...) {
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "FAIL program=%ld rank=%d step=%d: %s\n    in: %s\n", current_program, world_rank,
          op != NULL ? op->step : -1, text, op != NULL ? op->text : "(between operations)");
  fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 3);
  _exit(3);
}

#define REQUIRE(op, condition, ...)            \
  do {                                         \
    if (!(condition)) fail((op), __VA_ARGS__); \
  } while (0)

// For calls that must succeed.
#define MUST(op, call)                                                       \
  do {                                                                       \
    const int must_code = (call);                                            \
    if (must_code != MPI_SUCCESS) {                                          \
      char must_text[MPI_MAX_ERROR_STRING] = "?";                            \
      int must_length;                                                       \
      MPI_Error_string(must_code, must_text, &must_length);                  \
      fail((op), "%.60s returned %d (%.200s)", #call, must_code, must_text); \
    }                                                                        \
  } while (0)

static void* need_memory(size_t bytes) {
  void* memory = malloc(bytes > 0 ? bytes : 1);
  REQUIRE(NULL, memory != NULL, "no memory for %zu bytes", bytes);
  return memory;
}

// --- random content ------------------------------------------------------------------------------

static uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// The key of what one participant gives another in one operation.
static uint64_t content_key(const Program* program, long operation, long from, long to) {
  return mix(program->seed ^ mix((uint64_t)operation * 4099u) ^
             mix((uint64_t)from * 65537u + (uint64_t)to + 7));
}

// --- arguments of an operation -------------------------------------------------------------------

// The text of an argument, or NULL.
static const char* arg_text(const Op* op, const char* name) {
  const size_t length = strlen(name);
  for (const char* word = op->words; *word != '\0'; word += strlen(word) + 1) {
    if (strncmp(word, name, length) == 0 && word[length] == '=') return word + length + 1;
  }
  return NULL;
}

static long arg(const Op* op, const char* name, long otherwise) {
  const char* text = arg_text(op, name);
  return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

static long arg_needed(const Op* op, const char* name) {
  const char* text = arg_text(op, name);
  REQUIRE(op, text != NULL, "the program is wrong: no %s", name);
  return strtol(text, NULL, 10);
}

static int arg_is(const Op* op, const char* name, const char* value) {
  const char* text = arg_text(op, name);
  return text != NULL && strcmp(text, value) == 0;
}

// Numbers with commas between; returns how many, 0 also when there is no such argument.
static int arg_list(const Op* op, const char* name, long* out, int most) {
  const char* text = arg_text(op, name);
  int count = 0;
  while (text != NULL && *text != '\0') {
    char* end;
    REQUIRE(op, count < most, "the program is wrong: more than %d in %s", most, name);
    out[count++] = strtol(text, &end, 10);
    text = *end == ',' ? end + 1 : NULL;
  }
  return count;
}

// --- reading -------------------------------------------------------------------------------------

static int concerns_us(const char* ranks) {
  if (strcmp(ranks, "*") == 0) return 1;
  while (*ranks != '\0') {
    char* end;
    if (strtol(ranks, &end, 10) == world_rank) return 1;
    ranks = *end == ',' ? end + 1 : "";
  }
  return 0;
}

static void add_op(Op** list, int* count, Op op) {
  if ((*count & (*count - 1)) == 0) {  // grows to the next power of two
    const size_t room = *count == 0 ? 1 : (size_t)*count * 2;
    *list = (Op*)realloc(*list, room * sizeof(Op));
    REQUIRE(NULL, *list != NULL, "no memory for programs");
  }
  (*list)[(*count)++] = op;
}

// Cuts a line of a program; the first four words are the operation's frame.
static void add_line(Program* program, const char* line) {
  Op op = {.text = strdup(line), .words = (char*)need_memory(strlen(line) + 2)};
  char *out = op.words, *rest = NULL, *frame[4];
  char* copy = strdup(line);
  int words = 0;
  for (char* word = strtok_r(copy, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
    if (words < 4) {
      frame[words] = word;
    } else {
      strcpy(out, word);
      out += strlen(word) + 1;
    }
    words++;
  }
  *out = '\0';
  REQUIRE(NULL, words >= 4, "the program is wrong: %s", line);
  op.step = atoi(frame[0]);
  op.strand = atoi(frame[1]);
  op.verb = strdup(frame[3]);
  if (strcmp(op.verb, "message") == 0) {
    add_op(&program->messages, &program->message_count, op);
  } else if (concerns_us(frame[2])) {
    add_op(&program->ops, &program->op_count, op);
  }
  free(copy);
}

static Program* read_programs(const char* path, int* count) {
  FILE* file = fopen(path, "r");
  REQUIRE(NULL, file != NULL, "%s cannot be read", path);
  Program* programs = NULL;
  Program* open = NULL;
  char* line = NULL;
  size_t room = 0;
  *count = 0;
  while (getline(&line, &room, file) > 0) {
    line[strcspn(line, "\n")] = '\0';
    if (line[0] == '\0' || line[0] == '#') continue;
    if (strncmp(line, "program ", 8) == 0) {
      programs = (Program*)realloc(programs, ((size_t)*count + 1) * sizeof(Program));
      open = &programs[(*count)++];
      memset(open, 0, sizeof *open);
      unsigned long long seed;
      const int found =
          sscanf(line, "program %ld seed=%llu strands=%d", &open->id, &seed, &open->strands);
      REQUIRE(NULL, found == 3, "the program is wrong: %s", line);
      open->seed = seed;
    } else if (strcmp(line, "end") == 0) {
      open = NULL;
    } else {
      REQUIRE(NULL, open != NULL, "the program is wrong: %s outside a program", line);
      add_line(open, line);
    }
  }
  free(line);
  fclose(file);
  return programs;
}

static void free_ops(Op* ops, int count) {
  for (int i = 0; i < count; i++) {
    free(ops[i].text);
    free(ops[i].words);
    free((char*)ops[i].verb);
  }
  free(ops);
}

static void free_program(Program* program) {
  free_ops(program->ops, program->op_count);
  free_ops(program->messages, program->message_count);
}

#endif  // PROGRAM_H_
