// CRC-32 (IEEE 802.3), reflected, as the ICRC of packets uses it.
#ifndef OVERDRIVE_INNETWORK_CRC32_H_
#define OVERDRIVE_INNETWORK_CRC32_H_

#include <cstdint>
#include <span>

namespace od::innetwork {

// `crc` continues an earlier one, 0 begins.
std::uint32_t crc32(std::uint32_t crc, std::span<const std::uint8_t> bytes);
// The same by tables alone, which is what processors do that cannot multiply without carries.
std::uint32_t crc32_by_tables(std::uint32_t crc, std::span<const std::uint8_t> bytes);

}  // namespace od::innetwork

#endif  // OVERDRIVE_INNETWORK_CRC32_H_
