// What a program does besides MPI: processes and threads that it starts, and what it does with the
// result of a blocking collective before it looks at it.
//
//   process how=fork|system|popen|memory      at any time, also with requests pending
//   coll .. after=fork|system|popen|file|thread|backwards|again|realloc|late
//
// The result of a collective may still be on its way when the call returns, if nobody can tell. So
// it is taken in all ways in which programs take it: by a child, through the kernel, by a thread,
// from its end, after it has been moved; `late` looks only after the next operation. Every reader
// says what it has seen by one number, which is compared after the result has been checked byte by
// byte.
#ifndef AFTERMATH_H_
#define AFTERMATH_H_

#include <errno.h>
#include <sys/wait.h>

#include "collective_calls.h"

// One number for all bytes of a buffer.
static uint64_t sum_of(const volatile char* bytes, long n) {
  uint64_t sum = 14695981039346656037u;
  for (long i = 0; i < n; i++) sum = (sum ^ (unsigned char)bytes[i]) * 1099511628211u;
  return sum;
}

static int exit_of_child(const Op* op, pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0) REQUIRE(op, errno == EINTR, "the child is lost");
  REQUIRE(op, WIFEXITED(status), "the child ended by signal %d", WTERMSIG(status));
  return WEXITSTATUS(status);
}

// What a child sees in these bytes, although the parent writes them at once.
static uint64_t seen_by_child(const Op* op, const char* bytes, long n) {
  int ends[2];
  REQUIRE(op, pipe(ends) == 0, "no pipe");
  const pid_t child = fork();
  REQUIRE(op, child >= 0, "no child");
  if (child == 0) {
    const uint64_t sum = sum_of(bytes, n);
    _exit(write(ends[1], &sum, sizeof sum) == (ssize_t)sizeof sum ? 0 : 1);
  }
  uint64_t sum = 0;
  close(ends[1]);
  ssize_t got;
  while ((got = read(ends[0], &sum, sizeof sum)) < 0 && errno == EINTR) {
  }
  close(ends[0]);
  REQUIRE(op, exit_of_child(op, child) == 0 && got == (ssize_t)sizeof sum,
          "the child could not say what it sees");
  return sum;
}

// What the kernel writes to a file from these bytes.
static uint64_t seen_by_kernel(const Op* op, const char* bytes, long n) {
  FILE* file = tmpfile();
  REQUIRE(op, file != NULL, "no file");
  const int number = fileno(file);
  for (long done = 0; done < n;) {
    const ssize_t wrote = pwrite(number, bytes + done, (size_t)(n - done), done);
    REQUIRE(op, wrote > 0, "the kernel refuses bytes from %ld on: errno %d", done, errno);
    done += wrote;
  }
  char* copy = (char*)need_memory((size_t)n);
  REQUIRE(op, pread(number, copy, (size_t)n, 0) == n, "the file is shorter");
  const uint64_t sum = sum_of(copy, n);
  free(copy);
  fclose(file);
  return sum;
}

typedef struct {
  const char* bytes;
  long n;
  uint64_t sum;
} Reader;

static void* read_all(void* argument) {
  Reader* reader = (Reader*)argument;
  reader->sum = sum_of(reader->bytes, reader->n);
  return NULL;
}

static uint64_t seen_by_thread(const Op* op, const char* bytes, long n) {
  pthread_t thread;
  Reader reader = {bytes, n, 0};
  REQUIRE(op, pthread_create(&thread, NULL, read_all, &reader) == 0, "no thread");
  pthread_join(thread, NULL);
  return reader.sum;
}

// From the end, a byte of each page first.
static void touch_backwards(const volatile char* bytes, long n) {
  char last = 0;
  for (long i = n - 1; i >= 0; i -= 4096) last ^= bytes[i];
  (void)last;
}

static void run_command(const Op* op) {
  const int status = system("exit 7");
  REQUIRE(op, status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 7,
          "system() returned %d, errno %d", status, errno);
}

static void read_command(const Op* op) {
  char line[32] = "";
  FILE* pipe = popen("echo overdrive", "r");
  REQUIRE(op, pipe != NULL, "popen() failed, errno %d", errno);
  REQUIRE(op, fgets(line, sizeof line, pipe) != NULL && strcmp(line, "overdrive\n") == 0,
          "a command said '%s'", line);
  REQUIRE(op, pclose(pipe) == 0, "pclose() failed");
}

// A child keeps its view of the parent's memory while the parent goes on writing to it.
static void fork_and_write(const Op* op) {
  enum { kBytes = 96 << 10 };
  char* block = (char*)need_memory(kBytes);
  memset(block, 0x11, kBytes);
  const pid_t child = fork();
  REQUIRE(op, child >= 0, "no child");
  if (child == 0) {
    const struct timespec moment = {0, 2000000};
    nanosleep(&moment, NULL);
    int same = 1;
    for (long i = 0; i < kBytes; i++) same &= block[i] == 0x11;
    memset(block, 0x33, kBytes);
    _exit(same ? 0 : 1);
  }
  memset(block, 0x22, kBytes);
  REQUIRE(op, exit_of_child(op, child) == 0, "a child has seen what its parent wrote later");
  for (long i = 0; i < kBytes; i++) REQUIRE(op, block[i] == 0x22, "a child has written to us");
  free(block);
}

static void do_process(Session* s, const Op* op) {
  (void)s;
  const char* how = arg_text(op, "how");
  if (strcmp(how, "system") == 0) {
    run_command(op);
  } else if (strcmp(how, "popen") == 0) {
    read_command(op);
  } else {
    fork_and_write(op);
  }
}

// Moves the buffer into a larger block, as a program does whose array grows.
static void move_result(const Op* op, Buffer* b) {
  if (b->block == NULL || b->mapped > 0) return;
  const long before = b->region - (char*)b->block, address = b->address - b->region;
  char* block = (char*)realloc(b->block, (size_t)(before + b->bytes * 2 + 70000));
  REQUIRE(op, block != NULL, "no memory to grow");
  b->block = block;
  b->region = block + before;
  b->address = b->region + address;
}

static void finish_late(Session* s, int count) {
  for (int i = 0; i < count; i++) {
    check_call(s, s->late[i]);
    call_free(s->late[i]);
  }
  s->late_count -= count;
  memmove(s->late, s->late + count, (size_t)s->late_count * sizeof s->late[0]);
}

// After a blocking collective: takes its result in the way that the program says.
static void finish_call(Session* s, Call* c) {
  const char* after = arg_text(c->op, "after");
  const Op* op = c->op;
  Buffer* b = c->recv.used ? &c->recv.buffer : &c->send.buffer;
  const int there = after != NULL && (c->recv.used || c->send.used);
  uint64_t seen = 0;
  int said = 0;
  if (after != NULL && strcmp(after, "late") == 0 && s->late_count < kMostLate) {
    s->late[s->late_count++] = c;
    return;
  }
  if (after != NULL && strcmp(after, "system") == 0) run_command(op);
  if (after != NULL && strcmp(after, "popen") == 0) read_command(op);
  if (there && strcmp(after, "fork") == 0) said = 1, seen = seen_by_child(op, b->region, b->bytes);
  if (there && strcmp(after, "file") == 0) said = 1, seen = seen_by_kernel(op, b->region, b->bytes);
  if (there && strcmp(after, "thread") == 0)
    said = 1, seen = seen_by_thread(op, b->region, b->bytes);
  if (there && strcmp(after, "backwards") == 0) touch_backwards(b->region, b->bytes);
  if (there && strcmp(after, "realloc") == 0) move_result(op, b);
  check_call(s, c);
  const uint64_t is = said ? sum_of(b->region, b->bytes) : 0;
  REQUIRE(op, seen == is, "who has read the result by `%s` has seen something else", after);
  call_free(c);
}

#endif  // AFTERMATH_H_
