// CRC-32 by tables, eight bytes at a time, and by multiplication without carries, 64 at a time.
//
// A CRC is the remainder of the message as a polynomial. Its first 128 bits, multiplied by a power
// of x modulo the divisor, may be added to the bits that stand so much later: so a message is
// folded onto its end until 16 bytes are left, whose remainder the tables know.
#include "innetwork/crc32.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace od::innetwork {
namespace {

constexpr std::uint32_t kDivisor = 0xedb88320;  // reflected: the highest bit is x^0
constexpr std::size_t kTables = 8;

// tables[k][b] is the CRC of byte b followed by k zero bytes.
constexpr std::array<std::array<std::uint32_t, 256>, kTables> make_tables() {
  std::array<std::array<std::uint32_t, 256>, kTables> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kDivisor : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < kTables; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr auto kRemainders = make_tables();

std::uint32_t load(const std::uint8_t* at) {
  std::uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return std::endian::native == std::endian::little ? value : __builtin_bswap32(value);
}

// Without the inversions before and after.
std::uint32_t remainder(std::uint32_t crc, const std::uint8_t* at, std::size_t bytes) {
  for (; bytes >= 8; at += 8, bytes -= 8) {
    const std::uint32_t low = crc ^ load(at);
    const std::uint32_t high = load(at + 4);
    crc = kRemainders[7][low & 0xff] ^ kRemainders[6][low >> 8 & 0xff] ^
          kRemainders[5][low >> 16 & 0xff] ^ kRemainders[4][low >> 24] ^
          kRemainders[3][high & 0xff] ^ kRemainders[2][high >> 8 & 0xff] ^
          kRemainders[1][high >> 16 & 0xff] ^ kRemainders[0][high >> 24];
  }
  for (; bytes > 0; ++at, --bytes) crc = (crc >> 8) ^ kRemainders[0][(crc ^ *at) & 0xff];
  return crc;
}

#if defined(__x86_64__)

// x^exponent modulo the divisor, one place up: products of reflected numbers are one place down.
constexpr std::uint64_t power(int exponent) {
  std::uint32_t value = 0x80000000;
  for (int i = 0; i < exponent; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? kDivisor : 0);
  return std::uint64_t{value} << 1;
}
// What moves 128 bits on by so many: their first 64 have 64 places more to go than their last, and
// a factor of 32 bits stands for 32 more.
struct Distance {
  std::uint64_t first;
  std::uint64_t last;
};
constexpr Distance distance(int bits) { return {power(bits + 32), power(bits - 32)}; }
constexpr Distance kOne = distance(128);
constexpr Distance kFour = distance(512);

__attribute__((target("pclmul,sse4.1"))) inline __m128i load_128(const std::uint8_t* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

__attribute__((target("pclmul,sse4.1"))) inline __m128i moved_onto(__m128i value, __m128i factors,
                                                                   __m128i target) {
  return _mm_xor_si128(target, _mm_xor_si128(_mm_clmulepi64_si128(value, factors, 0x00),
                                             _mm_clmulepi64_si128(value, factors, 0x11)));
}

constexpr std::size_t kLeastFolded = 64;

// Of at least kLeastFolded bytes.
__attribute__((target("pclmul,sse4.1"))) std::uint32_t folded_remainder(std::uint32_t crc,
                                                                        const std::uint8_t* at,
                                                                        std::size_t bytes) {
  const auto factors = [](Distance by) { return std::array<std::uint64_t, 2>{by.first, by.last}; };
  const std::array<std::uint64_t, 2> one_words = factors(kOne);
  const std::array<std::uint64_t, 2> four_words = factors(kFour);
  const __m128i one = load_128(reinterpret_cast<const std::uint8_t*>(one_words.data()));
  const __m128i four = load_128(reinterpret_cast<const std::uint8_t*>(four_words.data()));
  __m128i a = _mm_xor_si128(load_128(at), _mm_cvtsi32_si128(static_cast<int>(crc)));
  __m128i b = load_128(at + 16);
  __m128i c = load_128(at + 32);
  __m128i d = load_128(at + 48);
  for (at += 64, bytes -= 64; bytes >= 64; at += 64, bytes -= 64) {
    a = moved_onto(a, four, load_128(at));
    b = moved_onto(b, four, load_128(at + 16));
    c = moved_onto(c, four, load_128(at + 32));
    d = moved_onto(d, four, load_128(at + 48));
  }
  a = moved_onto(moved_onto(moved_onto(a, one, b), one, c), one, d);
  for (; bytes >= 16; at += 16, bytes -= 16) a = moved_onto(a, one, load_128(at));
  std::array<std::uint8_t, 16> rest;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest.data()), a);
  return remainder(remainder(0, rest.data(), rest.size()), at, bytes);
}

bool can_fold() {
  static const bool able =
      __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return able;
}

#endif

}  // namespace

std::uint32_t crc32_by_tables(std::uint32_t crc, std::span<const std::uint8_t> bytes) {
  return ~remainder(~crc, bytes.data(), bytes.size());
}

std::uint32_t crc32(std::uint32_t crc, std::span<const std::uint8_t> bytes) {
#if defined(__x86_64__)
  if (bytes.size() >= kLeastFolded && can_fold()) {
    return ~folded_remainder(~crc, bytes.data(), bytes.size());
  }
#endif
  return crc32_by_tables(crc, bytes);
}

}  // namespace od::innetwork
