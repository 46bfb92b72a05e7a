// Lending, passing and viewing blocks: see service.h. Where memory comes from is in allocation.cc.
#include "smpi/service.h"

#include <sched.h>

#include <iterator>

#include "base/clock.h"
#include "base/line_sizes.h"
#include "observe/log.h"

namespace od::smpi {
namespace {

// Between two looks whether peers are alive, which costs 10 to 20 us each. Pauses alone would not
// do: one takes 0.3 us, or milliseconds where others want the core.
constexpr std::uint64_t kNsPerCheck = 50'000'000;
// Short waits do not look: after so many pauses the clock is read.
constexpr std::uint64_t kPausesPerTime = 64;

// Ranks of one group have equal sets of members, so the set's hash tells groups of a node apart.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

// A viewer of a copy will read it all: its own loop would wait for one line after the other. One
// direction of a round trip without and with this, a line 290 ns: 4 KiB 2.1 and 1.0 us, 8 KiB 3.9
// and 1.6, 16 KiB 4.4 and 2.8, 32 KiB 4.7 and 5.6; 80 ns: 0.69 and 0.50, 1.27 and 0.90, 1.84 and
// 1.71, 2.96 and 3.33.
constexpr std::uint64_t kMostAskedForBytes = 16u << 10;

void ask_for(const std::byte* address, std::uint64_t bytes) {
  if (bytes > kMostAskedForBytes) return;
  for (std::uint64_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(address + at);
}

bool share(const node::Node& node, int member) {
  const int me = node.my_index();
  if (member == me) return true;
  const node::Member& peer = node.member(member);
  return peer.reach != nullptr && peer.reaches_us &&
         !node.separated(node.member(me).world_rank, peer.world_rank);
}

}  // namespace

Service::Service(const node::Node& node, const Options& options, observe::Counters& counters)
    : node_(node),
      options_(options),
      counters_(counters),
      member_(static_cast<std::uint32_t>(node.my_index())) {
  if (options.arena == nullptr) return;
  int lowest = -1;
  std::uint64_t set = 0;
  for (int i = 0; i < node.size(); ++i) {
    if (!share(node, i)) continue;
    if (lowest < 0) lowest = i;
    set = mix(set, static_cast<std::uint64_t>(node.member(i).world_rank));
  }
  const node::RegionHeader* const header = node.member(lowest).header;
  table_.group[0] = header->nonce[0] ^ mix(set, header->nonce[1]);
  table_.group[1] = set;
  if (options.debug) {
    debug_ = std::make_unique<DebugViews>(node.member(node.my_index()).world_rank);
  }
  fill_table();
  usable_.store(true, std::memory_order_relaxed);
}

Service::~Service() = default;

std::byte* Service::arena_of(std::uint32_t home) const {
  if (home == member_) return options_.arena;
  return home < static_cast<std::uint32_t>(node_.size())
             ? node_.member(static_cast<int>(home)).reach
             : nullptr;
}

std::uint64_t Service::arena_bytes_of(std::uint32_t home) const {
  return home == member_ ? options_.arena_bytes : node_.member(static_cast<int>(home)).reach_bytes;
}

std::uint64_t Service::live_magic(std::uint32_t home, std::uint64_t offset) {
  return kLiveMagic ^ offset ^ (std::uint64_t{home} << 48);
}

Service::Found Service::find(const void* address) {
  auto* const at = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  Remembered& slot = remembered_[(reinterpret_cast<std::uintptr_t>(at) >> 16) % kRemembered];
  if (at < slot.start || at >= slot.range.end) {
    auto after = ranges_.upper_bound(at);
    if (after == ranges_.begin()) return {};
    const auto& [start, range] = *std::prev(after);
    if (at >= range.end) return {};
    slot = {start, range};
  }
  // What a forked child sees of other ranks' memory is theirs and its parent's.
  if (slot.range.home != member_ && !usable_.load(std::memory_order_relaxed)) return {};
  std::byte* block = slot.start;
  if (slot.range.stride_bytes != 0) {
    const auto within = static_cast<std::uint64_t>(at - slot.start);
    block += within / slot.range.stride_bytes * slot.range.stride_bytes + kFrontBytes;
    if (at < block) return {};
  }
  const auto offset = static_cast<std::uint64_t>(block - arena_of(slot.range.home));
  Block* const record = block_at(arena_of(slot.range.home), offset);
  if (record->magic != live_magic(slot.range.home, offset)) return {};
  if (at > block + record->capacity_bytes) return {};
  return {record, block, slot.range.home};
}

Service::Found Service::find_owned(const void* block) {
  Found found = find(block);
  // Relaxed: only the owner itself finds its own number.
  if (found.record == nullptr || found.block != block ||
      found.record->owner.load(std::memory_order_relaxed) != member_) {
    return {};
  }
  return found;
}

void Service::add_range(std::byte* start, const Range& range) { ranges_[start] = range; }

void Service::drop_range(std::byte* start) {
  ranges_.erase(start);
  for (Remembered& slot : remembered_) {
    if (slot.start == start) slot = {};
  }
}

void Service::let_go(std::uint32_t home, std::uint64_t offset, Block& record) {
  if (!usable_.load(std::memory_order_relaxed)) return;  // a forked child
  const std::uint64_t lent = record.lent.load(std::memory_order_relaxed);
  // Release: what this rank has written is written; pairs with the acquire of the last viewer in
  // end_views(). Acquire: all views that have ended are over; pairs with their release there.
  if (lent != 0 && record.returned.fetch_sub(lent, std::memory_order_acq_rel) != lent) return;
  give_back(home, offset, record);
}

void Service::end_views(const overdrive_smpi_place& place, Block& record, std::uint32_t count) {
  if (!usable_.load(std::memory_order_relaxed)) return;  // a forked child
  if (travels(place)) {
    const std::lock_guard lock(mutex_);
    keep(place, record);
    return;
  }
  // Release: reads of this rank are over; pairs with the acquire of whoever is last, here or in
  // let_go(), and in Block::views().
  const std::uint64_t before = record.returned.fetch_add(count, std::memory_order_acq_rel);
  if (before + count != 0) return;
  const std::lock_guard lock(mutex_);
  give_back(place.home, place.block, record);
}

void Service::give_back(std::uint32_t home, std::uint64_t offset, Block& record) {
  record.magic = 0;
  if (home == member_) {
    take_in(options_.arena + offset, record);
    return;
  }
  std::atomic<std::uint64_t>& head = node_.member(static_cast<int>(home)).header->returned_blocks;
  std::uint64_t first = head.load(std::memory_order_relaxed);
  do {
    record.next = first;
    // Release: pairs with the acquire in collect_returned().
  } while (!head.compare_exchange_weak(first, offset, std::memory_order_release,
                                       std::memory_order_relaxed));
}

int Service::free(void* block, const char* site) {
  (void)site;
  const std::lock_guard lock(mutex_);
  const Found found = find_owned(block);
  if (found.record == nullptr) return OVERDRIVE_SMPI_NOT_A_BLOCK;
  found.record->owner.store(kNobody, std::memory_order_relaxed);
  end_unlent(found.block);
  if (found.home != member_) drop_range(found.block);
  const auto offset = static_cast<std::uint64_t>(found.block - arena_of(found.home));
  let_go(found.home, offset, *found.record);
  return OVERDRIVE_SMPI_OK;
}

int Service::capacity(const void* block, std::uint64_t* bytes) {
  const std::lock_guard lock(mutex_);
  const Found found = find_owned(block);
  if (found.record == nullptr) return OVERDRIVE_SMPI_NOT_A_BLOCK;
  *bytes = found.record->capacity_bytes;
  return OVERDRIVE_SMPI_OK;
}

Service::Found Service::find_lendable(const void* address, std::uint64_t bytes) {
  const Found found = find(address);
  if (found.record == nullptr) return {};
  // A block that this rank has freed or passed on is not its to lend.
  if (found.record->owner.load(std::memory_order_relaxed) != member_) return {};
  const auto* const start = static_cast<const std::byte*>(address);
  if (bytes > found.record->capacity_bytes - static_cast<std::uint64_t>(start - found.block)) {
    return {};
  }
  return found;
}

overdrive_smpi_place Service::place_of(const Found& found, const void* address,
                                       std::uint64_t bytes) const {
  std::byte* const arena = arena_of(found.home);
  return {.block = static_cast<std::uint64_t>(found.block - arena),
          .offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - arena),
          .bytes = bytes,
          .home = found.home,
          .passed = 0};
}

void Service::note_sent(const Found& found) {
  found.record->sent = 1;
  end_unlent(found.block);
}

void Service::note_lent(const Found& found, std::uint32_t views) {
  // Only the owner writes them.
  std::atomic<std::uint64_t>& lent = found.record->lent;
  lent.store(lent.load(std::memory_order_relaxed) + views, std::memory_order_relaxed);
  note_sent(found);
  counters_.smpi_lent += views;
  if (debug_ != nullptr) {
    debug_->protect(found.block, found.record->capacity_bytes, found.record,
                    found.home == member_ ? found.record->site : nullptr);
  }
}

int Service::lend(const void* address, std::uint64_t bytes, std::uint32_t views,
                  overdrive_smpi_place* place) {
  const std::lock_guard lock(mutex_);
  const Found found = find_lendable(address, bytes);
  if (found.record == nullptr) return OVERDRIVE_SMPI_NOT_A_BLOCK;
  if (lend_well(found, address, bytes, views, false, place) == How::as_copy) {
    return OVERDRIVE_SMPI_OK;
  }
  *place = place_of(found, address, bytes);
  note_lent(found, views);
  return OVERDRIVE_SMPI_OK;
}

int Service::offer(const void* address, std::uint64_t bytes, overdrive_smpi_place* place) {
  const std::lock_guard lock(mutex_);
  const Found found = find_lendable(address, bytes);
  if (found.record == nullptr) return OVERDRIVE_SMPI_NOT_A_BLOCK;
  const How how = lend_well(found, address, bytes, 1, true, place);
  if (how == How::as_copy) return OVERDRIVE_SMPI_OK;
  *place = place_of(found, address, bytes);
  // What has been written anew crosses between the cores line by line when it is read, and again
  // when it is next written, and a program's own loops wait for each line. A message crosses once,
  // in a frame that both sides keep, with loads that do not wait. What is sent unchanged is read
  // where it lies: the viewer has it already.
  if (how == How::by_content) {
    note_sent(found);
    ++counters_.smpi_by_content;
    return OVERDRIVE_SMPI_BY_CONTENT;
  }
  note_lent(found, 1);
  return OVERDRIVE_SMPI_OK;
}

void Service::take_back(const overdrive_smpi_place& place, std::uint32_t views) {
  std::byte* arena = nullptr;
  Block* const record = checked(place, &arena);
  if (record == nullptr) return;
  if (place.passed != 0) {
    const std::lock_guard lock(mutex_);
    record->owner.store(member_, std::memory_order_relaxed);
    if (place.home != member_) {
      std::byte* const block = arena + place.block;
      add_range(block, {block + record->capacity_bytes + 1, 0, place.home});
    }
    return;
  }
  end_views(place, *record, views);
}

int Service::pass(void* block, std::uint64_t bytes, overdrive_smpi_place* place) {
  const int result = settle(block, bytes, place);
  const std::lock_guard lock(mutex_);
  if (result == OVERDRIVE_SMPI_OK) ++counters_.smpi_passed;
  return result;
}

int Service::settle(void* block, std::uint64_t bytes, overdrive_smpi_place* place) {
  const std::lock_guard lock(mutex_);
  const Found found = find_owned(block);
  if (found.record == nullptr || bytes > found.record->capacity_bytes) {
    return OVERDRIVE_SMPI_NOT_A_BLOCK;
  }
  const auto offset = static_cast<std::uint64_t>(found.block - arena_of(found.home));
  *place = {.block = offset, .offset = offset, .bytes = bytes, .home = found.home, .passed = 1};
  found.record->owner.store(kNobody, std::memory_order_relaxed);
  end_unlent(found.block);
  if (found.home != member_) drop_range(found.block);
  return OVERDRIVE_SMPI_OK;
}

// The record of a place that a peer has told, null when it cannot be.
Block* Service::checked(const overdrive_smpi_place& place, std::byte** arena) const {
  const std::uint32_t home = home_of(place);
  *arena = arena_of(home);
  if (place.passed != 0 && travels(place)) return nullptr;  // nobody's to own
  // As in find().
  if (home != member_ && !usable_.load(std::memory_order_relaxed)) return nullptr;
  if (*arena == nullptr || place.block < kFrontBytes || place.block % OVERDRIVE_SMPI_ALIGNMENT != 0)
    return nullptr;
  const std::uint64_t end = arena_bytes_of(home);
  if (place.block > end || place.offset < place.block || place.offset > end) return nullptr;
  Block* const record = block_at(*arena, place.block);
  if (record->magic != live_magic(home, place.block)) return nullptr;
  const std::uint64_t within = place.offset - place.block;
  if (record->capacity_bytes > end - place.block || within > record->capacity_bytes ||
      place.bytes > record->capacity_bytes - within) {
    return nullptr;
  }
  return record;
}

int Service::open(const overdrive_smpi_place& place, const char* site, const void** address,
                  std::uint64_t* view) {
  std::byte* arena = nullptr;
  const Block* const record = checked(place, &arena);
  if (record == nullptr) {
    log(Level::kError, "SMPI: rank %d was told of a message where no block is (rank %u, byte %llu)",
        node_.member(static_cast<int>(member_)).world_rank, place.home,
        static_cast<unsigned long long>(place.offset));
    return OVERDRIVE_SMPI_BAD_PLACE;
  }
  *address = arena + place.offset;
  *view = 0;
  if (travels(place)) ask_for(arena + place.offset, place.bytes);
  // Views are opened by several threads at once, and nothing else here needs the lock.
  std::atomic_ref(counters_.smpi_views).fetch_add(1, std::memory_order_relaxed);
  if (debug_ != nullptr) {
    const std::lock_guard lock(mutex_);
    const std::uint32_t owner = record->owner.load(std::memory_order_relaxed);
    const std::uint32_t from =
        owner < static_cast<std::uint32_t>(node_.size()) ? owner : home_of(place);
    const void* const own_mapping =
        debug_->open(arena + place.offset, place.bytes,
                     node_.member(static_cast<int>(from)).world_rank, site, view);
    if (own_mapping != nullptr) *address = own_mapping;
  }
  return OVERDRIVE_SMPI_OK;
}

void Service::close(const overdrive_smpi_place& place, std::uint64_t view) {
  std::byte* arena = nullptr;
  Block* const record = checked(place, &arena);
  if (record == nullptr) return;
  if (debug_ != nullptr) {
    const std::lock_guard lock(mutex_);
    debug_->close(view);
  }
  if (place.passed == 0) {
    end_views(place, *record, 1);
    return;
  }
  const std::lock_guard lock(mutex_);
  let_go(place.home, place.block, *record);
}

int Service::own(const overdrive_smpi_place& place, std::uint64_t view, const char* site,
                 void** block) {
  (void)site;
  std::byte* arena = nullptr;
  Block* const record = checked(place, &arena);
  if (record == nullptr || place.passed == 0) return OVERDRIVE_SMPI_BAD_PLACE;
  const std::lock_guard lock(mutex_);
  std::byte* const first = arena + place.block;
  if (debug_ != nullptr) {
    debug_->close(view);
    // Its home may have made it of blocks that this rank had once and lent.
    debug_->unprotect_all(first, record->capacity_bytes);
  }
  record->owner.store(member_, std::memory_order_relaxed);
  record->sent = 0;
  forget_viewers(*record);
  if (place.home != member_) {
    add_range(first, {first + record->capacity_bytes + 1, 0, place.home});
  }
  *block = first;
  return OVERDRIVE_SMPI_OK;
}

std::int64_t Service::lent(const void* block) {
  std::atomic<const void*>& entry = unlent_entry(block);
  if (entry.load(std::memory_order_relaxed) == block && block != nullptr) return 0;
  const std::lock_guard lock(mutex_);
  const Found found = find_owned(block);
  if (found.record == nullptr) return -1;
  // What viewers have read is over before the owner writes.
  const std::uint64_t views = found.record->views();
  if (views == 0) {
    look_at_viewers(*found.record);
    found.record->sent = 0;  // the owner may write
    if (debug_ != nullptr) debug_->unprotect(found.block);
    entry.store(block, std::memory_order_relaxed);
  }
  return static_cast<std::int64_t>(views);
}

void Service::pause() {
  sched_yield();
  if (pauses_.fetch_add(1, std::memory_order_relaxed) % kPausesPerTime != kPausesPerTime - 1) {
    return;
  }
  const std::uint64_t now = now_ns();
  std::uint64_t due = next_check_ns_.load(std::memory_order_relaxed);
  if (now < due ||
      !next_check_ns_.compare_exchange_strong(due, now + kNsPerCheck, std::memory_order_relaxed)) {
    return;
  }
  for (int i = 0; i < node_.size(); ++i) {
    if (i == static_cast<int>(member_) || !share(node_, i) || !node_.dead(i)) continue;
    log(Level::kError,
        "rank %d (process %u on this node) has died while rank %d was waiting for its views; "
        "ending the job",
        node_.member(i).world_rank, node_.member(i).pid,
        node_.member(static_cast<int>(member_)).world_rank);
    if (options_.abort != nullptr) options_.abort(1);
  }
}

void Service::released_twice(std::uint64_t view) {
  if (debug_ != nullptr) debug_->released_twice(view);
}

void Service::note_copy(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++counters_.smpi_copied;
  counters_.smpi_copied_bytes += bytes;
}

struct Service::Sent {
  Service& service;
  std::uint32_t home;
  std::uint64_t offset;
  bool given_up = false;
  Sent(Service& the_service, std::uint32_t of_home, std::uint64_t at)
      : service(the_service), home(of_home), offset(at) {}
  Sent(const Sent&) = delete;
  Sent& operator=(const Sent&) = delete;
  ~Sent() {
    if (!given_up) return;
    const std::lock_guard lock(service.mutex_);
    service.let_go(home, offset, *block_at(service.arena_of(home), offset));
  }
};

int Service::free_after(void* block, const void* request) {
  std::unique_lock lock(mutex_);
  const Found found = find_owned(block);
  if (found.record == nullptr || follow_ == nullptr) return OVERDRIVE_SMPI_NOT_A_BLOCK;
  const auto offset = static_cast<std::uint64_t>(found.block - arena_of(found.home));
  lock.unlock();
  const auto sent = std::make_shared<Sent>(*this, found.home, offset);
  // The program has not got the request yet, so nothing can have ended here.
  if (!follow_(request, sent)) return OVERDRIVE_SMPI_NOT_A_BLOCK;
  lock.lock();
  sent->given_up = true;
  ++counters_.smpi_freed_after;
  found.record->owner.store(kNobody, std::memory_order_relaxed);
  end_unlent(found.block);
  if (found.home != member_) drop_range(found.block);
  return OVERDRIVE_SMPI_OK;
}

void Service::finish() {
  if (!usable_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  limit_kept(0, 0);
  collect_returned();
  if (debug_ != nullptr) counters_.smpi_leaked += debug_->report_open();
}

}  // namespace od::smpi
