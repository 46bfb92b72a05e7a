// New data for viewers who read all of it: lent as a copy.
//
// What an owner has just written lies in its own cache. A viewer who reads it fetches line by line,
// each a wait of the program's loop, and the owner fetches them back when it writes them again. So
// it lends a copy, and the owner's block stays where it is written.
//
// A copy for one viewer is that viewer's own, and is kept when the view ends: the next copy of this
// rank goes into it, whose lines are in its cache. Ranks that answer each other have such a block
// between them, as messages have a frame. Where none is kept, far ones get a copy that was written
// past the caches, which the viewer's prefetcher brings in half the time.
//
// Who reads little of a block is served better in place. So far viewers are watched: before the
// owner writes again, it takes a few of its lines back, which takes long if a viewer has fetched
// them. What that does not tell, near ones above all, whole cycles of the program do
// (copy_choice.h).
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "base/clock.h"
#include "memory/copy.h"
#include "smpi/service.h"

namespace od::smpi {
namespace {

// What is longer is read where it lies: the caches hold neither it nor its copy.
constexpr std::uint64_t kMostCopiedBytes = 4u << 20;

constexpr unsigned kLooks = 8;
// A copy pays from a quarter on. Measured, lines at 250 ns, one direction of a round trip with a
// tenth read, then all, in place and as a copy: 32 KiB 3.9 and 4.0 us, 18 and 4.9; 256 KiB 25.5
// and 24.6, 124 and 25; 2 MiB 158 and 173, 684 and 232.
constexpr int kMuchFetched = 2;
constexpr int kMostlyFetched = 6;
// Of more than a core's caches hold, lines that nobody has fetched may take as long. Of eight
// counted as fetched, 1 to 4 MiB: nothing read 0, in one of ten looks 1 to 4, of a hundred 5; a
// tenth 1, in one of five 2 to 5; all 4 to 8, in three of four 6 and more.
constexpr int kFetchedOfMuch = 5;
// Sends of new data between two looks at a far block whose viewers were found to read it, which
// cost a send in place, at one that they leave alone, and at a near one: only to see whether the
// cores are still near.
constexpr std::uint16_t kCopiesPerLook = 127;
constexpr std::uint16_t kLongCopiesPerLook = 31;
constexpr std::uint16_t kLoansPerLook = 7;

// Copies of so few bytes are made without knowing whether they will be read: for near viewers, and
// for far ones, whose data goes with its message where no block has come in. Longer far data is
// copied past the caches then.
constexpr std::uint64_t kMostUnaskedBytes = 1024;
constexpr std::uint64_t kMostShortBytes = 4096;
// Where no block has come in, one of so many sends goes in a new one: between ranks that answer
// each other that one is enough.
constexpr std::uint32_t kSendsPerTry = 32;
// Near, a line that nobody has fetched may take as long as one from the other core once it has left
// the caches of this one.
constexpr std::uint64_t kMostLearntBytes = 512u << 10;
// So much longer than one in this core's cache takes a line that another one has fetched. Measured
// with a clock of 10 ns: lines at 240 ns 100, at 60 ns 10, which is too little to tell.
constexpr double kFetchedNs = 25;

// Gets a line for writing; what is there stays as it is.
void take_line(std::byte* address) {
  auto& word = *reinterpret_cast<std::uint8_t*>(address);
  // Relaxed: only the time matters. The block is the owner's and nobody looks at it any more.
  std::atomic_ref<std::uint8_t>(word).fetch_or(0, std::memory_order_relaxed);
}

// How long that takes this core.
std::uint64_t take_line_ns(std::byte* address) {
  const std::uint64_t start = now_ns();
  take_line(address);
  return now_ns() - start;
}

}  // namespace

void Service::limit_kept(std::size_t count, std::uint64_t bytes) {
  std::uint64_t kept_bytes = 0;
  for (std::size_t i = 0; i < kept_count_; ++i) kept_bytes += kept_[i].capacity_bytes;
  std::size_t gone = 0;
  for (; kept_count_ - gone > count || kept_bytes > bytes; ++gone) {
    const Kept& oldest = kept_[gone];
    kept_bytes -= oldest.capacity_bytes;
    give_back(oldest.home, oldest.offset, *block_at(arena_of(oldest.home), oldest.offset));
  }
  std::move(kept_.begin() + gone, kept_.begin() + kept_count_, kept_.begin());
  kept_count_ -= gone;
}

void Service::keep(const overdrive_smpi_place& place, const Block& record) {
  const std::uint64_t capacity = record.capacity_bytes;
  limit_kept(kMostKept - 1, kMostKeptBytes - std::min(capacity, kMostKeptBytes));
  kept_[kept_count_++] = {.offset = place.block,
                          .capacity_bytes = capacity,
                          .home = home_of(place),
                          .wanted = (place.home & kWanted) != 0};
}

bool Service::lend_in_kept(const Found& found, const void* address, std::uint64_t bytes,
                           bool wanted, overdrive_smpi_place* place) {
  std::size_t at = kept_count_;
  const auto serves = [&](const Kept& one) {
    return one.capacity_bytes >= bytes && (wanted || one.wanted);
  };
  while (at > 0 && !serves(kept_[at - 1])) --at;
  if (at == 0) return false;
  const Kept kept = kept_[at - 1];
  std::move(kept_.begin() + at, kept_.begin() + kept_count_, kept_.begin() + at - 1);
  --kept_count_;
  std::byte* const copy = arena_of(kept.home) + kept.offset;
  memory::copy_ordinary(copy, address, bytes);
  let_travel(found, {block_at(arena_of(kept.home), kept.offset), copy, kept.home}, bytes, place);
  if (!wanted) place->home &= ~kWanted;
  return true;
}

// Nobody owns the copy, and its viewer keeps it.
void Service::let_travel(const Found& found, const Found& copy, std::uint64_t bytes,
                         overdrive_smpi_place* place) {
  *place = place_of(copy, copy.block, bytes);
  place->home |= kTravels | kWanted;
  // Of one that was kept it says so already, and its line had better stay with both.
  std::atomic<std::uint32_t>& owner = copy.record->owner;
  if (owner.load(std::memory_order_relaxed) != kNobody) {
    owner.store(kNobody, std::memory_order_relaxed);
  }
  note_sent(found);
  ++counters_.smpi_lent;
  ++counters_.smpi_by_copy;
}

bool Service::lend_past_caches(const Found& found, const void* address, std::uint64_t bytes,
                               std::uint32_t views, overdrive_smpi_place* place) {
  std::byte* const copy = alloc_locked(bytes, nullptr);
  if (copy == nullptr) return false;
  memory::copy_nontemporal(copy, address, bytes);
  const Found of_copy = found_own(copy);
  if (views == 1 && options_.limit_bytes == 0) {
    let_travel(found, of_copy, bytes, place);
    return true;
  }
  note_sent(found);
  *place = place_of(of_copy, copy, bytes);
  note_lent(of_copy, views);
  ++counters_.smpi_by_copy;
  // Nobody owns it: the last viewer gives it back.
  of_copy.record->owner.store(kNobody, std::memory_order_relaxed);
  let_go(member_, place->block, *of_copy.record);
  return true;
}

// What no copy that was kept has room for; past the caches where far viewers fetch it from there.
bool Service::lend_in_new(const Found& found, const void* address, std::uint64_t bytes, bool far,
                          overdrive_smpi_place* place) {
  if (far && bytes > kMostShortBytes) return lend_past_caches(found, address, bytes, 1, place);
  if (options_.limit_bytes != 0) return false;
  std::byte* const copy = alloc_locked(std::max(bytes, kMostShortBytes), nullptr);
  if (copy == nullptr) return false;
  memory::copy_ordinary(copy, address, bytes);
  let_travel(found, found_own(copy), bytes, place);
  return true;
}

bool Service::new_is_due() { return sends_missed_++ % kSendsPerTry == 0; }

bool Service::copied_as_learnt(std::uint64_t bytes, bool far) {
  // Relaxed: other threads open views meanwhile; any other number will do.
  const std::uint64_t received =
      std::atomic_ref(counters_.smpi_views).load(std::memory_order_relaxed);
  return copy_choice_.copied(bytes, far, received, member_ % 2 != 0);
}

bool Service::lend_as_told(const Found& found, const void* address, std::uint64_t bytes, bool far,
                           bool copied, overdrive_smpi_place* place) {
  const bool tries = copy_choice_.trying();
  if (!copied && tries) return false;
  bool done = lend_in_kept(found, address, bytes, copied, place);
  if (!done && copied && (tries || new_is_due())) {
    done = lend_in_new(found, address, bytes, far, place);
  }
  if (done != copied) copy_choice_.spoil_last();
  return done;
}

Service::How Service::lend_well(const Found& found, const void* address, std::uint64_t bytes,
                                std::uint32_t views, bool with_message,
                                overdrive_smpi_place* place) {
  Block& record = *found.record;
  const bool far = far_line_ns_.load(std::memory_order_relaxed) > 0;
  if (!far && near_line_ns_.load(std::memory_order_relaxed) <= 0) return How::in_place;
  if (record.sent != 0 || debug_ != nullptr || views == 0) return How::in_place;
  if (bytes > kMostCopiedBytes) return How::in_place;
  if (bytes > (far ? kMostShortBytes : kMostUnaskedBytes)) {
    const bool known = far && record.read_whole != 0;
    const bool asked = !known && views == 1 && bytes <= CopyChoice::kMostBytes;
    const bool copied = asked && copied_as_learnt(bytes, far);
    if (record.until_look == 0 && !(asked && copy_choice_.trying())) {
      if (asked) copy_choice_.spoil_last();
      watched_ = {&record, const_cast<std::byte*>(static_cast<const std::byte*>(address)), bytes};
      return How::in_place;
    }
    if (record.until_look > 0) --record.until_look;
    if (!known)
      return asked && lend_as_told(found, address, bytes, far, copied, place) ? How::as_copy
                                                                              : How::in_place;
  }
  if (views == 1 && lend_in_kept(found, address, bytes, true, place)) return How::as_copy;
  if (far && bytes > kMostShortBytes) {
    return lend_past_caches(found, address, bytes, views, place) ? How::as_copy : How::in_place;
  }
  if (views == 1 && new_is_due() && lend_in_new(found, address, bytes, far, place)) {
    return How::as_copy;
  }
  return far && with_message ? How::by_content : How::in_place;
}

void Service::look_at_viewers(Block& record) {
  if (watched_.record != &record) return;
  const Watched watched = watched_;
  watched_ = {};
  const double far_ns = far_line_ns_.load(std::memory_order_relaxed);
  const double near_ns = near_line_ns_.load(std::memory_order_relaxed);
  int far_fetched = 0, near_fetched = 0;
  double quickest = std::numeric_limits<double>::max();
  for (unsigned i = 0; i < kLooks; ++i) {
    std::byte* const at = watched.start + watched.bytes * (2 * i + 1) / (2 * kLooks);
    const auto ns = static_cast<double>(take_line_ns(at));
    // Now it is in this core's cache.
    const double more_ns = ns - static_cast<double>(take_line_ns(at));
    if (far_ns > 0 && ns >= far_ns / 2) ++far_fetched;
    if (more_ns < kFetchedNs) continue;
    ++near_fetched;
    quickest = std::min(quickest, ns);
  }
  // The cores may have moved since the start, or since lines were last looked at.
  const double far_from_ns = far_from_ns_.load(std::memory_order_relaxed);
  const bool longer = watched.bytes > kMostLearntBytes;
  const bool learns = far_from_ns > 0 && !longer;
  bool whole = far_fetched >= (longer ? kFetchedOfMuch : kMuchFetched);
  if (!whole && near_fetched >= kMostlyFetched && (far_ns <= 0 || learns)) {
    whole = true;
    const bool far_now = learns && quickest >= far_from_ns;
    far_line_ns_.store(far_now ? quickest : 0, std::memory_order_relaxed);
    near_line_ns_.store(far_now ? 0 : quickest, std::memory_order_relaxed);
  }
  record.read_whole = whole ? 1 : 0;
  record.until_look = !whole && near_ns <= 0 ? kLoansPerLook
                      : longer               ? kLongCopiesPerLook
                                             : kCopiesPerLook;
}

void Service::forget_viewers(Block& record) {
  record.read_whole = 0;
  record.until_look = 0;
  if (watched_.record == &record) watched_ = {};
}

}  // namespace od::smpi
