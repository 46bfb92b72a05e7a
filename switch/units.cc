// Reads and writes durations, rates, sizes and shares.
#include "switch/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace od::fabric {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// A number and its unit, in small letters.
struct Quantity {
  double number = 0;
  std::string unit;
};

std::optional<Quantity> split(std::string_view text) {
  Quantity found;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found.number,
                                            std::chars_format::fixed);
  if (error != std::errc() || !(found.number >= 0)) return std::nullopt;
  for (const char* at = end; at != text.data() + text.size(); ++at) {
    if (*at == ' ' && found.unit.empty()) continue;
    found.unit += *at >= 'A' && *at <= 'Z' ? static_cast<char>(*at - 'A' + 'a') : *at;
  }
  return found;
}

template <std::size_t N>
std::optional<std::uint64_t> scaled(std::string_view text, const std::array<Unit, N>& units) {
  const std::optional<Quantity> found = split(text);
  if (!found) return std::nullopt;
  for (const Unit& unit : units) {
    if (found->unit != unit.name) continue;
    const double value = std::round(found->number * unit.factor);
    if (value > 9e18) return std::nullopt;
    return static_cast<std::uint64_t>(value);
  }
  return std::nullopt;
}

constexpr std::array<Unit, 4> kDurations{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
constexpr std::array<Unit, 9> kRates{{{"", 1},
                                      {"bit", 1},
                                      {"kbit", 1e3},
                                      {"k", 1e3},
                                      {"mbit", 1e6},
                                      {"m", 1e6},
                                      {"gbit", 1e9},
                                      {"g", 1e9},
                                      {"tbit", 1e12}}};
constexpr std::array<Unit, 8> kSizes{{{"", 1},
                                      {"b", 1},
                                      {"k", 1024},
                                      {"kib", 1024},
                                      {"m", 1 << 20},
                                      {"mib", 1 << 20},
                                      {"g", 1 << 30},
                                      {"gib", 1 << 30}}};

}  // namespace

std::optional<std::uint64_t> parse_duration_ns(std::string_view text) {
  if (text == "off" || text == "0") return 0;
  return scaled(text, kDurations);
}

std::optional<std::uint64_t> parse_rate_bits(std::string_view text) {
  if (text == "off") return 0;
  const std::optional<std::uint64_t> found = scaled(text, kRates);
  // Slower than a modem: certainly a unit was forgotten, and a queue would last for hours.
  if (found && *found != 0 && *found < 1000) return std::nullopt;
  return found;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) { return scaled(text, kSizes); }

std::optional<double> parse_share(std::string_view text) {
  if (text == "off") return 0.0;
  const std::optional<Quantity> found = split(text);
  if (!found || found->number > 100 || !(found->unit.empty() || found->unit == "%")) {
    return std::nullopt;
  }
  return found->number / 100;
}

std::string duration_text(std::uint64_t ns) {
  char text[32];
  if (ns >= 1'000'000'000) {
    std::snprintf(text, sizeof text, "%gs", static_cast<double>(ns) * 1e-9);
  } else if (ns >= 1'000'000) {
    std::snprintf(text, sizeof text, "%gms", static_cast<double>(ns) * 1e-6);
  } else if (ns >= 1000) {
    std::snprintf(text, sizeof text, "%gus", static_cast<double>(ns) * 1e-3);
  } else {
    std::snprintf(text, sizeof text, "%uns", static_cast<unsigned>(ns));
  }
  return text;
}

std::string rate_text(std::uint64_t bits_per_second) {
  if (bits_per_second == 0) return "unlimited";
  constexpr std::array<Unit, 3> kShown{{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}}};
  char text[32];
  for (const Unit& unit : kShown) {
    if (static_cast<double>(bits_per_second) < unit.factor) continue;
    std::snprintf(text, sizeof text, "%g%s", static_cast<double>(bits_per_second) / unit.factor,
                  unit.name.data());
    return text;
  }
  std::snprintf(text, sizeof text, "%llubit", static_cast<unsigned long long>(bits_per_second));
  return text;
}

}  // namespace od::fabric
