// Places are told apart by who calls, also through a function that all share.
#include "overlap/call_site.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace od::overlap {
namespace {

[[gnu::noinline]] AddressChain library_function(const CallSites& sites) {
  const AddressChain chain = sites.here();
  asm volatile("" ::: "memory");  // not the last thing: no jump instead of a call
  return chain;
}
[[gnu::noinline]] AddressChain wrapper(const CallSites& sites) {
  const AddressChain chain = library_function(sites);
  asm volatile("" ::: "memory");
  return chain;
}

TEST(CallSiteTest, TheSamePlaceIsTheSame) {
  CallSites sites;
  std::array<AddressChain, 2> chains;
  volatile std::size_t count = chains.size();  // not known to the compiler: one call in a loop
  for (std::size_t i = 0; i < count; ++i) chains[i] = wrapper(sites);
  EXPECT_EQ(chains[0], chains[1]);
  EXPECT_NE(chains[0].addresses[0], 0u);
  EXPECT_EQ(&sites.site(chains[0]), &sites.site(chains[1]));
}

TEST(CallSiteTest, CallersOfAWrapperAreToldApart) {
  CallSites sites;
  const AddressChain one = wrapper(sites);
  const AddressChain other = wrapper(sites);
  EXPECT_NE(one, other);
  EXPECT_NE(sites.site(one).id, sites.site(other).id);
  EXPECT_NE(sites.site(one).text, sites.site(other).text);
}

TEST(CallSiteTest, PlacesAreModuleAndOffset) {
  CallSites sites;
  const CallSite& site = sites.site(wrapper(sites));
  const std::string module = program_invocation_short_name;
  EXPECT_TRUE(site.text.starts_with(module + "+0x")) << site.text;
  EXPECT_NE(site.text.find(" < " + module + "+0x"), std::string::npos) << site.text;
}

TEST(CallSiteTest, LibrariesOnTheWayAreLeftOut) {
  EXPECT_TRUE(CallSites::is_between("libmpi_mpifh.so.40"));
  EXPECT_TRUE(CallSites::is_between("libmpifort.so.12"));
  EXPECT_TRUE(CallSites::is_between("liboverdrive-openmpi.so"));
  EXPECT_FALSE(CallSites::is_between("libmpi.so.40"));
  EXPECT_FALSE(CallSites::is_between("libfftw3_mpi.so.3"));
}

}  // namespace
}  // namespace od::overlap
