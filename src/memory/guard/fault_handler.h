// The handler of SIGSEGV that lets threads wait at guarded pages, and the program's own behind it.
//
// Installed once, in MPI_Init after the installed MPI's own, when guards are wanted. From then on
// what the program says about SIGSEGV is kept here instead of in the kernel: faults that are not
// ours get the program's handler, or the default action with the same signal at the same
// instruction, so that core files and exit codes are what they would be.
#ifndef OVERDRIVE_MEMORY_GUARD_FAULT_HANDLER_H_
#define OVERDRIVE_MEMORY_GUARD_FAULT_HANDLER_H_

#include <signal.h>

namespace od::memory::guard {

using Sigaction = int (*)(int number, const struct sigaction* action, struct sigaction* before);

// `real` is the C library's function, or the next interposer's.
bool install_handler(Sigaction real);
bool handler_installed();
// What the program would have got from sigaction(SIGSEGV, action, before).
void program_action(const struct sigaction* action, struct sigaction* before);

}  // namespace od::memory::guard

#endif  // OVERDRIVE_MEMORY_GUARD_FAULT_HANDLER_H_
