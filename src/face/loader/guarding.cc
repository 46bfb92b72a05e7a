// The service of guards, and how calls of MPI come by: see guarding.h.
#include "guarding.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "memory/guard/blocked_threads.h"
#include "memory/guard/fault_handler.h"
#include "memory/guard/guards.h"
#include "process.h"

namespace od::loader {
namespace {

using memory::GuardClient;
using memory::GuardPart;
using memory::GuardService;
using memory::guard::guards;

// Functions that neither touch a buffer, nor move messages, nor wait: calls of them may go on while
// something is under way.
bool IsHarmless(const char* name) {
  static constexpr const char* kHarmless[] = {
      "MPI_Wtime",     "MPI_Wtick",       "MPI_Comm_rank",          "MPI_Comm_size",
      "MPI_Aint_add",  "MPI_Aint_diff",   "MPI_Get_processor_name", "MPI_Initialized",
      "MPI_Finalized", "MPI_Get_address", "MPI_Type_size",          "MPI_Is_thread_main",
      "MPI_Get_count", "MPI_Query_thread"};
  for (const char* each : kHarmless) {
    if (strcmp(each, name) == 0) return true;
  }
  return false;
}

// Written before the first flight.
bool g_harmless[OD_ENTRY_COUNT];
unsigned g_abort;
bool g_smpi;
// Changed by the thread that makes the program's calls.
bool g_watched;

void SettleEverything() {
  if (memory::guard::is_active()) guards.settle_all();
}

bool Install(const GuardClient* client) {
  if (ResolvedEntries() == nullptr || g_smpi) return false;
  for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) g_harmless[i] = IsHarmless(Name(i));
  const int abort = IndexOf("MPI_Abort");
  g_abort = abort < 0 ? OD_ENTRY_COUNT + 1 : static_cast<unsigned>(abort);
  guards.set_client(client);
  if (!memory::guard::install_handler(RealSigaction)) return false;
  // Also for functions that fork by themselves, such as daemon() and forkpty(). These come first
  // before a fork: what is copied for a child has to be there.
  static bool registered;
  if (!registered) registered = pthread_atfork(SettleEverything, nullptr, ForgetFlight) == 0;
  return registered;
}

// Whether every thread can wait at a page. Asked once, when the first is about to be closed:
// threads that come later have the masks of those that are here.
bool AllCanWait() {
  static bool asked;
  static pid_t blocked;
  if (!asked) {
    asked = true;
    blocked = memory::guard::find_blocked_thread();
    char number[16];
    snprintf(number, sizeof number, "%d", static_cast<int>(blocked));
    const char* const parts[] = {"overlap: collectives complete before they return: thread ",
                                 number, " has SIGSEGV blocked", nullptr};
    if (blocked != 0 && Verbosity() >= 1) Say(parts);
  }
  return blocked == 0;
}

bool Begin(GuardPart* parts, uint32_t count, bool one_by_one) {
  if (g_smpi || (count != 0 && !AllCanWait())) return false;
  if (!guards.begin(parts, count, one_by_one)) return false;
  WatchCalls(ResolvedEntries(), true);
  return true;
}

void Arrived(GuardPart* part) { guards.arrived(part); }

// Calls stay watched: the next one takes the rank back from whoever has ended the flight, and so
// sees what that one has done.
void End(bool abandon) { guards.end(abandon); }

void ExemptThread() { guards.exempt_thread(); }
void Usage(memory::GuardUsage* usage) { guards.usage(usage); }

constexpr GuardService kService = {memory::kGuardServiceVersion,
                                   sizeof(GuardService),
                                   Install,
                                   Begin,
                                   Arrived,
                                   End,
                                   ExemptThread,
                                   Usage};

}  // namespace

const void* GuardingService() { return &kService; }

void WatchCalls(void* const* entries, bool watch) {
  __atomic_store_n(&g_watched, watch, __ATOMIC_RELAXED);
  for (unsigned i = 0; i < OD_ENTRY_COUNT; ++i) {
    if (g_harmless[i]) continue;
    void* const lazy = const_cast<unsigned char*>(od_lazy + i * kStubBytes);
    // Release: as when they were resolved; pairs with the stubs, which load before they jump.
    __atomic_store_n(&od_entry[i], watch ? lazy : entries[i], __ATOMIC_RELEASE);
  }
}

void SettleCall(unsigned index) {
  if (guards.is_exempt() || !__atomic_load_n(&g_watched, __ATOMIC_RELAXED)) return;
  guards.call_client(index == g_abort);
  WatchCalls(ResolvedEntries(), false);
}

void ForgetFlight() {
  if (ResolvedEntries() == nullptr || !__atomic_load_n(&g_watched, __ATOMIC_RELAXED)) return;
  guards.forget();
  WatchCalls(ResolvedEntries(), false);
}

void KeepFromFlying() {
  g_smpi = true;
  if (__atomic_load_n(&g_watched, __ATOMIC_RELAXED)) SettleCall(OD_ENTRY_COUNT);
}

}  // namespace od::loader
