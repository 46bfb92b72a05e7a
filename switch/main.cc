// overdrive-switch: forwards Ethernet frames between interfaces, with rates, latencies and faults.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "switch/config.h"
#include "switch/control_socket.h"
#include "switch/program.h"

namespace {

constexpr const char* kDefaultControl = "/run/overdrive-switch.sock";
constexpr int kWrongUsage = 2;

struct Options {
  std::string config;
  std::string control;
  std::vector<std::string> interfaces;
  std::string udp;
  std::string latency = "0";
  std::string memory;
  std::string spin;
  std::string priority;
  std::uint64_t seed = 1;
  std::vector<std::pair<std::string, std::string>> link;  // settings of all links, in file terms
  std::string status;
  bool reload = false;
  bool check = false;
};

// The configuration that the options describe: one switch with these interfaces.
od::fabric::Config from_options(const Options& options) {
  std::string text = "seed = " + std::to_string(options.seed) + "\n";
  if (!options.memory.empty()) text += "memory = '" + options.memory + "'\n";
  if (!options.spin.empty()) text += "spin = '" + options.spin + "'\n";
  if (!options.priority.empty()) text += "priority = '" + options.priority + "'\n";
  text += "[[switch]]\nname = 'switch'\nlatency = '" + options.latency + "'\n";
  if (!options.udp.empty()) {
    text += "compute = 'tor'\nudp = '" + options.udp + "'\n";
    for (const auto& [name, value] : options.link) text += "udp-" + name + " = '" + value + "'\n";
  }
  for (const std::string& interface : options.interfaces) {
    text += "[[switch.port]]\ninterface = '" + interface + "'\n";
    for (const auto& [name, value] : options.link) text += name + " = '" + value + "'\n";
  }
  return od::fabric::read_config_text(text, "command line");
}

int ask_running(const Options& options, const std::string& request) {
  const std::string path = options.control.empty() ? kDefaultControl : options.control;
  const std::string reply = od::fabric::ask(path, request);
  const bool failed = reply.starts_with("error: ") || reply.empty();
  std::fputs(reply.c_str(), failed ? stderr : stdout);
  return failed ? 1 : 0;
}

int run(const Options& options) {
  if (!options.status.empty()) {
    return ask_running(options,
                       options.status == "metrics" ? "metrics" : "status " + options.status);
  }
  if (options.reload) return ask_running(options, "reload");
  od::fabric::Config config =
      options.config.empty() ? from_options(options) : od::fabric::read_config_file(options.config);
  if (!options.control.empty()) config.control = options.control;
  if (config.control.empty()) config.control = kDefaultControl;
  if (options.check) return 0;
  od::fabric::Program program(std::move(config), options.config);
  std::puts("ready");
  std::fflush(stdout);
  program.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A switch of Ethernet frames with rates, latencies and faults."};
  app.set_version_flag("--version", "overdrive-switch " OVERDRIVE_VERSION);
  Options options;
  auto* const config = app.add_option("--config", options.config, "Read this TOML file");
  app.add_option("--control", options.control,
                 std::string("Unix socket for --status and --reload (") + kDefaultControl + ")");
  auto* const interfaces =
      app.add_option("--interface", options.interfaces, "A port on this interface; repeat it");
  auto* const udp = app.add_option("--udp", options.udp,
                                   "Compute for leaders that send to this address and port by UDP");
  app.add_option("--latency", options.latency, "Time that every frame takes, such as 20us");
  for (const auto& [name, help] :
       {std::pair{"rate", "Rate of all ports, such as 1gbit"},
        std::pair{"queue", "Bytes that wait at each port (1MiB)"},
        std::pair{"loss", "Share of frames that get lost, such as 1%"},
        std::pair{"receive-loss", "Share of arriving frames that get lost"},
        std::pair{"duplication", "Share of frames that are sent twice"},
        std::pair{"reordering", "Share of frames that others overtake"},
        std::pair{"reorder-delay", "Longest delay of such a frame (100us)"},
        std::pair{"corruption", "Share of frames of which one bit is changed"}}) {
    app.add_option_function<std::string>(
        std::string("--") + name,
        [&options, key = std::string(name)](const std::string& value) {
          options.link.emplace_back(key, value);
        },
        help);
  }
  app.add_option("--seed", options.seed, "Seed of all faults (1)");
  app.add_option("--memory", options.memory, "Most that frames may take (256MiB)");
  app.add_option("--spin", options.spin, "How long to poll for more before sleeping (0)");
  app.add_option("--priority", options.priority,
                 "realtime: before all ordinary processes, so that latencies are kept (normal)");
  // What the file says where there is one.
  std::vector<const CLI::Option*> file_instead;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (name != "--config" && name != "--control" && name != "--help" && name != "--version") {
      file_instead.push_back(option);
    }
  }
  auto* const status =
      app.add_option("--status", options.status, "Ask a running switch: text, json or metrics")
          ->expected(0, 1)
          ->default_str("text")
          ->check(CLI::IsMember({"text", "json", "metrics"}));
  auto* const reload =
      app.add_flag("--reload", options.reload, "Let a running switch read its file again");
  app.add_flag("--check", options.check, "Only judge the configuration");
  try {
    app.parse(argc, argv);
    if (status->count() > 0 && options.status.empty()) options.status = "text";
    if (config->count() + interfaces->count() + udp->count() + status->count() + reload->count() ==
        0) {
      throw CLI::RequiredError("--config, --interface, --udp, --status or --reload");
    }
    for (const CLI::Option* option : file_instead) {
      if (config->count() > 0 && option->count() > 0) {
        throw CLI::ExcludesError(option->get_name(), "--config");
      }
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  try {
    return run(options);
  } catch (const od::fabric::ConfigError& error) {
    std::fprintf(stderr, "overdrive-switch: error: %s\n", error.what());
    return kWrongUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "overdrive-switch: error: %s\n", error.what());
    return 1;
  }
}
