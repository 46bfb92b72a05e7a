// Functions of a library that is found at run time.
#ifndef OVERDRIVE_MEMORY_DEVICE_LIBRARY_H_
#define OVERDRIVE_MEMORY_DEVICE_LIBRARY_H_

#include <dlfcn.h>

namespace od::memory {

// Fills a function pointer; false if the library lacks the function.
template <typename Function>
bool look_up(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_DEVICE_LIBRARY_H_
