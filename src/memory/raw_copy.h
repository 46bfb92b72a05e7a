// Copying and comparing whole pages, whoever they belong to, without the C library: what a
// sanitizer puts in the place of its functions ends the program at the first byte between two
// variables.
#ifndef OVERDRIVE_MEMORY_RAW_COPY_H_
#define OVERDRIVE_MEMORY_RAW_COPY_H_

#include <stddef.h>
#include <stdint.h>

namespace od::memory {

inline void raw_copy(void* to, const void* from, size_t bytes) {
#if defined(__x86_64__)
  // As fast as any other way for pages.
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
  auto* out = static_cast<unsigned char*>(to);
  auto* in = static_cast<const unsigned char*>(from);
  using Word __attribute__((may_alias, aligned(1))) = uint64_t;
  for (; bytes >= sizeof(Word); bytes -= sizeof(Word), out += sizeof(Word), in += sizeof(Word)) {
    *reinterpret_cast<Word*>(out) = *reinterpret_cast<const Word*>(in);
    __asm__ volatile("" : : : "memory");  // or the compiler makes a call of it
  }
  for (; bytes > 0; --bytes) {
    *out++ = *in++;
    __asm__ volatile("" : : : "memory");
  }
#endif
}

// `bytes` a multiple of 32, `start` aligned to 8.
inline bool raw_is_zero(const void* start, size_t bytes) {
  using Word __attribute__((may_alias)) = uint64_t;
  const auto* word = static_cast<const Word*>(start);
  for (size_t i = 0; i < bytes / sizeof(Word); i += 4) {
    if ((word[i] | word[i + 1] | word[i + 2] | word[i + 3]) != 0) return false;
  }
  return true;
}

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_RAW_COPY_H_
