// The instruments of the benchmark programs that must not depend on any MPI library: clock,
// pinning, a start barrier, and the raw cache-line exchange that tells in which distance regime a
// sample was taken.
//
// All processes of a job map one small file. Rank 0 makes it with od_probe_create, passes the path
// on by whatever means it has, everybody calls od_probe_attach, and once all of them have done so
// rank 0 removes the name, so that nothing is left behind. The functions named "collective" are
// called by all ranks in the same order.
#ifndef OVERDRIVE_BENCH_P2P_PROBE_H_
#define OVERDRIVE_BENCH_P2P_PROBE_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Makes the shared file in a folder (NULL: TMPDIR or /tmp) and writes its path (at most `capacity`
// bytes); 0 on success.
int od_probe_create(const char* folder, char* path, size_t capacity);
// Maps the file made by od_probe_create; 0 on success. At most 256 ranks.
int od_probe_attach(const char* path, int rank, int ranks);
void od_probe_unlink(const char* path);

// For processes that share no memory: what the collective functions below do then. The exchange of
// cache lines is not possible and returns -1.
typedef struct {
  void (*sync)(void);
  double (*max)(double);
  double (*sum)(double);
  double (*share)(double);
} od_probe_messages;
void od_probe_use_messages(const od_probe_messages* messages, int rank, int ranks);

// One rank per core when there are enough cores (returns 1), otherwise leaves the placement to host
// and kernel (0).
int od_probe_pin(int rank, int ranks);

// Makes a niceness given to this process count against processes of other sessions too: with the
// kernel's autogroups it counts within a session only. Does nothing at niceness 0.
void od_probe_apply_niceness(void);

double od_probe_now_ns(void);
// How long this thread has wanted a core since it started and another had it, in ns; 0 where the
// kernel does not tell.
double od_probe_waited_ns(void);

// Collective. Barrier over the shared page; spins when each rank has its core and yields otherwise.
void od_probe_sync(void);
// From now on who has waited for some milliseconds in any of the collective functions calls `drive`
// until the others have come: what they wait for may stand in a queue of this rank's library, which
// nobody empties outside of MPI.
void od_probe_drive_when_late(void (*drive)(void));
// Collective. The same, calling `drive` all the time while others are missing.
void od_probe_sync_driving(void (*drive)(void));
// Collective. Everybody gets rank 0's value.
double od_probe_share(double value);
// Collective. Everybody gets the largest value.
double od_probe_max(double value);
// Collective. Everybody gets the sum of all values.
double od_probe_sum(double value);
// Processor time of this process, and time for which all cores of the machine together were busy
// since boot (0 where the kernel does not tell).
double od_probe_cpu_ns(void);
double od_probe_busy_ns(void);
// Collective. One-way exchange between ranks 0 and 1 in ns, median of several batches; the same
// value on all ranks, -1 with fewer than two ranks. `two_lines` gives each direction a line of its
// own, otherwise one line goes to and fro. Ranks above 1 sleep meanwhile, and unpinned ranks 0 and
// 1 are put on two cores for the time of the exchange.
double od_probe_exchange_ns(int two_lines);

#ifdef __cplusplus
}
#endif

#endif  // OVERDRIVE_BENCH_P2P_PROBE_H_
