// The rotating pool of payload cells that a sender writes and its receivers read.
//
// The pool is cut into chunks of equal size. Small messages are packed one after the other into the
// current chunk (`allocate`); streams take whole chunks (`allocate_chunk`). Chunks are used in
// rotation, so that a line is written again only after the rest of the pool has been: with a pool
// of about twice the second-level cache the line has then left the receiver's cache and the store
// does not have to fetch it back. A chunk is reused when everything in it has been read; a chunk
// that holds a message nobody has received yet is passed over.
//
// A program's first messages would pay for every page of the pool, and where pages exist, for
// lines that no cache has. So the rotation begins within a part of the pages that exist already
// (`begin_within`), takes one chunk more with each round, and more at once when all are in use or
// when others have been touched meanwhile.
//
// Release of a small cell: the descriptor names an entry of the `releases` bytes in the sender's
// region and the value to put there; the receiver stores it (release) after reading the payload,
// the sender looks (acquire) only when it wants the chunk again. The value alternates per use of an
// entry, so the sender never has to clear it. Everything else is private to the sender.
#ifndef OVERDRIVE_P2P_CELL_POOL_H_
#define OVERDRIVE_P2P_CELL_POOL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "p2p/backoff.h"
#include "p2p/fast_box.h"

namespace od::p2p {

class CellPool {
 public:
  static constexpr std::uint32_t kNoChunk = ~std::uint32_t{0};

  // `pool_offset` and `pool_bytes` are a part of the owner's region, `releases` an array of
  // `release_count` bytes in it. chunk_bytes divides into pool_bytes.
  CellPool(std::uint64_t pool_offset, std::uint64_t pool_bytes, std::uint64_t chunk_bytes,
           std::atomic<std::uint8_t>* releases, std::uint32_t release_count);

  // Room for `bytes` (at most chunk_bytes) in *cell; false when everything is in use.
  bool allocate(std::uint64_t bytes, CellDescriptor* cell);

  // A whole chunk: its number, or kNoChunk. `matched`: may take of the reserve.
  std::uint32_t allocate_chunk(bool matched);
  void free_chunk(std::uint32_t chunk) { drop_live(chunk); }
  // Where a chunk is in the region.
  std::uint64_t chunk_offset(std::uint32_t chunk) const {
    return pool_offset_ + chunk * chunk_bytes_;
  }

  std::uint64_t chunk_bytes() const { return chunk_bytes_; }
  // At the start, and when more pages exist: so many bytes of the pool can be used for nothing.
  void begin_within(std::uint64_t bytes);
  void extend_to(std::uint64_t bytes) { in_use_ = std::max(in_use_, chunks_in(bytes)); }
  std::uint32_t chunks_in_use() const { return in_use_; }
  // Whether chunks are being used again: from then on the receivers' caches know them.
  bool went_round() const { return went_round_; }
  std::uint32_t chunk_count() const { return static_cast<std::uint32_t>(live_.size()); }
  // Chunks with something unread in them, for statistics and tests.
  std::uint32_t busy_chunks() const;

 private:
  struct Pending {  // a small cell in use, in order of allocation
    std::uint16_t release_index;
    std::uint8_t value;
    std::uint32_t chunk;
  };

  std::uint32_t next_idle_chunk(std::uint32_t reserve);
  std::uint32_t chunks_in(std::uint64_t bytes) const {
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(bytes / chunk_bytes_, 1, live_.size()));
  }
  void drop_live(std::uint32_t chunk) {
    if (--live_[chunk] == 0 && chunk != current_) ++idle_;
  }
  // Looks at cells in use, oldest first: up to the first unread one, or all (not every time it is
  // asked, see Backoff).
  void reclaim();
  void reclaim_all();
  bool released(const Pending& pending) const;
  void retire(const Pending& pending);
  bool pending_empty() const { return pending_head_ == pending_tail_; }

  std::uint64_t pool_offset_;
  std::uint64_t chunk_bytes_;
  std::atomic<std::uint8_t>* releases_;
  std::vector<std::uint32_t> live_;          // per chunk: cells not yet read
  std::vector<std::uint8_t> next_value_;     // per release entry
  std::vector<std::uint16_t> free_entries_;  // ring of unused release entries
  std::uint32_t free_head_ = 0, free_tail_ = 0;
  std::vector<Pending> pending_;  // ring, power of two
  std::uint32_t pending_head_ = 0, pending_tail_ = 0;
  std::uint32_t mask_;
  Backoff search_;  // of thorough reclaims
  bool went_round_ = false;
  std::uint32_t in_use_ = 0;          // chunks that the rotation has come to: the first so many
  std::uint32_t rotation_ = 0;        // where the search for an idle chunk starts
  std::uint32_t idle_ = 0;            // chunks without anything unread, the current one excepted
  std::uint32_t reserve_ = 0;         // of these, kept for matched streams
  std::uint32_t current_ = kNoChunk;  // chunk that small cells are packed into
  std::uint64_t current_used_ = 0;
};

// The receiver's side of a small cell.
inline void release_cell(std::atomic<std::uint8_t>* releases, const CellDescriptor& cell) {
  // Release: the payload has been read; pairs with the acquire in CellPool::released.
  releases[cell.release_index].store(cell.release_value, std::memory_order_release);
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_CELL_POOL_H_
