// Functions of the C library that the loader stands before: how each finds the one behind it.
//
// All are looked up together when the library is loaded: a look-up later on would leave its error
// text, or the absence of one, for the program's next dlerror().
#ifndef OVERDRIVE_SRC_FACE_LOADER_WRAPPED_H_
#define OVERDRIVE_SRC_FACE_LOADER_WRAPPED_H_

#include "memory/guard/guards.h"

namespace od::loader {

struct Wrapped {
  void** next;
  const char* name;
};

// For calls that come before this library's constructor has run.
void FindWrapped(const Wrapped& wrapped);

template <typename F>
inline F NextOf(F& next, const Wrapped& wrapped) {
  if (__builtin_expect(next == nullptr, 0)) FindWrapped(wrapped);
  return next;
}

// Whether this library's constructor has looked for all of them: what is missing then, is missing.
extern bool all_found;

// For functions that an older C library does not have: not looked up again at each call.
template <typename F>
inline F NextIfAny(F& next, const Wrapped& wrapped) {
  return __builtin_expect(all_found, 1) ? next : NextOf(next, wrapped);
}

// What the calling thread is about to hand to the kernel. As a number: the compiler takes a pointer
// to what read() is going to write for a use of uninitialised memory.
inline void Settle(uintptr_t start, uint64_t bytes) {
  if (memory::guard::is_active()) memory::guard::guards.settle_range(start, bytes);
}
inline void SettleAt(const void* start, uint64_t bytes) {
  Settle(reinterpret_cast<uintptr_t>(start), bytes);
}

}  // namespace od::loader

// The exported function `name` of type Result(parameters) is called od_wrapped_<name> here, because
// headers may define `name` as something else. Its body follows.
#define OD_WRAPPED_NEXT(Result, name, parameters)                           \
  namespace od::loader {                                                    \
  Result(*next_##name) parameters;                                          \
  __attribute__((section("od_wrapped"), used))                              \
  Wrapped wrapped_##name = {reinterpret_cast<void**>(&next_##name), #name}; \
  }
#define OD_WRAPPED(Result, name, parameters)          \
  OD_WRAPPED_NEXT(Result, name, parameters)           \
  extern "C" __attribute__((visibility("default")))   \
  Result od_wrapped_##name parameters __asm__(#name); \
  Result od_wrapped_##name parameters
#define OD_NEXT(name) od::loader::NextOf(od::loader::next_##name, od::loader::wrapped_##name)

#endif  // OVERDRIVE_SRC_FACE_LOADER_WRAPPED_H_
