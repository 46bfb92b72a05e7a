// Durations, rates, sizes and shares as people write them: 20us, 1gbit, 4MiB, 1%.
#ifndef OVERDRIVE_SWITCH_UNITS_H_
#define OVERDRIVE_SWITCH_UNITS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace od::fabric {

// Nanoseconds of "20us", "1.5ms", "3s", "500ns", "0", "off"; none for anything else.
std::optional<std::uint64_t> parse_duration_ns(std::string_view text);
// Bits per second of "1gbit", "100mbit", "2.5gbit", "9600"; 0 (no limit) for "off".
std::optional<std::uint64_t> parse_rate_bits(std::string_view text);
// Bytes of "4MiB", "64K", "1g" (powers of 1024), "1500".
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// A share from 0 to 1 of "1%", "0.1 %", "off"; a number without a sign is per cent as well.
std::optional<double> parse_share(std::string_view text);

std::string duration_text(std::uint64_t ns);
std::string rate_text(std::uint64_t bits_per_second);

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_UNITS_H_
