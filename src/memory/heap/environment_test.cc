// The heap's own reading of the environment says the same as the settings table.
#include "memory/heap/environment.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/settings.h"

namespace od::memory::heap {
namespace {

HeapSettings read(const std::vector<std::string>& variables) {
  std::vector<const char*> environment;
  for (const std::string& variable : variables) environment.push_back(variable.c_str());
  environment.push_back(nullptr);
  return read_heap_settings(environment.data());
}

config::Settings load(const std::string& name, const std::string& value) {
  return config::load({{name, value}}, {}).settings;
}

TEST(HeapEnvironment, DefaultsAreThoseOfTheTable) {
  const HeapSettings mine = read({});
  const config::Settings table;
  EXPECT_EQ(mine.min_bytes, table.reach_min_bytes);
  EXPECT_EQ(mine.limit_bytes, table.reach_limit_bytes);
  EXPECT_EQ(mine.keep_bytes, table.reach_keep_bytes);
  EXPECT_EQ(static_cast<int>(mine.huge), static_cast<int>(table.reach_huge));
  EXPECT_FALSE(mine.off || mine.disabled);
  EXPECT_EQ(table.reach, config::ReachMode::kAll);
}

TEST(HeapEnvironment, SizesAreReadAlike) {
  for (const char* text :
       {"4096",  "64K", "64k",     "1M",    "1MiB",  "2MB",  "1G",
        "5000B", "",    "x",       "1X",    "-1",    "1.5M", "99999999999999999999",
        "0",     "100", "12 K",    "3 MiB", " 64K ", "0.5M", "64Ki",
        "64KB",  "1.M", "1.25 kib"}) {
    EXPECT_EQ(read({std::string("OVERDRIVE_REACH_MIN=") + text}).min_bytes,
              load("OVERDRIVE_REACH_MIN", text).reach_min_bytes)
        << text;
  }
}

TEST(HeapEnvironment, WordsAreReadAlike) {
  for (const char* text : {"off", "OFF", "heap", "static", "all", "nonsense", ""}) {
    const config::ReachMode mode = load("OVERDRIVE_REACH", text).reach;
    const HeapSettings mine = read({std::string("OVERDRIVE_REACH=") + text});
    EXPECT_EQ(mine.off, mode == config::ReachMode::kOff) << text;
    EXPECT_EQ(mine.disabled, mode == config::ReachMode::kOff || mode == config::ReachMode::kStatic)
        << text;
  }
  for (const char* text : {"auto", "off", "eager", "Eager", "nonsense"}) {
    EXPECT_EQ(static_cast<int>(read({std::string("OVERDRIVE_REACH_HUGE=") + text}).huge),
              static_cast<int>(load("OVERDRIVE_REACH_HUGE", text).reach_huge))
        << text;
  }
  for (const char* text : {"1", "true", "yes", "on", "0", "false", "no", ""}) {
    EXPECT_EQ(read({std::string("OVERDRIVE_DISABLE=") + text}).off,
              load("OVERDRIVE_DISABLE", text).disable)
        << text;
  }
}

TEST(HeapEnvironment, RanksAreRecognised) {
  const char* const shell[] = {"HOME=/", "PMI_RANKS=1", "XPMI_RANK=0", nullptr};
  EXPECT_FALSE(looks_like_rank(shell));
  EXPECT_FALSE(looks_like_rank(nullptr));
  for (const char* variable : {"PMI_RANK=0", "PMI_FD=5", "PMIX_RANK=3",
                               "OMPI_COMM_WORLD_RANK=", "SLURM_PROCID=0", "MPI_LOCALRANKID=1"}) {
    const char* const rank[] = {"HOME=/", variable, nullptr};
    EXPECT_TRUE(looks_like_rank(rank)) << variable;
  }
}

TEST(HeapEnvironment, ValgrindIsRecognised) {
  const char* const under[] = {
      "LD_PRELOAD=/usr/libexec/valgrind/vgpreload_core-amd64-linux.so:/x.so", nullptr};
  const char* const other[] = {"LD_PRELOAD=/home/valgrind/x.so", nullptr};
  EXPECT_TRUE(under_valgrind(under));
  EXPECT_FALSE(under_valgrind(other));
}

}  // namespace
}  // namespace od::memory::heap
