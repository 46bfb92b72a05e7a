// Checks that request handles and slot indexes are each other's inverse and never a host's handle.
#include "face/request_handles.h"

#include <gtest/gtest.h>

namespace od::face {
namespace {

TEST(RequestHandles, NothingIsOursBeforeTheReservation) {
  RequestHandles handles;
  EXPECT_FALSE(handles.is_ours(0));
  EXPECT_FALSE(handles.is_ours(RequestHandles::kFirstInteger));
  EXPECT_FALSE(handles.is_our_fortran(RequestHandles::kFirstFortran));
}

TEST(RequestHandles, IntegersAreNeverLiveHandlesOfTheMpichFamily) {
  RequestHandles handles;
  ASSERT_TRUE(handles.reserve(1 << 20, false));
  for (std::uint32_t index : {0u, 1u, 4711u, (1u << 20) - 1}) {
    const host::Handle handle = handles.handle_of(index);
    EXPECT_TRUE(handles.is_ours(handle));
    EXPECT_EQ(handles.index_of(handle), index);
    EXPECT_EQ(handle >> 30, 0u);            // kind: invalid
    EXPECT_EQ((handle >> 26) & 0xf, 0xbu);  // object: request
  }
  EXPECT_FALSE(handles.is_ours(0x2c000000));  // MPI_REQUEST_NULL
  EXPECT_FALSE(handles.is_ours(0x6c000000));
  EXPECT_FALSE(handles.is_ours(0xac000001));
  EXPECT_EQ(handles.handle_of(1 << 20), 0u);
}

TEST(RequestHandles, PointersCarryTheirFortranInteger) {
  RequestHandles handles;
  handles.set_fortran_words(26, 30);
  ASSERT_TRUE(handles.reserve(4096, true));
  for (std::uint32_t index : {0u, 63u, 64u, 1000u, 4095u}) {
    const host::Handle handle = handles.handle_of(index);
    ASSERT_TRUE(handles.is_ours(handle));
    EXPECT_EQ(handles.index_of(handle), index);
    const auto* words = reinterpret_cast<const std::int32_t*>(handle);
    EXPECT_EQ(words[26], handles.fortran_of(index));
    EXPECT_EQ(words[30], handles.fortran_of(index));
    EXPECT_TRUE(handles.is_our_fortran(words[26]));
  }
  EXPECT_EQ(handles.handle_of(4096), 0u);
  int on_stack = 0;
  EXPECT_FALSE(handles.is_ours(reinterpret_cast<host::Handle>(&on_stack)));
  EXPECT_FALSE(handles.is_our_fortran(-1));
  EXPECT_FALSE(handles.is_our_fortran(RequestHandles::kFirstFortran + 4096));
}

}  // namespace
}  // namespace od::face
