// Tests of the symbol lookup in loaded objects, with the C library as the object.
#include "elf_view.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string.h>

#include <string>

namespace od::loader {
namespace {

struct Search {
  const char* part_of_name;
  ElfView found;
  bool opened = false;
};

int Visit(dl_phdr_info* info, size_t, void* search_pointer) {
  auto& search = *static_cast<Search*>(search_pointer);
  if (strstr(info->dlpi_name, search.part_of_name) == nullptr) return 0;
  search.opened = search.found.Open(*info);
  return 1;
}

ElfView OpenLoaded(const char* part_of_name) {
  Search search{part_of_name, {}};
  EXPECT_NE(dl_iterate_phdr(&Visit, &search), 0) << part_of_name;
  EXPECT_TRUE(search.opened);
  return search.found;
}

TEST(ElfView, FindsWhatTheDynamicLinkerFinds) {
  const ElfView libc = OpenLoaded("libc.so.6");
  EXPECT_STREQ(libc.soname(), "libc.so.6");
  for (const char* name : {"printf", "getenv", "qsort", "environ", "fopen", "abort"}) {
    ASSERT_TRUE(libc.Defines(name)) << name;
    const auto address = reinterpret_cast<void*>(libc.base() + libc.Find(name)->st_value);
    Dl_info info;
    ASSERT_NE(dladdr(address, &info), 0) << name;
    EXPECT_NE(std::string(info.dli_fname).find("libc.so.6"), std::string::npos) << name;
    EXPECT_TRUE(libc.Contains(address)) << name;
  }
}

TEST(ElfView, AddressIsThatOfTheFunction) {
  const ElfView libc = OpenLoaded("libc.so.6");
  const auto address = reinterpret_cast<void*>(libc.base() + libc.Find("getpid")->st_value);
  void* expected = dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.2.5");
#if defined(__aarch64__)
  expected = dlvsym(RTLD_DEFAULT, "getpid", "GLIBC_2.17");
#endif
  EXPECT_EQ(address, expected);
}

// Functions with versions, functions that choose their code at run time, and data are for dlsym.
TEST(ElfView, OnlyPlainFunctionsHaveAnAddressWithoutDlsym) {
  const ElfView libc = OpenLoaded("libc.so.6");
  for (const char* name : {"getenv", "memcpy", "environ"}) {
    ASSERT_NE(libc.Find(name), nullptr) << name;
    EXPECT_EQ(libc.PlainFunction(libc.Find(name)), nullptr) << name;
  }
}

TEST(ElfView, DoesNotFindWhatIsNotThere) {
  const ElfView libc = OpenLoaded("libc.so.6");
  for (const char* name : {"", "p", "printg", "MPI_Send", "printf_", "no such name at all"}) {
    EXPECT_EQ(libc.Find(name), nullptr) << name;
    EXPECT_FALSE(libc.Defines(name)) << name;
  }
}

TEST(ElfView, UndefinedReferencesAreNotDefinitions) {
  // The C++ library refers to malloc, which it does not define.
  const ElfView cxx = OpenLoaded("libstdc++.so");
  EXPECT_FALSE(cxx.Defines("malloc"));
  EXPECT_TRUE(cxx.Defines("__cxa_throw"));
}

TEST(ElfView, KnowsItsAddresses) {
  const ElfView libc = OpenLoaded("libc.so.6");
  int local = 0;
  EXPECT_FALSE(libc.Contains(&local));
  EXPECT_FALSE(libc.Contains(nullptr));
}

TEST(ElfView, EveryObjectOfTheProcessCanBeOpened) {
  int count = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* count_pointer) {
        ElfView view;
        // Looking up must be safe in all of them, also in the one the kernel provides.
        if (view.Open(*info)) {
          EXPECT_FALSE(view.Defines("MPI_Nothing_of_the_kind")) << info->dlpi_name;
          ++*static_cast<int*>(count_pointer);
        }
        return 0;
      },
      &count);
  EXPECT_GE(count, 3);
}

}  // namespace
}  // namespace od::loader
