// For tests of what a user-mode emulator cannot show: OD_NEEDS_KERNEL("why") skips a test in a
// build whose programs an emulator runs (CMAKE_CROSSCOMPILING_EMULATOR), and does nothing
// elsewhere.
#ifndef OVERDRIVE_BASE_TEST_EMULATOR_H_
#define OVERDRIVE_BASE_TEST_EMULATOR_H_

#include <gtest/gtest.h>

#if defined(OVERDRIVE_EMULATED)
#define OD_NEEDS_KERNEL(why) GTEST_SKIP() << "emulated: " << (why)
#else
#define OD_NEEDS_KERNEL(why) static_cast<void>(0)
#endif

#endif  // OVERDRIVE_BASE_TEST_EMULATOR_H_
