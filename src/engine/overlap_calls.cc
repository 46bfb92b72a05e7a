// What is noted about calls that may overlap, and what follows for the next ones: see overlap.h.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/overlap.h"
#include "engine/rank_state.h"

namespace od {

using coll::Collective;

namespace {

// As all ranks see it.
overlap::CallKind kind_of(const CollectiveCall& call, const Comm& comm) {
  overlap::CallKind kind{call.collective, comm.size, 0};
  if (call.collective == Collective::kAllgatherv) {
    for (const BlockPlace& block : call.recv_blocks) {
      kind.bytes += block.count * call.recv_type->size;
    }
  } else if (call.collective != Collective::kAlltoallv) {
    kind.bytes = call.recv_count * call.recv_type->size;
  }
  return kind;
}

// What is known about the kinds of calls on a communicator. More of them are not looked at.
struct KindsOfCalls {
  static constexpr std::size_t kMost = 256;
  std::vector<std::pair<overlap::CallKind, std::unique_ptr<overlap::Automatic>>> kinds;
};

}  // namespace

overlap::Automatic* Overlap::automatic(const CollectiveCall& call, Comm& comm) const {
  if (state_.settings.overlap != config::OverlapMode::kAuto) return nullptr;
  std::shared_ptr<void>& kept = comm.collectives->overlap;
  if (kept == nullptr) kept = std::make_shared<KindsOfCalls>();
  auto& kinds = static_cast<KindsOfCalls*>(kept.get())->kinds;
  const overlap::CallKind kind = kind_of(call, comm);
  for (const auto& [known, automatic] : kinds) {
    if (known == kind) return automatic.get();
  }
  if (kinds.size() == KindsOfCalls::kMost) return nullptr;
  kinds.emplace_back(kind, std::make_unique<overlap::Automatic>());
  return kinds.back().second.get();
}

overlap::Automatic::Turn Overlap::fixed_turn() const {
  using Turn = overlap::Automatic::Turn;
  switch (state_.settings.overlap) {
    case config::OverlapMode::kOn:
      return Turn::kOn;
    case config::OverlapMode::kTrace:
      return Turn::kTrace;
    default:
      return Turn::kOff;
  }
}

// The same on all ranks: from what they have added up, or from the file that all have.
const overlap::Order& Overlap::order_of(const CollectiveCall& call, Comm& comm) const {
  static const overlap::Order natural;
  // A trace shows when things are needed, whatever has been known about it.
  if (state_.settings.overlap == config::OverlapMode::kTrace) return natural;
  const overlap::Automatic* const decides = automatic(call, comm);
  if (decides != nullptr && decides->order().known()) return decides->order();
  const overlap::Order* const known = orders_.find(kind_of(call, comm));
  return known == nullptr ? natural : *known;
}

void Overlap::call_begins(const CollectiveCall& call, const Comm& comm,
                          overlap::Automatic* automatic) {
  // Where several threads call MPI there is no last call; nothing is noted.
  if (why_not_ != nullptr) return;
  const overlap::CallSite& site = call_sites_.site(call_sites_.here());
  call_ = {};
  call_.record = &sites_.at(site.id, site.text, kind_of(call, comm));
  call_.automatic = automatic;
  if (automatic != nullptr) call_.keeps_automatic = comm.collectives->overlap;
  call_.rank = comm.rank;
  call_.awaits_return = true;
  ++call_.record->calls;
  call_.began_ns = now_ns();
}

// A call that was complete before, or was served as usual.
void Overlap::call_returned() {
  if (!call_.awaits_return) return;
  call_.awaits_return = false;
  call_.returned_ns = call_.landed_ns = now_ns();
  ++call_.record->comm_calls;
  call_.record->comm_ns += call_.returned_ns - call_.began_ns;
  if (call_.automatic != nullptr && call_.automatic->measured()) watch_clock();
}

// The service lets the next call of MPI come by.
void Overlap::watch_clock() {
  call_.guarded = why_not_ == nullptr && service_->begin(nullptr, 0, false);
}

// Closes what has arrived, to see when it is touched.
void Overlap::watch_touches() {
  std::vector<memory::GuardPart>& parts = pages_.traced();
  call_.guarded = service_->begin(parts.data(), static_cast<std::uint32_t>(parts.size()), true);
  call_.traced = call_.guarded;
  if (call_.traced) {
    ++state_.counters.overlap_traced;
    ++call_.record->traced;
  }
}

// Of the call that is over now: what is known about it.
void Overlap::call_ends(std::uint64_t now) {
  overlap::SiteRecord& record = *call_.record;
  const std::uint64_t next_ns = settling_since_ns_.load(std::memory_order_relaxed);
  const std::uint64_t between_ns = next_ns - std::min(next_ns, call_.returned_ns);
  if (call_.early) {
    ++record.comm_calls;
    record.comm_ns += call_.landed_ns - call_.began_ns;
    record.init_ns += call_.returned_ns - call_.began_ns;
  }
  if (call_.early || call_.traced) {
    record.between_ns += between_ns;
    note_touches();
  }
  if (call_.automatic != nullptr) {
    call_.automatic->took(now - call_.began_ns,
                          std::min(call_.returned_ns - call_.began_ns, between_ns));
  }
}

// When the program has first touched what, as far as guards have seen it.
void Overlap::note_touches() {
  overlap::SiteRecord& record = *call_.record;
  const std::uint64_t returned_ns = call_.returned_ns;
  const std::uint64_t next_ns = settling_since_ns_.load(std::memory_order_relaxed);
  std::uint64_t first_ns = 0, last_ns = 0, waits_ns = 0;
  std::int64_t received_bytes = 0, touched_bytes = 0;
  std::vector<std::uint64_t> block_ns(static_cast<std::size_t>(record.kind.ranks), 0);
  std::vector<StepLog::Touch> touches;
  for (std::size_t i = 0; i < placed_; ++i) {
    const overlap::Piece& piece = plan_.pieces[i];
    if (piece.source != call_.rank) received_bytes += piece.bytes;
    const overlap::Pages::Touch touch = pages_.touch(static_cast<std::uint32_t>(i));
    if (touch.touched_ns < returned_ns) continue;  // never
    if (state_.collectives.step_log != nullptr) {
      touches.push_back({piece.source, piece.place.offset, piece.bytes, touch.touched_ns,
                         std::max(touch.opened_ns, touch.touched_ns)});
    }
    if (first_ns == 0 || touch.touched_ns < first_ns) first_ns = touch.touched_ns;
    last_ns = std::max(last_ns, touch.touched_ns);
    if (touch.opened_ns > touch.touched_ns) waits_ns += touch.opened_ns - touch.touched_ns;
    touched_bytes += piece.bytes;
    std::uint64_t& block = block_ns[static_cast<std::size_t>(piece.source)];
    if (block == 0 || touch.touched_ns < block) block = touch.touched_ns;
  }
  ++record.seen_calls;
  record.unrelated_ns += (first_ns != 0 ? first_ns : std::max(next_ns, returned_ns)) - returned_ns;
  // When everything has arrived all pages open: what is touched after that is not seen. Then the
  // program may go on with it until the next call.
  if (call_.early && first_ns != 0 && call_.landed_ns < next_ns) {
    last_ns = std::max(last_ns, next_ns);
    touched_bytes = received_bytes;
  }
  record.received_bytes += static_cast<std::uint64_t>(received_bytes);
  record.related_bytes += static_cast<std::uint64_t>(touched_bytes);
  if (last_ns - first_ns > waits_ns) record.related_ns += last_ns - first_ns - waits_ns;
  if (state_.collectives.step_log != nullptr) {
    state_.collectives.step_log->outlasted(call_.log_number,
                                           {returned_ns, next_ns, std::move(touches)});
  }
  if (!call_.traced) return;
  overlap::Accesses accesses;
  constexpr std::uint64_t kUs = 1000;
  for (std::size_t block = 0; block < block_ns.size(); ++block) {
    if (block_ns[block] == 0) continue;
    const std::size_t at = overlap::Accesses::place_of(static_cast<int>(block), record.kind.ranks);
    accesses.block_us[at] += static_cast<std::int64_t>((block_ns[block] - returned_ns) / kUs);
    ++accesses.block_count[at];
  }
  for (std::size_t i = 0; i < placed_; ++i) {
    const overlap::Piece& piece = plan_.pieces[i];
    const std::uint64_t touched_ns = pages_.touch(static_cast<std::uint32_t>(i)).touched_ns;
    if (piece.part < 0 || touched_ns < returned_ns) continue;
    const auto part = static_cast<std::size_t>(piece.part);
    const std::uint64_t block = block_ns[static_cast<std::size_t>(piece.source)];
    accesses.piece_us[part] += static_cast<std::int64_t>((touched_ns - block) / kUs);
    ++accesses.piece_count[part];
  }
  record.accesses.add(accesses);
  if (call_.automatic != nullptr) call_.automatic->touched(accesses);
}

}  // namespace od
