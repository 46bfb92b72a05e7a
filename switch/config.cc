// Reads and judges configurations.
#include "switch/config.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "switch/units.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace od::fabric {
namespace {

[[noreturn]] void fail(const std::string& name, const toml::source_region& where,
                       const std::string& what) {
  throw ConfigError(name + ":" + std::to_string(where.begin.line) + ": " + what);
}

std::string bad_value(std::string_view key, std::string_view value, std::string_view like) {
  return std::string(key) + ": '" + std::string(value) + "' is not possible; write " +
         std::string(like);
}

template <typename T>
T need(std::optional<T> value, std::string_view key, std::string_view text, std::string_view like) {
  if (!value) throw ConfigError(bad_value(key, text, like));
  return *value;
}

// One table of a file: every key has to be known, and all values are texts or numbers.
class Reader {
 public:
  Reader(const toml::table& table, const std::string& name) : table_(table), name_(name) {}

  // Calls `take(key, text)` for each plain value; false from it means that the key is unknown.
  template <typename Take>
  void values(const std::set<std::string_view>& others, Take&& take) const {
    for (const auto& [key, node] : table_) {
      const std::string_view word = key.str();
      if (others.contains(word)) continue;
      std::string text;
      if (const auto* string = node.as_string()) {
        text = string->get();
      } else if (const auto* integer = node.as_integer()) {
        text = std::to_string(integer->get());
      } else {
        fail(name_, node.source(), std::string(word) + " needs a text such as \"20us\"");
      }
      try {
        if (!take(word, text)) fail(name_, node.source(), "unknown setting " + std::string(word));
      } catch (const ConfigError& error) {
        if (std::string_view(error.what()).starts_with(name_)) throw;
        fail(name_, node.source(), error.what());
      }
    }
  }

  // Calls `take(Reader)` for each table of an array of tables.
  template <typename Take>
  void tables(std::string_view key, Take&& take) const {
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return;
    const toml::array* const array = node->as_array();
    if (array == nullptr || !array->is_homogeneous(toml::node_type::table)) {
      fail(name_, node->source(),
           "write [[" + std::string(key) + "]] for each " + std::string(key));
    }
    for (const toml::node& item : *array) take(Reader(*item.as_table(), name_));
  }

  const toml::table& table() const { return table_; }
  const std::string& name() const { return name_; }

 private:
  const toml::table& table_;
  const std::string& name_;
};

std::uint32_t read_address(std::string_view key, const std::string& text) {
  in_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) != 1 || address.s_addr == 0) {
    throw ConfigError(bad_value(key, text, "an address such as 198.18.0.1"));
  }
  return ntohl(address.s_addr);
}

bool read_traffic(std::string_view key, const std::string& text) {
  if (text != "all" && text != "in-network") {
    throw ConfigError(bad_value(key, text, "all or in-network"));
  }
  return text == "in-network";
}

bool set_compute_value(SwitchConfig& own, std::string_view key, const std::string& text) {
  ComputeSettings& compute = own.compute;
  if (key == "compute") {
    if (text != "tor" && text != "spine" && text != "off") {
      throw ConfigError(bad_value(key, text, "tor, spine or off"));
    }
    own.computes = text != "off";
    compute.spine = text == "spine";
  } else if (key == "address") {
    compute.address = read_address(key, text);
  } else if (key == "window") {
    const std::uint64_t window = need(parse_bytes(text), key, text, "16");
    if (!std::has_single_bit(window) || window > 1024) {
      throw ConfigError(bad_value(key, text, "a power of two up to 1024"));
    }
    compute.window = static_cast<std::uint32_t>(window);
  } else if (key == "payload") {
    const std::uint64_t bytes = need(parse_bytes(text), key, text, "1KiB");
    if (bytes < 64 || bytes > 8192) throw ConfigError(bad_value(key, text, "64 to 8192 bytes"));
    compute.payload_bytes = static_cast<std::uint32_t>(bytes);
  } else if (key == "groups") {
    compute.most_groups = need(parse_bytes(text), key, text, "256");
  } else if (key == "group-memory") {
    compute.memory_bytes = need(parse_bytes(text), key, text, "64MiB");
  } else if (key == "lease") {
    compute.lease_ns = need(parse_duration_ns(text), key, text, "60s");
  } else {
    return false;
  }
  return true;
}

SwitchConfig read_switch(const Reader& reader) {
  SwitchConfig found;
  reader.values({"port"}, [&](std::string_view key, const std::string& text) {
    if (key == "name") {
      found.name = text;
    } else if (key == "latency") {
      found.latency_ns = need(parse_duration_ns(text), key, text, "20us");
    } else if (key == "udp") {
      found.udp = text;
    } else if (key.starts_with("udp-")) {
      return set_link_value(found.udp_link, key.substr(4), text);
    } else {
      return set_compute_value(found, key, text);
    }
    return true;
  });
  if (found.name.empty()) fail(reader.name(), reader.table().source(), "a switch needs a name");
  reader.tables("port", [&](const Reader& inner) {
    PortConfig port;
    inner.values({}, [&](std::string_view key, const std::string& text) {
      if (key == "interface") {
        port.interface = text;
      } else if (key == "spine") {
        port.spine = read_address(key, text);
      } else if (key == "traffic") {
        port.only_in_network = read_traffic(key, text);
      } else {
        return set_link_value(port.link, key, text);
      }
      return true;
    });
    if (port.interface.empty()) {
      fail(inner.name(), inner.table().source(), "a port needs an interface");
    }
    found.ports.push_back(port);
  });
  return found;
}

LinkConfig read_link(const Reader& reader) {
  LinkConfig found;
  reader.values({"between"}, [&](std::string_view key, const std::string& text) {
    if (key != "traffic") return set_link_value(found.link, key, text);
    found.only_in_network = read_traffic(key, text);
    return true;
  });
  const toml::node* const between = reader.table().get("between");
  const toml::array* const ends = between == nullptr ? nullptr : between->as_array();
  if (ends == nullptr || ends->size() != 2 || !ends->is_homogeneous(toml::node_type::string)) {
    fail(reader.name(), reader.table().source(), "a link needs between = [\"one\", \"other\"]");
  }
  found.one = ends->get_as<std::string>(0)->get();
  found.other = ends->get_as<std::string>(1)->get();
  return found;
}

// Which switches can be reached over links decides whether frames could run in circles.
class Reachable {
 public:
  // False if the two were connected before.
  bool join(const std::string& one, const std::string& other) {
    const std::string a = root(one);
    const std::string b = root(other);
    if (a == b) return false;
    parent_[a] = b;
    return true;
  }

 private:
  std::string root(std::string name) {
    while (parent_.contains(name)) name = parent_[name];
    return name;
  }
  std::map<std::string, std::string> parent_;
};

// Nothing else but sums goes over such a link.
void check_beside_tree(const Config& config, const LinkConfig& link) {
  int spines = 0;
  int tors = 0;
  for (const SwitchConfig& own : config.switches) {
    if (!own.computes || (own.name != link.one && own.name != link.other)) continue;
    ++(own.compute.spine ? spines : tors);
  }
  if (spines != 1 || tors != 1) {
    throw ConfigError("the link of '" + link.one + "' and '" + link.other +
                      "' has traffic = \"in-network\": one of them needs compute = \"spine\" and "
                      "the other one compute = \"tor\"");
  }
}

// Spines in other programs, which this one knows only by what is said of its ports.
void check_spines_outside(const SwitchConfig& own) {
  std::set<std::uint32_t> spines;
  int in_tree = 0;
  for (const PortConfig& port : own.ports) {
    const std::string where = "port '" + port.interface + "' of '" + own.name + "': ";
    if (port.spine == 0) {
      if (port.only_in_network) {
        throw ConfigError(where + "traffic = \"in-network\" needs the address of the spine there");
      }
      continue;
    }
    if (!own.computes || own.compute.spine) {
      throw ConfigError(where + "a spine is above switches with compute = \"tor\" only");
    }
    if (port.spine == own.compute.address || !spines.insert(port.spine).second) {
      throw ConfigError(where + "the address of its spine is another switch's");
    }
    in_tree += port.only_in_network ? 0 : 1;
  }
  if (in_tree > 1) {
    throw ConfigError("'" + own.name +
                      "' has two spines for all traffic: frames would run in circles; all but one "
                      "need traffic = \"in-network\"");
  }
}

}  // namespace

bool set_link_value(LinkSettings& link, std::string_view key, std::string_view value) {
  if (key == "rate") {
    link.rate_bits = need(parse_rate_bits(value), key, value, "1gbit or off");
  } else if (key == "latency") {
    link.latency_ns = need(parse_duration_ns(value), key, value, "20us");
  } else if (key == "queue") {
    link.queue_bytes = need(parse_bytes(value), key, value, "1MiB");
  } else if (key == "loss") {
    link.loss = need(parse_share(value), key, value, "1%");
  } else if (key == "receive-loss") {
    link.receive_loss = need(parse_share(value), key, value, "1%");
  } else if (key == "duplication") {
    link.duplication = need(parse_share(value), key, value, "1%");
  } else if (key == "reordering") {
    link.reordering = need(parse_share(value), key, value, "1%");
  } else if (key == "corruption") {
    link.corruption = need(parse_share(value), key, value, "1%");
  } else if (key == "reorder-delay") {
    link.reorder_ns = need(parse_duration_ns(value), key, value, "100us");
  } else {
    return false;
  }
  return true;
}

Config read_config_text(std::string_view text, const std::string& name) {
  const toml::parse_result parsed = toml::parse(text, name);
  if (!parsed) {
    fail(name, parsed.error().source(), std::string(parsed.error().description()));
  }
  const Reader reader(parsed.table(), name);
  Config config;
  reader.values({"switch", "link"}, [&](std::string_view key, const std::string& value) {
    if (key == "control") {
      config.control = value;
    } else if (key == "memory") {
      config.memory_bytes = need(parse_bytes(value), key, value, "256MiB");
    } else if (key == "spin") {
      config.spin_ns = need(parse_duration_ns(value), key, value, "50us");
    } else if (key == "priority") {
      if (value != "realtime" && value != "normal") {
        throw ConfigError(bad_value(key, value, "realtime or normal"));
      }
      config.realtime = value == "realtime";
    } else if (key == "seed") {
      config.seed = need(parse_bytes(value), key, value, "a number");
    } else {
      return false;
    }
    return true;
  });
  reader.tables("switch",
                [&](const Reader& inner) { config.switches.push_back(read_switch(inner)); });
  reader.tables("link", [&](const Reader& inner) { config.links.push_back(read_link(inner)); });
  for (std::size_t i = 0; i < config.switches.size(); ++i) {
    // Of the range for measurements between networks (RFC 2544), where no host is.
    ComputeSettings& compute = config.switches[i].compute;
    if (compute.address == 0) compute.address = 0xc6120001 + static_cast<std::uint32_t>(i);
  }
  try {
    check_config(config);
  } catch (const ConfigError& error) {
    throw ConfigError(name + ": " + error.what());
  }
  return config;
}

Config read_config_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()).good()) throw ConfigError(path + ": cannot be read");
  return read_config_text(text.str(), path);
}

void check_config(const Config& config) {
  std::set<std::string> names;
  std::set<std::string> interfaces;
  for (const SwitchConfig& own : config.switches) {
    if (!names.insert(own.name).second) {
      throw ConfigError("two switches are called '" + own.name + "'");
    }
    for (const PortConfig& port : own.ports) {
      if (!interfaces.insert(port.interface).second) {
        throw ConfigError("interface '" + port.interface + "' is given to two ports");
      }
    }
    check_spines_outside(own);
  }
  Reachable reachable;
  for (const LinkConfig& link : config.links) {
    for (const std::string& end : {link.one, link.other}) {
      if (!names.contains(end)) throw ConfigError("a link names '" + end + "', which is no switch");
    }
    if (link.only_in_network) {
      check_beside_tree(config, link);
    } else if (!reachable.join(link.one, link.other)) {
      throw ConfigError("'" + link.one + "' and '" + link.other +
                        "' are connected in two ways: frames would run in circles; a second spine "
                        "has links with traffic = \"in-network\"");
    }
  }
  if (config.switches.empty()) throw ConfigError("there is no switch in it");
  constexpr std::uint64_t kLeastMemory = 1 << 20;
  if (config.memory_bytes < kLeastMemory) throw ConfigError("memory: at least 1MiB is needed");
}

std::string fixed_difference(const Config& running, const Config& wanted) {
  if (running.control != wanted.control) return "the control socket";
  if (running.seed != wanted.seed) return "the seed";
  if (running.realtime != wanted.realtime) return "the priority";
  if (!std::ranges::equal(running.switches, wanted.switches, [](const auto& a, const auto& b) {
        return a.name == b.name && a.computes == b.computes && a.compute == b.compute &&
               a.udp == b.udp &&
               std::ranges::equal(a.ports, b.ports, [](const auto& one, const auto& other) {
                 return one.interface == other.interface && one.spine == other.spine &&
                        one.only_in_network == other.only_in_network;
               });
      })) {
    return "the switches or their ports";
  }
  if (!std::ranges::equal(running.links, wanted.links, [](const auto& a, const auto& b) {
        return a.one == b.one && a.other == b.other && a.only_in_network == b.only_in_network;
      })) {
    return "the links";
  }
  return "";
}

}  // namespace od::fabric
