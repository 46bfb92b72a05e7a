// Guesses what has happened to a send buffer since it was last sent.
//
// What a direct read costs depends on it: it leaves the sender's lines shared, so that a program
// that rewrites its buffer pays for every line again, while one that sends the same data again pays
// nothing, and one that rewrites a part pays for that part (docs/design/direct-copies.md). Of a few
// words of each buffer some bits are remembered and compared; a wrong guess costs time and never
// changes data. Receives are told, because a message that brings the same data again rewrites a
// buffer without changing any word of it.
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
  fresh,      // never sent, or so long ago that it is not known, or rewritten since and in no cache
  rewritten,  // by the program, most of it
  partly,     // rewritten by the program, at most half of it
  unchanged,
  received,  // a message has been received into it, and perhaps the program has written it too
};

class SendHistory {
 public:
  // Looks at the buffer that is about to be sent, remembers it and returns the guess. Of at least 8
  // bytes.
  BufferUse look(const char* data, std::uint64_t bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    Set& set = sets_[set_of(address)];
    const std::uint64_t sample = sample_of(data, bytes);
    sent_units_ += static_cast<std::uint32_t>(bytes / kUnitBytes);
    Entry* found = nullptr;
    for (Entry& entry : set.entries) {
      if (entry.address == address && entry.bytes == bytes) found = &entry;
    }
    if (found == nullptr) {
      set.entries[set.oldest++ % kWays] = {
          .address = address, .bytes = bytes, .sample = sample, .sent_at = sent_units_};
      return BufferUse::fresh;
    }
    Entry& entry = *found;
    const std::uint32_t changed = changed_places(entry.sample ^ sample);
    entry.sample = sample;
    const std::uint32_t since = sent_units_ - entry.sent_at;
    entry.sent_at = sent_units_;
    if (entry.received) {
      entry.received = false;
      return BufferUse::received;
    }
    if (changed == 0) {
      if (entry.distrust == 0) return BufferUse::unchanged;
      --entry.distrust;
      return entry.change;
    }
    // A buffer that has changed once will change again, perhaps not in every step of the program,
    // or in a part of it where we do not look.
    entry.distrust = kDistrust;
    entry.change = changed > kPlaces / 2 ? BufferUse::rewritten : BufferUse::partly;
    const bool cold = entry.change == BufferUse::rewritten && since > kLongAgoUnits;
    return cold ? BufferUse::fresh : entry.change;
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
    std::uint8_t distrust = 0;  // unchanged sends that are still taken for such as the last change
    BufferUse change = BufferUse::rewritten;  // the last one
    bool received = false;                    // since the last send
    std::uint32_t sent_at = 0;                // sent_units_ then
  };
  // 128 buffers: a program that goes round more of them at once is not known to us; 4 KiB per rank.
  // Several to a set, because buffers often lie at equal distances.
  static constexpr std::size_t kWays = 4;
  static constexpr unsigned kSetBits = 5;
  struct Set {
    std::array<Entry, kWays> entries{};
    std::uint32_t oldest = 0;
  };
  static constexpr std::uint8_t kDistrust = 2;
  // What has been rewritten after so much else was sent is in no core's cache, as if it had never
  // been sent: more than the third level of most processors.
  static constexpr std::uint64_t kUnitBytes = 4096;
  static constexpr std::uint32_t kLongAgoUnits = (32u << 20) / kUnitBytes;
  // Places looked at, evenly spread. Each may cost the sender a cache miss (overlapping ones), so
  // they are few; a program that rewrites a buffer usually rewrites all of it.
  static constexpr std::uint64_t kPlaces = 6;
  // Remembered of each place: 1 of 1,024 changes of a word is not seen.
  static constexpr unsigned kPlaceBits = 10;
  static_assert(kPlaces * kPlaceBits <= 64);

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
      // Both halves count: a word that grows by one differs below, a double in its exponent above.
      word = (word ^ word >> 32) * 0x9e3779b97f4a7c15u;
      sample = sample << kPlaceBits | word >> (64 - kPlaceBits);
    }
    return sample;
  }
  // `difference`: of two samples.
  static std::uint32_t changed_places(std::uint64_t difference) {
    std::uint32_t changed = 0;
    for (; difference != 0; difference >>= kPlaceBits) {
      changed += (difference & ((std::uint64_t{1} << kPlaceBits) - 1)) != 0;
    }
    return changed;
  }

  std::array<Set, std::size_t{1} << kSetBits> sets_{};
  std::uint32_t sent_units_ = 0;  // of kUnitBytes, that have been looked at; comes round
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_SEND_HISTORY_H_
