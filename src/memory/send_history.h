// Guesses what has happened to a send buffer since it was last sent.
//
// What a direct read costs depends on it: it leaves the sender's lines shared, so that a program
// that rewrites its buffer pays for every line again, while one that sends the same data again pays
// nothing (docs/design/direct-copies.md). A few words of each buffer are remembered and compared; a
// wrong guess costs time and never changes data. Receives are told, because a message that brings
// the same data again rewrites a buffer without changing any word of it.
//
// Used by one thread at a time (the rank's lock, when the program is multi-threaded).
#ifndef OVERDRIVE_MEMORY_SEND_HISTORY_H_
#define OVERDRIVE_MEMORY_SEND_HISTORY_H_

#include <array>
#include <cstdint>
#include <cstring>

namespace od::memory {

// What has happened to a buffer since it was last sent, as far as it is known or guessed.
enum class BufferUse : std::uint8_t {
  fresh,      // it is not known: never sent, or long ago
  rewritten,  // by the program
  unchanged,
  received,  // a message has been received into it, and perhaps the program has written it too
};

class SendHistory {
 public:
  // Looks at the buffer that is about to be sent, remembers it and returns the guess.
  BufferUse look(const char* data, std::uint64_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    Set& set = sets_[set_of(address)];
    const std::uint64_t sample = sample_of(data, bytes);
    Entry* found = nullptr;
    for (Entry& entry : set.entries) {
      if (entry.address == address && entry.bytes == bytes) found = &entry;
    }
    if (found == nullptr) {
      set.entries[set.oldest++ % kWays] = {address, bytes, sample, 0, false};
      return BufferUse::fresh;
    }
    Entry& entry = *found;
    const bool same = entry.sample == sample;
    entry.sample = sample;
    if (entry.received) {
      entry.received = false;
      return BufferUse::received;
    }
    if (same) {
      if (entry.distrust != 0) {
        --entry.distrust;
        return BufferUse::rewritten;
      }
      return BufferUse::unchanged;
    }
    // A buffer that has changed once will change again, perhaps not in every step of the program.
    entry.distrust = kDistrust;
    return BufferUse::rewritten;
  }

  // A message has been received into memory that begins here.
  void note_receive(const void* data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    for (Entry& entry : sets_[set_of(address)].entries) {
      if (entry.address == address) entry.received = true;
    }
  }

 private:
  struct Entry {
    std::uintptr_t address = 0;
    std::uint64_t bytes = 0;
    std::uint64_t sample = 0;
    std::uint32_t distrust = 0;  // unchanged sends that are still taken for rewritten ones
    bool received = false;       // since the last send
  };
  // 128 buffers: a program that goes round more of them at once is not known to us; 4 KiB per rank.
  // Several to a set, because buffers often lie at equal distances.
  static constexpr std::size_t kWays = 4;
  static constexpr unsigned kSetBits = 5;
  struct Set {
    std::array<Entry, kWays> entries{};
    std::uint32_t oldest = 0;
  };
  static constexpr std::uint32_t kDistrust = 2;
  // Places looked at, evenly spread. Each may cost the sender a cache miss (overlapping ones), so
  // they are few; a program that rewrites a buffer usually rewrites all of it.
  static constexpr std::uint64_t kPlaces = 6;

  static std::size_t set_of(std::uintptr_t address) {
    // The upper bits are folded in first: buffers often differ in these only.
    std::uint64_t mixed = address >> 6;
    mixed ^= mixed >> 9;
    return static_cast<std::size_t>(mixed * 0x9e3779b97f4a7c15u >> (64 - kSetBits));
  }

  static std::uint64_t sample_of(const char* data, std::uint64_t bytes) {
    std::uint64_t sample = 0;
    const std::uint64_t last = bytes - sizeof(std::uint64_t);
    for (std::uint64_t place = 0; place < kPlaces; ++place) {
      std::uint64_t word;
      std::memcpy(&word, data + last * place / (kPlaces - 1), sizeof word);
      sample = (sample ^ word) * 0x9e3779b97f4a7c15u;
      sample ^= sample >> 32;
    }
    return sample;
  }

  std::array<Set, std::size_t{1} << kSetBits> sets_{};
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_SEND_HISTORY_H_
