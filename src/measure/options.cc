// Reads lists separated by commas, with the types of the settings for sizes, times and paths.
#include "measure/options.h"

#include <cstdlib>
#include <string_view>

#include "measure/pair.h"

namespace od::measure {
namespace {

using config::DurationType;
using config::SizeType;

// The engine is asked for 8 MiB at most by its own thresholds' tests; buffers are laid out for it.
constexpr std::uint64_t kMostBytes = 64u << 20;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    words.emplace_back(text.substr(0, comma));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return words;
}

bool read_sizes(std::string_view text, std::vector<std::uint64_t>& sizes, std::string& reason) {
  sizes.clear();
  for (const std::string& word : split(text)) {
    std::uint64_t bytes = 0;
    if (!SizeType::parse(word, bytes, reason)) return false;
    if (bytes < 8 || bytes > kMostBytes) {
      reason = "must be between 8 bytes and 64 MiB";
      return false;
    }
    sizes.push_back(bytes);
  }
  reason = "is empty";
  return !sizes.empty();
}

bool read_delays(std::string_view text, std::vector<std::int64_t>& delays, std::string& reason) {
  delays.clear();
  for (const std::string& word : split(text)) {
    const bool negative = word.front() == '-';
    std::uint64_t ns = 0;
    if (!DurationType::parse(std::string_view(word).substr(negative ? 1 : 0), ns, reason)) {
      return false;
    }
    const auto value = static_cast<std::int64_t>(ns);
    delays.push_back(negative ? -value : value);
  }
  reason = "is empty";
  return !delays.empty();
}

bool read_paths(std::string_view text, std::vector<config::CopyPath>& paths, std::string& reason) {
  paths.clear();
  for (const std::string& word : split(text)) {
    config::CopyPath path{};
    if (!config::PathChoice::parse(word, path, reason)) return false;
    paths.push_back(path);
  }
  reason = "is empty";
  return !paths.empty();
}

bool read_shapes(std::string_view text, std::vector<std::string>& shapes, std::string& reason) {
  shapes = split(text);
  for (const std::string& shape : shapes) {
    if (!known_shape(shape)) {
      reason = "is not a list of shapes";
      return false;
    }
  }
  reason = "is empty";
  return !shapes.empty();
}

bool read_cpus(const std::string& text, Options& options, std::string& reason) {
  const std::size_t comma = text.find(',');
  reason = "must be two different processors, such as 0,1";
  if (comma == std::string::npos) return false;
  options.cpu_a = std::atoi(text.c_str());
  options.cpu_b = std::atoi(text.c_str() + comma + 1);
  return options.cpu_a != options.cpu_b && options.cpu_a >= 0 && options.cpu_b >= 0;
}

bool read_test(std::string_view text, Options& options) {
  if (text == "--fingerprint") {
    options.test = Options::Test::kFingerprint;
  } else if (text == "pingpong") {
    options.test = Options::Test::kPingPong;
  } else if (text == "skew") {
    options.test = Options::Test::kSkew;
  } else if (text == "cache") {
    options.test = Options::Test::kCache;
  } else {
    return false;
  }
  return true;
}

bool read_option(std::string_view name, const std::string& value, Options& options,
                 std::string& reason) {
  if (name == "--cpus") return read_cpus(value, options, reason);
  if (name == "--paths") return read_paths(value, options.paths, reason);
  if (name == "--shapes") return read_shapes(value, options.shapes, reason);
  if (name == "--sizes") return read_sizes(value, options.sizes_bytes, reason);
  if (name == "--delays") return read_delays(value, options.delays_ns, reason);
  if (name == "--working-sets") return read_sizes(value, options.working_sets_bytes, reason);
  if (name == "--settle") return DurationType::parse(value, options.settle_ns, reason);
  if (name == "--visits") {
    options.visits = static_cast<std::uint64_t>(std::atoi(value.c_str()));
    reason = "must be between 1 and 100";
    return options.visits >= 1 && options.visits <= 100;
  }
  if (name == "--sample") return DurationType::parse(value, options.sample_ns, reason);
  if (name == "--seconds") {
    options.seconds = std::atof(value.c_str());
    reason = "must be a number of seconds above 0";
    return options.seconds > 0;
  }
  reason = "is unknown";
  return false;
}

}  // namespace

const char kUsage[] =
    "usage: overdrive-measure --fingerprint\n"
    "       overdrive-measure pingpong|skew|cache [OPTION VALUE]...\n"
    "Two processes exchange messages through the engine; one line per sample on standard output.\n"
    "  --cpus A,B            processors of the two (default: the first two)\n"
    "  --paths LIST          auto cells pull push cooperative kernel, separated by commas\n"
    "  --sizes LIST          bytes of the messages; K and M are understood\n"
    "  --shapes LIST         pingpong: usual rewrite app rotate fresh echo update accumulate\n"
    "                        partial many ring halo\n"
    "  --delays LIST         skew: 0, 10us, -1ms; positive: the receiver is late\n"
    "  --working-sets LIST   cache: bytes that the receiver works with\n"
    "  --seconds S           how long to measure\n"
    "  --sample TIME         length of one sample, such as 500us\n"
    "  --settle TIME         pingpong: how long `auto` may learn before the samples of a point\n"
    "  --visits N            pingpong: samples of each path before the next point\n";

const char* path_name(config::CopyPath path) {
  return config::ChoiceWords<config::CopyPath>::kWords[static_cast<int>(path)];
}

bool parse_options(int argc, char** argv, Options& options, std::string& reason) {
  options.paths = {config::CopyPath::kCells, config::CopyPath::kPull, config::CopyPath::kPush,
                   config::CopyPath::kCooperative, config::CopyPath::kKernel};
  for (std::uint64_t bytes = 1 << 10; bytes <= 8u << 20; bytes *= 2) {
    options.sizes_bytes.push_back(bytes);
  }
  if (argc < 2 || !read_test(argv[1], options)) {
    reason = "what to measure is not given";
    return false;
  }
  for (int i = 2; i < argc; i += 2) {
    if (i + 1 == argc) {
      reason = std::string(argv[i]) + " needs a value";
      return false;
    }
    if (!read_option(argv[i], argv[i + 1], options, reason)) {
      reason = std::string(argv[i]) + " " + argv[i + 1] + ": " + reason;
      return false;
    }
  }
  return true;
}

}  // namespace od::measure
