// A second mapping of the own reach file, through which memory is written that the program may not
// touch yet; and the service that closes the first one.
//
// Made when it is first asked for; never unmapped. It is left out of core files and of forked
// children. reach_offset() knows it, so peers find what an address in it means.
#ifndef OVERDRIVE_MEMORY_SHADOW_H_
#define OVERDRIVE_MEMORY_SHADOW_H_

#include <cstdint>

#include "memory/guard/guard_service.h"

namespace od::memory {

// The loader's; null, or one of another version: there is none. Process-wide by nature.
void use_guard_service(const void* service);
const GuardService* guard_service();

// Where else the range is mapped; null when it is not reachable or there is no second mapping.
char* shadow_of(const void* address, std::uint64_t bytes);

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_SHADOW_H_
