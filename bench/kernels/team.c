// Messages among the ranks of a kernel, each timed, and reproducible random data.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../p2p/probe.h"
#include "kernels.h"

enum { kTag = 11 };

void Require(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "od_kernels: wrong result: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

void* AllocateOrEnd(size_t bytes) {
  void* memory = calloc(1, bytes > 0 ? bytes : 1);
  if (memory == NULL) {
    fputs("od_kernels: out of memory\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return memory;
}

uint64_t Scrambled(uint64_t index) {
  // The finaliser of the generator SplitMix64.
  uint64_t z = (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double UnitRandom(uint64_t index) { return (double)(Scrambled(index) >> 11) * 0x1p-53; }

static void SendReceive(Team* team, const void* send, size_t send_bytes, int to, void* receive,
                        size_t receive_bytes, int from) {
  if (to == team->rank && from == team->rank) {
    memcpy(receive, send, send_bytes);
    return;
  }
  MPI_Sendrecv(send, (int)send_bytes, MPI_BYTE, to, kTag, receive, (int)receive_bytes, MPI_BYTE,
               from, kTag, team->comm, MPI_STATUS_IGNORE);
}

void Exchange(Team* team, const void* send, size_t send_bytes, int to, void* receive,
              size_t receive_bytes, int from) {
  double start = od_probe_now_ns();
  SendReceive(team, send, send_bytes, to, receive, receive_bytes, from);
  team->message_ns += od_probe_now_ns() - start;
}

void AllToAll(Team* team, const void* send, void* receive, size_t bytes) {
  double start = od_probe_now_ns();
  if (team->collectives) {
    MPI_Alltoall(send, (int)bytes, MPI_BYTE, receive, (int)bytes, MPI_BYTE, team->comm);
  } else {
    for (int distance = 0; distance < team->ranks; ++distance) {
      int to = (team->rank + distance) % team->ranks;
      int from = (team->rank + team->ranks - distance) % team->ranks;
      SendReceive(team, (const char*)send + (size_t)to * bytes, bytes, to,
                  (char*)receive + (size_t)from * bytes, bytes, from);
    }
  }
  team->message_ns += od_probe_now_ns() - start;
}

void AllToAllV(Team* team, const void* send, const int* send_bytes, const int* send_at,
               void* receive, const int* receive_bytes, const int* receive_at) {
  double start = od_probe_now_ns();
  if (team->collectives) {
    MPI_Alltoallv(send, send_bytes, send_at, MPI_BYTE, receive, receive_bytes, receive_at, MPI_BYTE,
                  team->comm);
  } else {
    for (int distance = 0; distance < team->ranks; ++distance) {
      int to = (team->rank + distance) % team->ranks;
      int from = (team->rank + team->ranks - distance) % team->ranks;
      SendReceive(team, (const char*)send + send_at[to], (size_t)send_bytes[to], to,
                  (char*)receive + receive_at[from], (size_t)receive_bytes[from], from);
    }
  }
  team->message_ns += od_probe_now_ns() - start;
}

void AllGather(Team* team, void* blocks, size_t bytes) {
  double start = od_probe_now_ns();
  int right = (team->rank + 1) % team->ranks, left = (team->rank + team->ranks - 1) % team->ranks;
  // Round the ring: in each step pass on the block that came last.
  for (int step = 0; step + 1 < team->ranks; ++step) {
    int mine = (team->rank + team->ranks - step) % team->ranks;
    int next = (mine + team->ranks - 1) % team->ranks;
    SendReceive(team, (char*)blocks + (size_t)mine * bytes, bytes, right,
                (char*)blocks + (size_t)next * bytes, bytes, left);
  }
  team->message_ns += od_probe_now_ns() - start;
}

double Sum(Team* team, double value) {
  double start = od_probe_now_ns();
  if ((team->ranks & (team->ranks - 1)) == 0) {
    for (int bit = 1; bit < team->ranks; bit *= 2) {
      double other;
      SendReceive(team, &value, sizeof(value), team->rank ^ bit, &other, sizeof(other),
                  team->rank ^ bit);
      value += other;
    }
  } else {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, team->comm);
  }
  team->message_ns += od_probe_now_ns() - start;
  return value;
}

void SumIntegers(Team* team, int* values, int count) {
  double start = od_probe_now_ns();
  MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT, MPI_SUM, team->comm);
  team->message_ns += od_probe_now_ns() - start;
}
