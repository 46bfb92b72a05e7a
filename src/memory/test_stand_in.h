// What tests over the stand-in for libxpmem share: it is loaded, and behaves as the module does.
#ifndef OVERDRIVE_MEMORY_TEST_STAND_IN_H_
#define OVERDRIVE_MEMORY_TEST_STAND_IN_H_

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/test_emulator.h"

namespace od::memory {

class StandInTest : public testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the stand-in's signals wait for system calls under this sanitizer";
#endif
    if (under_emulator()) {
      GTEST_SKIP() << "an emulator answers for the kernel: no memory is known to be attachable";
    }
    // From here on it is the libxpmem.so.0 of this process.
    ASSERT_NE(dlopen(XPMEM_STAND_IN_LIBRARY, RTLD_NOW), nullptr) << dlerror();
    unsetenv("XPMEM_STAND_IN");
  }
  void TearDown() override { unsetenv("XPMEM_STAND_IN"); }
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_TEST_STAND_IN_H_
