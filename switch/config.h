// What the switch is to be: from a TOML file, or from the command line.
//
// A file in full (every setting is optional, except what names switches and ports):
//
//     control = "/run/overdrive-switch.sock"   # where --status and --reload find the switch
//     memory = "256MiB"                        # most that frames may take
//     spin = "0"                               # how long it polls for more before it sleeps
//     priority = "realtime"                    # before all ordinary processes; else "normal"
//     seed = 1                                 # of all faults
//     [[switch]]
//     name = "tor0"
//     latency = "20us"
//     compute = "tor"                          # sums what leaders at it send; "spine" what
//     switches
//                                              # below it send; "off"
//     udp = "10.0.0.5:4791"                    # leaders talk with the switch itself, by UDP
//     udp-loss = "1%"                          # and udp- before the other settings of a port
//     address = "198.18.0.1"                   # by which in-network packets name it
//     window = 16                              # packets of a group on the way, a power of two
//     payload = "1KiB"                         # most values in a packet
//     groups = 256                             # most groups at once
//     group-memory = "64MiB"                   # most that they may take
//     lease = "60s"                            # after which an unused group is freed
//       [[switch.port]]
//       interface = "eth1"
//       rate = "1gbit"
//       latency = "1us"                        # of this link, on the way out
//       loss = "1%"                            # and receive-loss, duplication, reordering,
//                                                # reorder-delay, corruption
//       queue = "1MiB"
//       spine = "198.18.1.1"                   # of a port to a spine in another program: its
//       address traffic = "in-network"                 # to all such spines but one; else "all"
//     [[link]]
//     between = ["tor0", "spine0"]             # and the settings of a port, in both directions
//     traffic = "in-network"                   # of a spine beside another one; else "all"
//
// A reload may change everything but names, ports, links, the control socket, the seed, the
// priority and what belongs to computing.
#ifndef OVERDRIVE_SWITCH_CONFIG_H_
#define OVERDRIVE_SWITCH_CONFIG_H_

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "switch/compute_settings.h"
#include "switch/link.h"

namespace od::fabric {

class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct PortConfig {
  std::string interface;
  std::uint32_t spine = 0;  // the address of the one behind it, which is another program's
  bool only_in_network = false;
  LinkSettings link;
};

struct SwitchConfig {
  std::string name;
  std::uint64_t latency_ns = 0;
  bool computes = false;
  ComputeSettings compute;
  std::string udp;
  LinkSettings udp_link;
  std::vector<PortConfig> ports;
};

struct LinkConfig {
  std::string one;
  std::string other;
  bool only_in_network = false;
  LinkSettings link;
};

struct Config {
  std::string control;
  std::uint64_t memory_bytes = 256 << 20;
  std::uint64_t spin_ns = 0;
  bool realtime = false;
  std::uint64_t seed = 1;
  std::vector<SwitchConfig> switches;
  std::vector<LinkConfig> links;
};

// Throws ConfigError with the file, the line and what is wrong.
Config read_config_file(const std::string& path);
Config read_config_text(std::string_view text, const std::string& name);
// Throws ConfigError if the parts do not fit together: names, interfaces, loops.
void check_config(const Config& config);
// What differs between two configurations that no reload can change; empty if nothing does.
std::string fixed_difference(const Config& running, const Config& wanted);

// Reads one of the values that ports and links have, as in the file: "loss", "1%". Throws
// ConfigError; false if there is no such setting.
bool set_link_value(LinkSettings& link, std::string_view key, std::string_view value);

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_CONFIG_H_
