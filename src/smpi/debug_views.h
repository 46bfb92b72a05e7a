// The debug mode of SMPI: every view is a mapping of its own, and misuse is caught by the
// processor.
//
// A view is a second mapping of the pages that hold the message, read-only; when it is released,
// its addresses stay reserved without access until kKept younger ones have been released. While a
// block is lent its owner's own mapping is read-only as well. A handler of SIGSEGV tells what an
// address belonged to, writes one line, and lets the fault take its usual course; an owner whose
// block is not lent any more gets its access back instead. Blocks begin and end at pages in this
// mode, so nothing else is affected.
#ifndef OVERDRIVE_SMPI_DEBUG_VIEWS_H_
#define OVERDRIVE_SMPI_DEBUG_VIEWS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "smpi/block.h"

namespace od::smpi {

class DebugViews {
 public:
  explicit DebugViews(int world_rank);
  ~DebugViews();
  DebugViews(const DebugViews&) = delete;
  DebugViews& operator=(const DebugViews&) = delete;

  // Maps [address, address + bytes) once more; null when that is impossible. `owner`: world rank.
  const void* open(const std::byte* address, std::uint64_t bytes, int owner, const char* site,
                   std::uint64_t* view);
  void close(std::uint64_t view);
  void released_twice(std::uint64_t view);
  // Whole pages of a block in this process that the owner must not write now.
  void protect(std::byte* block, std::uint64_t bytes, Block* record, const char* site);
  void unprotect(std::byte* block);
  // Every block that has bytes there, also one that only this rank still knows.
  void unprotect_all(std::byte* start, std::uint64_t bytes);
  // One line for each view that is still open; their number.
  std::size_t report_open();

  // For the handler: whether the fault is settled and the program may go on.
  bool fault(const std::byte* address, bool write);

 private:
  static constexpr std::size_t kKept = 2048;

  struct View {
    std::byte* pages = nullptr;
    std::uint64_t page_bytes = 0;
    const std::byte* start = nullptr;
    std::uint64_t bytes = 0;
    int owner = -1;
    const char* site = nullptr;
    bool open = true;
  };
  struct Lent {
    std::uint64_t bytes = 0;
    Block* record = nullptr;
    const char* site = nullptr;
  };

  const int world_rank_;
  std::mutex mutex_;
  std::uint64_t next_view_ = 1;
  std::map<std::uint64_t, View> views_;
  std::map<const std::byte*, std::uint64_t> by_pages_;
  std::deque<std::uint64_t> released_;
  std::map<std::byte*, Lent> lent_;
};

}  // namespace od::smpi

#endif  // OVERDRIVE_SMPI_DEBUG_VIEWS_H_
