// overdrive-switch-leaders: leaders of groups without an MPI, to test and to measure a switch.
//
//   overdrive-switch-leaders verify OPTIONS   random operations, each result compared bit by bit
//   overdrive-switch-leaders time OPTIONS     the time of allreduces of float32 sums, as JSON
//
// One process is started for each leader, on its host; they find each other by a file that all can
// map (`--meeting`), which also stands for the host MPI: by it they agree whether all have joined,
// and in `verify` that all have ended an operation in the same way.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include <arpa/inet.h>

#include "innetwork/endpoint.h"
#include "switch/aggregation.h"

namespace {

using od::innetwork::Endpoint;
using od::innetwork::LeaderSettings;
using od::innetwork::Operation;
using od::innetwork::Type;

constexpr std::size_t kMostLeaders = 256;

// The meeting file. All words are written by one process each, and read by all.
struct Meeting {
  std::atomic<std::uint32_t> arrived[kMostLeaders];
  std::atomic<std::uint32_t> said[kMostLeaders];
  std::atomic<std::uint64_t> address[kMostLeaders][2];
};

double now_us() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

struct Options {
  std::string meeting;
  std::string ip = "127.0.0.1";
  std::string to_switch;
  std::size_t index = 0;
  std::size_t leaders = 2;
  std::size_t tors = 1;
  std::uint32_t group = 1;
  std::uint64_t operations = 1000;
  std::size_t most_values = 500;
  std::size_t bytes = 256;
  std::uint64_t seed = 1;
  std::uint64_t spin_us = 1000;
  std::uint64_t pause_us = 0;
  bool may_fall_back = false;
  bool reliable = false;
};

class Everybody {
 public:
  Everybody(const Options& options) : options_(options) {
    const int file = open(options.meeting.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Meeting)) != 0) {
      throw std::runtime_error(options.meeting + ": " + std::strerror(errno));
    }
    void* const mapped =
        mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error(options.meeting + ": cannot be mapped");
    meeting_ = static_cast<Meeting*>(mapped);
  }

  // Waits for all; returns the smallest and the largest of what they say.
  std::pair<std::uint32_t, std::uint32_t> agree(std::uint32_t word) {
    ++round_;
    // Two words in turn, so that nobody overwrites what others still have to read: the word carries
    // the round in its upper half.
    meeting_->said[options_.index].store(round_ << 8 | word, std::memory_order_relaxed);
    meeting_->arrived[options_.index].store(round_, std::memory_order_release);
    std::pair<std::uint32_t, std::uint32_t> found{~0u, 0};
    for (std::size_t i = 0; i < options_.leaders; ++i) {
      // Pairs with the release above.
      while (meeting_->arrived[i].load(std::memory_order_acquire) < round_) sched_yield();
      const std::uint32_t said = meeting_->said[i].load(std::memory_order_relaxed) & 0xff;
      found = {std::min(found.first, said), std::max(found.second, said)};
    }
    // Nobody goes on before all have read.
    ++round_;
    meeting_->arrived[options_.index].store(round_, std::memory_order_release);
    for (std::size_t i = 0; i < options_.leaders; ++i) {
      while (meeting_->arrived[i].load(std::memory_order_acquire) < round_) sched_yield();
    }
    return found;
  }

  Meeting& meeting() { return *meeting_; }

 private:
  const Options& options_;
  Meeting* meeting_;
  std::uint32_t round_ = 0;
};

od::innetwork::Address parse_address(const std::string& text) {
  const std::size_t colon = text.find(':');
  in_addr address{};
  if (inet_pton(AF_INET, text.substr(0, colon).c_str(), &address) != 1) {
    throw std::runtime_error("'" + text + "' is no address");
  }
  const int port = colon == std::string::npos ? 4791 : std::stoi(text.substr(colon + 1));
  return {ntohl(address.s_addr), static_cast<std::uint16_t>(port)};
}

void fill(std::vector<std::uint8_t>& values, Type type, std::mt19937_64& random) {
  for (auto& byte : values) byte = static_cast<std::uint8_t>(random() & 0x3f);
  if (type != Type::float32) return;
  for (std::size_t i = 0; i + 4 <= values.size(); i += 4) {
    const float value = std::ldexp(static_cast<float>(random() % 65536) - 32768,
                                   static_cast<int>(random() % 40) - 20);
    std::memcpy(values.data() + i, &value, 4);
  }
}

int verify(const Options& options, Endpoint& endpoint, Everybody& everybody) {
  std::mt19937_64 random(options.seed);
  std::uint64_t by_switch = 0;
  std::uint64_t by_host = 0;
  for (std::uint64_t number = 0; number < options.operations; ++number) {
    Operation operation{};
    Type type{};
    do {
      operation = static_cast<Operation>(random() % od::innetwork::kOperations);
      type = static_cast<Type>(random() % od::innetwork::kTypes);
    } while (!od::fabric::supports(static_cast<std::uint8_t>(operation),
                                   static_cast<std::uint8_t>(type)));
    const std::size_t count =
        operation == Operation::barrier ? 0 : random() % (options.most_values + 1);
    const std::size_t bytes = count * od::innetwork::type_bytes(static_cast<std::uint8_t>(type));
    std::vector<std::vector<std::uint8_t>> in(options.leaders, std::vector<std::uint8_t>(bytes));
    for (auto& one : in) fill(one, type, random);
    std::vector<std::uint8_t> out(bytes, 0xee);
    const bool done =
        endpoint.allreduce(operation, type, count, in[options.index].data(), out.data());
    std::vector<std::vector<std::uint8_t>> partial;
    std::vector<const std::uint8_t*> sources;
    for (std::size_t tor = 0; tor < options.tors; ++tor) {
      sources.clear();
      for (std::size_t i = 0; i < options.leaders; ++i) {
        if (i * options.tors / options.leaders == tor) sources.push_back(in[i].data());
      }
      partial.emplace_back(bytes);
      od::fabric::combine(static_cast<std::uint8_t>(operation), static_cast<std::uint8_t>(type),
                          sources, count, partial.back().data());
    }
    sources.clear();
    for (const auto& one : partial) sources.push_back(one.data());
    std::vector<std::uint8_t> expected(bytes);
    od::fabric::combine(static_cast<std::uint8_t>(operation), static_cast<std::uint8_t>(type),
                        sources, count, expected.data());
    if (done && out != expected) {
      std::fprintf(stderr, "leader %zu: operation %llu is WRONG\n", options.index,
                   static_cast<unsigned long long>(number));
      return 1;
    }
    const auto [least, most] = everybody.agree(done ? 1 : 0);
    if (least != most) {
      std::fprintf(stderr, "leader %zu: operation %llu is SPLIT\n", options.index,
                   static_cast<unsigned long long>(number));
      return 1;
    }
    ++(done ? by_switch : by_host);
  }
  const od::innetwork::LeaderCounters counters = endpoint.counters();
  std::printf(
      "{\"by_switch\": %llu, \"by_host\": %llu, \"repeated\": %llu, \"unexpected\": %llu, "
      "\"settled_with_result\": %llu, \"cause\": \"%s\"}\n",
      static_cast<unsigned long long>(by_switch), static_cast<unsigned long long>(by_host),
      static_cast<unsigned long long>(counters.repeated),
      static_cast<unsigned long long>(counters.unexpected),
      static_cast<unsigned long long>(counters.settled_with_result),
      od::innetwork::cause_name(static_cast<std::uint8_t>(endpoint.cause())));
  return by_host == 0 || options.may_fall_back ? 0 : 1;
}

int measure(const Options& options, Endpoint& endpoint, Everybody& everybody) {
  std::vector<float> in(options.bytes / 4, 1.0f);
  std::vector<float> out(in.size());
  std::vector<double> times;
  everybody.agree(0);
  for (std::uint64_t i = 0; i < options.operations; ++i) {
    if (options.pause_us > 0) usleep(static_cast<useconds_t>(options.pause_us));
    const double begin = now_us();
    if (!endpoint.allreduce(Operation::sum, Type::float32, in.size(), in.data(), out.data())) {
      std::fprintf(stderr, "leader %zu: the switch has failed\n", options.index);
      return 1;
    }
    times.push_back(now_us() - begin);
    if (!out.empty() && out[0] != static_cast<float>(options.leaders)) return 1;
  }
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 10));
  std::ranges::sort(times);
  if (options.index == 0) {
    std::printf(
        "{\"bytes\": %zu, \"median_us\": %.2f, \"p5_us\": %.2f, \"p95_us\": %.2f, "
        "\"p99_us\": %.2f, \"repeated\": %llu}\n",
        options.bytes, times[times.size() / 2], times[times.size() / 20],
        times[times.size() * 95 / 100], times[times.size() * 99 / 100],
        static_cast<unsigned long long>(endpoint.counters().repeated));
  }
  everybody.agree(0);
  return 0;
}

int run(const Options& options, bool timing) {
  std::string error;
  const auto endpoint = Endpoint::open(parse_address(options.ip).ip, 0, error);
  if (endpoint == nullptr) throw std::runtime_error("no sockets: " + error);
  endpoint->set_spin_ns(options.spin_us * 1000);
  Everybody everybody(options);
  const auto pack = [](od::innetwork::Address a) { return std::uint64_t{a.ip} << 16 | a.port; };
  auto& own = everybody.meeting().address[options.index];
  own[0].store(pack(endpoint->peer().data), std::memory_order_relaxed);
  own[1].store(pack(endpoint->peer().service), std::memory_order_relaxed);
  everybody.agree(0);
  LeaderSettings settings;
  settings.group = options.group;
  settings.key = options.seed * 0x9e3779b97f4a7c15u + options.group;
  settings.index = static_cast<std::uint16_t>(options.index);
  settings.world_rank = static_cast<std::uint32_t>(options.index);
  settings.reliable = options.reliable;
  for (std::size_t i = 0; i < options.leaders; ++i) {
    const auto unpack = [&](int which) {
      const std::uint64_t word =
          everybody.meeting().address[i][which].load(std::memory_order_relaxed);
      return od::innetwork::Address{static_cast<std::uint32_t>(word >> 16),
                                    static_cast<std::uint16_t>(word)};
    };
    settings.leaders.push_back({unpack(0), unpack(1)});
  }
  settings.join_ns = 5'000'000'000;
  if (!options.to_switch.empty()) settings.to_switch = parse_address(options.to_switch);
  const bool joined = endpoint->join(settings);
  if (everybody.agree(joined ? 1 : 0).first == 0) {
    std::fprintf(stderr, "leader %zu: not all have joined (%s)\n", options.index,
                 od::innetwork::cause_name(static_cast<std::uint8_t>(endpoint->cause())));
    endpoint->leave();
    return 3;
  }
  const int status =
      timing ? measure(options, *endpoint, everybody) : verify(options, *endpoint, everybody);
  endpoint->leave();
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Leaders of groups without an MPI, to test and to measure a switch."};
  Options options;
  app.require_subcommand(1);
  app.fallthrough();
  auto* const timing = app.add_subcommand("time", "Measure allreduces of float32 sums");
  app.add_subcommand("verify", "Random operations, each result compared bit by bit");
  app.add_option("--meeting", options.meeting, "A file that all leaders map")->required();
  app.add_option("--ip", options.ip, "Own address (127.0.0.1)");
  app.add_option("--switch", options.to_switch, "Address of the switch (on the way, by itself)");
  app.add_option("--index", options.index, "Which leader this is, from 0");
  app.add_option("--leaders", options.leaders, "How many there are");
  app.add_option("--tors", options.tors, "Switches that share them (1)");
  app.add_option("--group", options.group, "Id of the group (1)");
  app.add_option("--operations", options.operations, "How many (1000)");
  app.add_option("--most-values", options.most_values, "verify: of an operation (500)");
  app.add_option("--bytes", options.bytes, "time: of an allreduce (256)");
  app.add_option("--seed", options.seed, "Of values and key (1)");
  app.add_option("--spin", options.spin_us, "Microseconds to poll before sleeping (1000)");
  app.add_option("--pause", options.pause_us, "time: microseconds between allreduces (0)");
  app.add_flag("--may-fall-back", options.may_fall_back, "verify: the host may compute, too");
  app.add_flag("--reliable", options.reliable, "RC packets instead of UD");
  CLI11_PARSE(app, argc, argv);
  if (options.leaders > kMostLeaders || options.index >= options.leaders) return 2;
  try {
    return run(options, timing->parsed());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "overdrive-switch-leaders: error: %s\n", error.what());
    return 1;
  }
}
