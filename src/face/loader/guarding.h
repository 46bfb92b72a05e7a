// The loader's side of guards: the service for a face, and calls of MPI that settle what is under
// way before they begin.
//
// While a flight is under way the entries of MPI functions lead to the code that once resolved them
// (od_lazy), so calls come by without a check in the entry points; functions that touch neither
// memory nor messages are left as they are.
#ifndef OVERDRIVE_SRC_FACE_LOADER_GUARDING_H_
#define OVERDRIVE_SRC_FACE_LOADER_GUARDING_H_

#include <signal.h>

namespace od::loader {

// The od::memory::GuardService of this process, for the face.
const void* GuardingService();

// Sends calls by SettleCall(), or not any more; `entries` are where they lead otherwise.
void WatchCalls(void* const* entries, bool watch);
// The entries as they were resolved; null before that.
void* const* ResolvedEntries();
// Called for function `index`, whose entry has led here.
void SettleCall(unsigned index);

// In a forked child: nothing is under way there.
void ForgetFlight();

// The C library's sigaction, or the next interposer's.
int RealSigaction(int number, const struct sigaction* action, struct sigaction* before);

// A program has asked for the SMPI interface, whose calls do not come by: no flight any more.
void KeepFromFlying();

}  // namespace od::loader

#endif  // OVERDRIVE_SRC_FACE_LOADER_GUARDING_H_
