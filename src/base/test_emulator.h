// Whether a test runs under an emulator of user programs, which answers for the kernel.
#ifndef OVERDRIVE_BASE_TEST_EMULATOR_H_
#define OVERDRIVE_BASE_TEST_EMULATOR_H_

#include <cstddef>

#include "base/populate.h"

namespace od {

// Such an emulator (qemu 7.2) says yes to each advice about memory and to a limit of the address
// space, neither of which then holds, and keeps the signal masks of its threads for itself.
inline bool under_emulator() {
  alignas(4096) static std::byte page[4096];
  return !advice_is_judged(page);
}

}  // namespace od

#endif  // OVERDRIVE_BASE_TEST_EMULATOR_H_
