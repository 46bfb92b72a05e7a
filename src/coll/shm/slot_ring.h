// Room for payload in the own slot: reserved per exchange, given back in the order of reservation
// when all members have completed the exchange.
//
// Memory is used in rotation, so that a line is written again only after it has left the readers'
// caches (docs/design/copy-paths.md). Only a part of the ring rotates at first; it grows as more
// passes through it, so that a communicator that says little touches few pages.
#ifndef OVERDRIVE_COLL_SHM_SLOT_RING_H_
#define OVERDRIVE_COLL_SHM_SLOT_RING_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/round.h"
#include "node/region_layout.h"

namespace od::coll::shm {

class SlotRing {
 public:
  static constexpr std::uint64_t kNoRoom = ~std::uint64_t{0};

  explicit SlotRing(std::uint64_t bytes)
      : bytes_(bytes), window_(std::min(bytes, kFirstWindowBytes)) {}

  std::uint64_t bytes() const { return bytes_; }
  // Only what lies below is used so far; grows.
  std::uint64_t window() const { return window_; }

  // Offset in the ring of `bytes` in one piece, kept until `release` is called with a number
  // greater than `exchange`. kNoRoom: try again when more exchanges are complete.
  std::uint64_t reserve(std::uint64_t bytes, std::uint64_t exchange) {
    bytes = round_up(bytes, kFalseSharingBytes);
    if (used_ == kPieces) return kNoRoom;
    while (bytes > window_ && window_ < bytes_) window_ = std::min(bytes_, 2 * window_);
    const std::uint64_t tail = used_ == 0 ? head_ : pieces_[first_].at;
    std::uint64_t at = head_;
    if (used_ == 0 || head_ > tail) {
      if (at + bytes > window_) {
        // Grows where it would begin anew.
        if (window_ < std::min(bytes_, std::max(kWindowBytes, kExchanges * bytes)) &&
            passed_ >= kPassesBeforeGrowth * window_) {
          window_ = std::min(bytes_, 2 * window_);
        }
        if (at + bytes > window_) {
          if (used_ != 0 && bytes > tail) return kNoRoom;
          at = 0;
          if (bytes > window_) return kNoRoom;
        }
      }
    } else if (at + bytes > tail) {
      return kNoRoom;
    }
    pieces_[(first_ + used_++) % kPieces] = {at, exchange};
    head_ = at + bytes;
    passed_ += bytes;
    return at;
  }

  // The exchange whose piece has to be released next, when there was no room.
  std::uint64_t oldest() const { return pieces_[first_].exchange; }

  // Exchanges below `completed` are over for all members.
  void release(std::uint64_t completed) {
    while (used_ != 0 && pieces_[first_].exchange < completed) {
      first_ = (first_ + 1) % kPieces;
      --used_;
    }
  }

 private:
  struct Piece {
    std::uint64_t at;
    std::uint64_t exchange;
  };
  static constexpr std::uint32_t kPieces = 32;
  static constexpr std::uint64_t kFirstWindowBytes = 64 << 10;
  // No more rotates unless so many exchanges would not fit. A program that computes in between, or
  // others on the node, push out of the caches what is used rarely: far, with untouched buffers of
  // 10 KiB, a reduce of a pair takes 1.50 us in a window of 512 KiB and 1.88 in 4 MiB, with 48 KiB
  // that are rewritten 5.0 and 5.6. Roots that show long blocks need the room to run ahead.
  static constexpr std::uint64_t kWindowBytes = 512 << 10;
  static constexpr std::uint64_t kExchanges = 8;
  static constexpr std::uint64_t kPassesBeforeGrowth = 4;

  std::uint64_t bytes_;
  std::uint64_t window_;
  std::uint64_t head_ = 0;
  std::uint64_t passed_ = 0;
  std::array<Piece, kPieces> pieces_;
  std::uint32_t first_ = 0;
  std::uint32_t used_ = 0;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_SLOT_RING_H_
