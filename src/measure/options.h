// The command line of overdrive-measure.
#ifndef OVERDRIVE_MEASURE_OPTIONS_H_
#define OVERDRIVE_MEASURE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"

namespace od::measure {

struct Options {
  enum class Test { kFingerprint, kPingPong, kSkew, kCache };
  Test test = Test::kFingerprint;
  int cpu_a = -1;  // -1: the first two processors this process may use
  int cpu_b = -1;
  std::vector<config::CopyPath> paths;
  std::vector<std::string> shapes = {"usual", "app"};
  std::vector<std::uint64_t> sizes_bytes;
  std::vector<std::int64_t> delays_ns = {0};  // skew; positive: the receiver is late
  std::vector<std::uint64_t> working_sets_bytes = {512u << 10};  // cache
  double seconds = 5;                                            // for all samples together
  std::uint64_t sample_ns = 500'000;  // aimed at; slow messages take longer
  std::uint64_t settle_ns = 0;        // pingpong: for `auto`, before the samples of a point
  std::uint64_t visits = 1;           // pingpong: samples of each path before the next point
};

// False with a reason when the arguments make no sense.
bool parse_options(int argc, char** argv, Options& options, std::string& reason);

const char* path_name(config::CopyPath path);

extern const char kUsage[];

}  // namespace od::measure

#endif  // OVERDRIVE_MEASURE_OPTIONS_H_
