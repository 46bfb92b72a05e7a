// Numbers as they are on the wire: big endian, of one to eight bytes.
//
// They are most of the work of taking a packet apart, so they move whole words.
#ifndef OVERDRIVE_INNETWORK_WIRE_NUMBERS_H_
#define OVERDRIVE_INNETWORK_WIRE_NUMBERS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace od::innetwork {

inline std::uint64_t wire_order(std::uint64_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap64(value) : value;
}

// Higher bits of the value than fit are left out.
inline void put(std::uint8_t* at, std::uint64_t value, std::size_t bytes) {
  value = wire_order(value << (64 - 8 * bytes));
  std::memcpy(at, &value, bytes);
}

// Of at most four bytes.
inline std::uint32_t get(const std::uint8_t* at, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return static_cast<std::uint32_t>(wire_order(value) >> (64 - 8 * bytes));
}

}  // namespace od::innetwork

#endif  // OVERDRIVE_INNETWORK_WIRE_NUMBERS_H_
