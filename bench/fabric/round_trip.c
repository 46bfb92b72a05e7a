/* Measures a network: round trips of small datagrams, and the rate of a one-way stream of them.
 *
 *   round_trip serve                     answers until killed; prints "ready"
 *   round_trip trips HOST COUNT [GAP_US] prints a JSON object with quantiles in microseconds
 *   round_trip flood HOST SECONDS BYTES  prints what was sent and what arrived, per second
 *
 * Both sides wait by polling and giving the processor away (sched_yield), as MPI libraries in a lab
 * do. With GAP_US the client sleeps between trips, so that everybody falls asleep meanwhile. A trip
 * that takes longer than a second counts as lost.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 5301, LARGEST = 65507, FLOOD = 1, REPORT = 2, TRIP = 3 };

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void die(const char* what) {
  perror(what);
  exit(1);
}

/* Waits up to `limit_us` for a datagram; returns its length or -1. */
static ssize_t poll_for(int s, void* data, size_t bytes, double limit_us,
                        struct sockaddr_in* from) {
  socklen_t length = sizeof *from;
  double until = limit_us > 0 ? now_us() + limit_us : 0;
  for (;;) {
    ssize_t got = recvfrom(s, data, bytes, MSG_DONTWAIT, (struct sockaddr*)from, &length);
    if (got >= 0) return got;
    if (errno != EAGAIN) die("recvfrom");
    if (until > 0 && now_us() > until) return -1;
    sched_yield();
  }
}

static void serve(int s) {
  static unsigned char data[LARGEST];
  uint64_t counts[2] = {0, 0};
  double idle_since = now_us();
  struct sockaddr_in from;
  puts("ready");
  fflush(stdout);
  for (;;) {
    ssize_t got = poll_for(s, data, sizeof data, 1000, &from);
    if (got < 1) {
      /* Nothing for a while: do not take a processor from what is measured next. */
      if (now_us() - idle_since > 2e6) usleep(2000);
      continue;
    }
    idle_since = now_us();
    if (data[0] == FLOOD) {
      ++counts[0];
      counts[1] += (uint64_t)got;
    } else if (data[0] == REPORT) {
      sendto(s, counts, sizeof counts, 0, (struct sockaddr*)&from, sizeof from);
      counts[0] = counts[1] = 0;
    } else {
      sendto(s, data, (size_t)got, 0, (struct sockaddr*)&from, sizeof from);
    }
  }
}

static int by_value(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void trips(int s, const struct sockaddr_in* to, long count, long gap_us) {
  double* times = malloc(sizeof *times * (size_t)count);
  long kept = 0, lost = 0;
  struct sockaddr_in from;
  for (long i = -100; i < count; ++i) {
    unsigned char data[64] = {TRIP};
    unsigned char back[64];
    memcpy(data + 8, &i, sizeof i);
    if (gap_us > 0) usleep((useconds_t)gap_us);
    double begin = now_us();
    if (sendto(s, data, sizeof data, 0, (const struct sockaddr*)to, sizeof *to) < 0) die("sendto");
    do {
      if (poll_for(s, back, sizeof back, 1e6, &from) < 0) break;
    } while (memcmp(back + 8, &i, sizeof i) != 0);
    double taken = now_us() - begin;
    if (memcmp(back + 8, &i, sizeof i) != 0) {
      ++lost;
    } else if (i >= 0) {
      times[kept++] = taken;
    }
  }
  if (kept == 0) {
    fputs("no trip came back\n", stderr);
    exit(1);
  }
  qsort(times, (size_t)kept, sizeof *times, by_value);
  printf(
      "{\"trips\": %ld, \"lost\": %ld, \"p5\": %.2f, \"median\": %.2f, \"p95\": %.2f, \"p99\": "
      "%.2f}\n",
      kept, lost, times[kept / 20], times[kept / 2], times[kept * 95 / 100],
      times[kept * 99 / 100]);
  free(times);
}

static void flood(int s, const struct sockaddr_in* to, double seconds, size_t bytes) {
  static unsigned char data[LARGEST];
  struct sockaddr_in from;
  uint64_t counts[2];
  unsigned char report = REPORT;
  sendto(s, &report, 1, 0, (const struct sockaddr*)to, sizeof *to);
  if (poll_for(s, counts, sizeof counts, 1e6, &from) < 0) die("no answer");
  data[0] = FLOOD;
  uint64_t sent = 0;
  double begin = now_us();
  while (now_us() - begin < seconds * 1e6) {
    if (sendto(s, data, bytes, 0, (const struct sockaddr*)to, sizeof *to) == (ssize_t)bytes) ++sent;
  }
  double taken = (now_us() - begin) * 1e-6;
  usleep(200000);
  sendto(s, &report, 1, 0, (const struct sockaddr*)to, sizeof *to);
  if (poll_for(s, counts, sizeof counts, 3e6, &from) < 0) die("no answer");
  printf("{\"sent_per_s\": %.0f, \"arrived_per_s\": %.0f, \"arrived_mbit\": %.1f}\n",
         (double)sent / taken, (double)counts[0] / taken, (double)counts[1] * 8e-6 / taken);
}

int main(int argc, char** argv) {
  int s = socket(AF_INET, SOCK_DGRAM, 0);
  int room = 4 << 20;
  setsockopt(s, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  if (argc == 2 && strcmp(argv[1], "serve") == 0) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (bind(s, (struct sockaddr*)&own, sizeof own) != 0) die("bind");
    serve(s);
  }
  if (argc < 4) {
    fputs("usage: round_trip serve | trips HOST COUNT [GAP_US] | flood HOST SECONDS BYTES\n",
          stderr);
    return 2;
  }
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM};
  struct addrinfo* found;
  if (getaddrinfo(argv[2], "5301", &hints, &found) != 0) die(argv[2]);
  struct sockaddr_in to = *(struct sockaddr_in*)found->ai_addr;
  freeaddrinfo(found);
  if (strcmp(argv[1], "trips") == 0) {
    trips(s, &to, atol(argv[3]), argc > 4 ? atol(argv[4]) : 0);
  } else if (argc > 4) {
    flood(s, &to, atof(argv[3]), (size_t)atol(argv[4]));
  }
  return 0;
}
