// New data for far viewers who read all of it: lent as a copy that was written past the caches.
//
// What an owner has just written lies in its own cache. A far viewer who reads it fetches line by
// line, each a wait of the program's loop, and the owner fetches them back when it writes them
// again. From a copy in memory the viewer's prefetcher brings the same lines in half the time, and
// the owner's block stays where it is written. Who reads little of a block is served better in
// place. So viewers are watched: before the owner writes again, it takes a few of its lines back,
// which takes long if a viewer has fetched them.
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "memory/copy.h"
#include "smpi/service.h"

namespace od::smpi {
namespace {

// Measured, a line 360 to 600 ns, writing, sending and reading it all, in place and by a copy: 8
// KiB 6.0 and 5.9 us, 32 KiB 16.8 and 11.9, 256 KiB 123 and 74. With nothing read the copy costs 30
// to 50 % more.
constexpr std::uint64_t kLeastCopiedBytes = 16u << 10;
constexpr std::uint64_t kMostCopiedBytes = 4u << 20;

constexpr unsigned kLooks = 4;
constexpr int kMostlyFetched = 3;
// Sends of new data between two looks at a block whose viewers were found to read all of it, which
// cost a send in place, and at one that they leave alone.
constexpr std::uint16_t kCopiesPerLook = 31;
constexpr std::uint16_t kLoansPerLook = 7;

// How long it takes this core to get a line for writing; what is there stays as it is.
std::uint64_t take_line_ns(std::byte* address) {
  auto& word = *reinterpret_cast<std::uint8_t*>(address);
  const std::uint64_t start = now_ns();
  // Relaxed: only the time matters. The block is the owner's and nobody looks at it any more.
  std::atomic_ref<std::uint8_t>(word).fetch_or(0, std::memory_order_relaxed);
  return now_ns() - start;
}

}  // namespace

bool Service::lend_copy(const Found& found, const void* address, std::uint64_t bytes,
                        std::uint32_t views, overdrive_smpi_place* place) {
  Block& record = *found.record;
  const double line_ns = far_line_ns_.load(std::memory_order_relaxed);
  if (line_ns <= 0 || record.sent != 0 || debug_ != nullptr) return false;
  if (views == 0 || bytes < kLeastCopiedBytes || bytes > kMostCopiedBytes) return false;
  if (record.until_look == 0) {
    watched_ = {&record, const_cast<std::byte*>(static_cast<const std::byte*>(address)), bytes};
    return false;
  }
  --record.until_look;
  if (record.read_whole == 0) return false;
  std::byte* const copy = alloc_locked(bytes, nullptr);
  if (copy == nullptr) return false;
  memory::copy_nontemporal(copy, address, bytes);
  record.sent = 1;
  end_unlent(found.block);
  const Found of_copy = {
      block_at(options_.arena, static_cast<std::uint64_t>(copy - options_.arena)), copy, member_};
  *place = place_of(of_copy, copy, bytes);
  note_lent(of_copy, views);
  ++counters_.smpi_by_copy;
  // Nobody owns it: the last viewer gives it back.
  of_copy.record->owner.store(kNobody, std::memory_order_relaxed);
  let_go(member_, place->block, *of_copy.record);
  return true;
}

void Service::look_at_viewers(Block& record) {
  if (watched_.record != &record) return;
  const Watched watched = watched_;
  watched_ = {};
  const double line_ns = far_line_ns_.load(std::memory_order_relaxed);
  if (line_ns <= 0) return;
  int fetched = 0;
  for (unsigned i = 0; i < kLooks; ++i) {
    std::byte* const at = watched.start + watched.bytes * (2 * i + 1) / (2 * kLooks);
    if (static_cast<double>(take_line_ns(at)) >= line_ns / 2) ++fetched;
  }
  record.read_whole = fetched >= kMostlyFetched ? 1 : 0;
  record.until_look = record.read_whole != 0 ? kCopiesPerLook : kLoansPerLook;
}

void Service::forget_viewers(Block& record) {
  record.read_whole = 0;
  record.until_look = 0;
  if (watched_.record == &record) watched_ = {};
}

}  // namespace od::smpi
