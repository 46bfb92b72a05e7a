// The loader's entry points and what they jump through; the code is in stubs.cc.
//
// For function number i there are three pieces of code, at od_stubs, each kEntryPointBytes long and
// i * kEntryPointBytes from the start, and likewise, with kStubBytes, at od_lazy and od_missing:
//   od_stubs    exported as MPI_X and PMPI_X; jumps to od_entry[i] and touches nothing else
//   od_lazy     in od_entry[i] at first; saves the argument registers, calls od_resolve(i)
//   od_missing  in od_entry[i] when the host has no such function; ends the process, saying so
#ifndef OVERDRIVE_SRC_FACE_LOADER_STUBS_H_
#define OVERDRIVE_SRC_FACE_LOADER_STUBS_H_

#include <stdint.h>

#include "loader_entries.inc"

namespace od::loader {

inline constexpr unsigned kStubBytes = 16;
#if defined(__aarch64__)
inline constexpr unsigned kEntryPointBytes = 32;
#else
inline constexpr unsigned kEntryPointBytes = 16;
#endif

// Where an interposed function is to go on, and with which first argument.
struct Continuation {
  void* target;
  void* first_argument;
};

}  // namespace od::loader

extern "C" {
#pragma GCC visibility push(hidden)
extern void* od_entry[OD_ENTRY_COUNT];
extern const unsigned char od_stubs[];
extern const unsigned char od_lazy[];
extern const unsigned char od_missing[];
// Returns its argument; the target of a Continuation that already has its answer.
void* od_answer(void* value);

// Called from the code above.
void* od_resolve(unsigned index);
[[noreturn]] void od_report_missing(unsigned index);
od::loader::Continuation od_before_dlsym(void* handle, const char* name, void* caller);
void* od_before_dlopen(const char* file, int flags);
#pragma GCC visibility pop
}

#endif  // OVERDRIVE_SRC_FACE_LOADER_STUBS_H_
