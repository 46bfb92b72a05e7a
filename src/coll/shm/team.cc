// Numbers, acknowledgements and waking: what exchanges of a team have in common.

#include "coll/shm/team.h"

#include <algorithm>
#include <utility>

namespace od::coll::shm {

namespace {

std::vector<CacheClaim> claims_of(const TeamSetup& setup) {
  std::vector<CacheClaim> claims;
  for (const TeamMember& member : setup.members) claims.push_back(member.cache);
  return claims;
}

// A slice that is shorter than a piece saves no cache, but costs exchanges.
std::uint64_t slice_by_caches(const Tuning& tuning, const Groups& groups) {
  if (tuning.oversubscribed) return tuning.segment_slice_bytes;
  return groups.slice_bytes(std::min(tuning.piece_bytes, tuning.segment_slice_bytes),
                            tuning.segment_slice_bytes);
}

}  // namespace

Team::Team(TeamSetup setup)
    : size_(static_cast<int>(setup.members.size())),
      me_(setup.me),
      layout_(*setup.layout),
      wake_mode_(setup.wake_mode),
      tuning_(setup.tuning),
      corrupt_(setup.corrupt),
      context_(setup.context),
      peers_(setup.members.size()),
      result_bytes_(layout_.slot_bytes / kResultShare / kFalseSharingBytes * kFalseSharingBytes),
      ring_(layout_.slot_bytes - kControlBytes - kResults * result_bytes_),
      shown_(kLanes * setup.members.size()),
      operands_(setup.members.size()),
      groups_(claims_of(setup)),
      in_groups_(setup.in_groups) {
  all_reachable_ = true;
  for (int i = 0; i < size_; ++i) {
    const TeamMember& member = setup.members[static_cast<std::size_t>(i)];
    Peer& p = peer(i);
    p.slot = slot_start(member.region, layout_, member.lease.slot);
    p.control = reinterpret_cast<SlotControl*>(p.slot);
    auto* const header = reinterpret_cast<od::node::RegionHeader*>(member.region);
    p.armed = &header->armed;
    p.away = &header->away;
    p.base = member.lease.base;
    p.reach = member.reach;
    p.reach_bytes = member.reach_bytes;
    p.reaches_us = member.reaches_us;
    if (i != me_ && !p.reaches_us) all_reachable_ = false;
  }
  largest_element_bytes_ =
      std::min(result_bytes_, ring_.bytes() / (4 * static_cast<std::uint64_t>(size_)));
  segment_slice_bytes_ = slice_by_caches(tuning_, groups_);
}

Team::~Team() = default;

void Team::set_far(bool far) { tuning_.far = far; }

std::vector<Slots::Acknowledgement> Team::acknowledgements() const {
  std::vector<Slots::Acknowledgement> result;
  for (int i = 0; i < size_; ++i) {
    if (i != me_) result.push_back({&peer(i).control->completed, peer(i).base + next_number_});
  }
  return result;
}

bool Team::advance() {
  bool moved = false;
  while (!broken_) {
    bool again = false;
    while (first_open_ != nullptr && begin_next()) again = true;
    for (std::uint64_t number = completed_; number < next_number_; ++number) {
      Exchange& x = exchanges_[number % kLanes];
      if (x.active && x.number == number && step(x)) again = true;
    }
    if (!again) break;
    moved = true;
  }
  if (any_news_) tell_sleepers();
  return moved;
}

bool Team::anything_ready() const {
  const auto ready = [](const Awaited& awaited) {
    return awaited.word != nullptr && awaited.here();
  };
  if (first_open_ != nullptr && ready(awaits_acknowledgement_)) return true;
  for (std::uint64_t number = completed_; number < next_number_; ++number) {
    const Exchange& x = exchanges_[number % kLanes];
    if (x.active && (ready(x.awaits_room) || ready(x.awaits_content))) return true;
  }
  return false;
}

const std::atomic<std::uint32_t>* Team::awaited_member() const {
  for (std::uint64_t number = completed_; number < next_number_; ++number) {
    const Exchange& x = exchanges_[number % kLanes];
    if (!x.active) continue;
    const std::atomic<std::uint32_t>* missing = nullptr;
    for (int i = x.sources.first; i < x.sources.last; ++i) {
      if (i == x.me) continue;
      const int position = x.member(i);
      if (has_posted(position, x)) continue;
      missing = peer(position).away;
      // A hint that orders nothing.
      if (missing->load(std::memory_order_relaxed) != 0) return missing;
    }
    if (missing != nullptr) return missing;
  }
  return nullptr;
}

std::string Team::describe() const {
  std::string text;
  const auto add = [&](const char* name, const Awaited& awaited) {
    if (awaited.word == nullptr) return;
    const auto* at = reinterpret_cast<const std::byte*>(awaited.word);
    for (int i = 0; i < size_; ++i) {
      if (at < peer(i).slot || at >= peer(i).slot + layout_.slot_bytes) continue;
      text += std::string(", ") + name + " of member " + std::to_string(i) + " (" +
              std::to_string(awaited.word->load(std::memory_order_relaxed)) + " of " +
              std::to_string(awaited.at_least) + ")";
    }
  };
  for (std::uint64_t number = completed_; number < next_number_; ++number) {
    const Exchange& x = exchanges_[number % kLanes];
    if (!x.active) continue;
    text += "exchange " + std::to_string(number) + ": shown " + std::to_string(x.filled) + " of " +
            std::to_string(x.rounds_out) + ", read " + std::to_string(x.round) + " of " +
            std::to_string(x.rounds_in);
    add("waits for room", x.awaits_room);
    add("waits for content", x.awaits_content);
    text += "; ";
  }
  if (first_open_ != nullptr) {
    text += "exchange " + std::to_string(next_number_) + " has not begun";
    add("waits for acknowledgement", awaits_acknowledgement_);
  }
  return text;
}

// The next exchange of the oldest operation that has any left; false if it cannot begin yet.
bool Team::begin_next() {
  Operation& op = *first_open_;
  Exchange& x = exchanges_[next_number_ % kLanes];
  if (x.active) return false;
  if (!x.prepared) {
    if (x.news_post || x.news_made || x.news_round || x.news_end) tell_sleepers();
    if (!prepare(op, op.begun_, x)) return false;
    x.operation = &op;
    x.number = next_number_;
    x.size = x.circle == nullptr ? size_ : static_cast<int>(x.circle->size());
    x.me = x.circle == nullptr ? me_ : groups_.place(me_);
    x.readers = readers_of(x.pattern, x.root, x.me, x.size);
    x.sources = sources_of(x.pattern, x.root, x.me, x.size);
    // The first of an exscan combines nothing.
    if (x.pattern == Pattern::before && x.me == 0 && !x.own_operand) x.sources = {};
    x.reader_cursor = x.end_cursor = x.readers.first;
    x.posted = std::exchange(shown_ahead_, false);
    if (x.pattern == Pattern::from_root || x.pattern == Pattern::to_root) {
      const int root = x.member(x.root);
      x.turning = std::exchange(last_root_, root) != root;
    }
    x.prepared = true;
  }
  if (!prepare_source(x)) {
    ++counters_.full_waits;
    return false;
  }
  awaits_acknowledgement_ = {};
  prepare_reader(x);
  x.active = true;
  ++counters_.exchanges;
  ++next_number_;
  ++op.begun_;
  if (op.begun_ == op.exchanges_) {
    first_open_ = op.next_;
    if (first_open_ == nullptr) last_open_ = nullptr;
  }
  if (!x.posted && x.filled == x.rounds_out) post(x);
  return true;
}

// Whether all exchanges below this one are over for every member.
bool Team::acknowledged(std::uint64_t exchange) {
  if (acknowledged_ >= exchange) return true;
  awaits_acknowledgement_ = {};
  if (completed_ < exchange) return false;
  std::uint64_t least = completed_;
  std::atomic<std::uint32_t>& wants = peer(me_).control->wants_acks;
  for (int i = 0; i < size_; ++i) {
    if (i == me_) continue;
    Peer& p = peer(i);
    if (p.known_completed < exchange) {
      // Pairs with the release in publish_completed().
      p.known_completed = p.control->completed.load(std::memory_order_acquire) - p.base;
      if (p.known_completed < exchange) {
        awaits_acknowledgement_ = {&p.control->completed, p.base + exchange};
        // Read after the store of `completed` by those whom anything_ready() would miss otherwise:
        // ordered by the barriers around the armed word.
        wants.store(1, std::memory_order_relaxed);
        return false;
      }
    }
    least = std::min(least, p.known_completed);
  }
  if (wants.load(std::memory_order_relaxed) != 0) wants.store(0, std::memory_order_relaxed);
  acknowledged_ = least;
  ring_.release(least);
  return true;
}

// What a post tells in passing: the low half of a word that only grows.
void Team::note_completed(Peer& from, std::uint32_t completed_low) {
  const auto known_low = static_cast<std::uint32_t>(from.base + from.known_completed);
  const std::uint32_t more = completed_low - known_low;
  // A post that is older than what is known already looks like a huge step.
  if (more < (std::uint32_t{1} << 31)) from.known_completed += more;
}

void Team::retire(Exchange& x) {
  x.active = x.prepared = false;
  ++x.operation->finished_;
  if (x.number != completed_) return;
  do {
    ++completed_;
  } while (completed_ < next_number_ && !exchanges_[completed_ % kLanes].active);
  publish_completed();
  news_completed_ = any_news_ = true;
}

void Team::publish_completed() {
  // Release: this member reads nothing of these exchanges any more; pairs with the acquire in
  // acknowledged().
  peer(me_).control->completed.store(peer(me_).base + completed_, std::memory_order_release);
}

// Wakes those who may sleep on what has been published since the last call.
//
// With a core for each rank everybody whom news may concern is woken at once: hardly anybody ever
// sleeps. With more ranks than cores a member that waits for several others would be woken by each
// of them; there it is woken by the one that finds that nothing is missing any more. Of several who
// publish at the same time, the fence lets at least one see what all have published.
void Team::tell_sleepers() {
  any_news_ = false;
  order_for_sleepers();
  for (Exchange& x : exchanges_) {
    if (x.news_post || x.news_made || x.news_round || x.news_end) tell_sleepers_of(x);
  }
  if (news_completed_) {
    news_completed_ = false;
    for (Peer& p : peers_) {
      if (p.control->wants_acks.load(std::memory_order_relaxed) != 0) p.wake = true;
    }
  }
  for (int i = 0; i < size_; ++i) {
    Peer& p = peer(i);
    if (!p.wake) continue;
    p.wake = false;
    if (i != me_) wake_if_asleep(p);
  }
}

// Between publishing something and looking who sleeps; pairs with the barrier in Idler::step.
void Team::order_for_sleepers() const {
  if (wake_mode_.expedited) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}

void Team::wake_if_asleep(const Peer& p) {
  if (p.armed->load(std::memory_order_relaxed) == 0) return;
  ++counters_.wakes;
  od::node::wake_slow(*p.armed);
}

void Team::tell_sleepers_of(Exchange& x) {
  const bool at_once = wake_mode_.expedited;
  if (x.news_post && x.combines_groups()) {
    // Each needs a few of the results only: whoever needs this one may need no other.
    const std::uint64_t each = x.across.final_each();
    for (int i = 0; i < size_; ++i) {
      const std::uint64_t from = each * static_cast<std::uint64_t>(i);
      if (x.across.holds(me_, from, from + each)) wake(i);
    }
  } else if (x.news_post) {
    // Readers of which all sources have posted.
    const int posted = at_once ? x.size : first_missing_post(x);
    for (int i = x.readers.first; i < x.readers.last; ++i) {
      const int last_source = x.pattern == Pattern::before ? i : x.size;
      if (x.pattern == Pattern::from_root || posted >= last_source) wake(x.member(i));
    }
  } else if (x.news_made) {
    for (int i = x.readers.first; i < x.readers.last; ++i) wake(x.member(i));
  }
  if (x.news_round || x.news_end) {
    int late = -1;
    const int late_ones = x.news_round || at_once ? 0 : late_readers(x, late);
    if (late_ones == 0) {
      for (int i = x.sources.first; i < x.sources.last; ++i) wake(x.member(i));
    } else if (late_ones == 1) {
      // It does not wait for itself.
      wake(x.member(late));
    }
  }
  x.news_post = x.news_made = x.news_round = x.news_end = false;
}

// The lowest of those who take part that should post but has not.
int Team::first_missing_post(const Exchange& x) const {
  if (x.pattern == Pattern::from_root) return x.size;
  for (int i = 0; i < x.size; ++i) {
    if (i == x.me || (x.pattern == Pattern::to_root && i == x.root)) continue;
    const int position = x.member(i);
    if (!has_posted(position, x)) return i;
  }
  return x.size;
}

// How many members may still tell that they have read everything, and one of them. Those that find
// nothing to tell (all they read was in cells, or empty) count as well: there is one at most whom
// somebody waits for, the only source that shows its buffer. Where there may be more, nobody
// counts.
int Team::late_readers(const Exchange& x, int& late) const {
  if (x.pattern == Pattern::before || x.irregular) return 0;
  if (x.own_places || x.out.sizes != nullptr || x.in.sizes != nullptr) return 0;
  int count = 0;
  for (int i = 0; i < x.size; ++i) {
    if (i == x.me) continue;
    const bool reads = x.pattern == Pattern::everyone ||
                       (x.pattern == Pattern::from_root ? i != x.root : i == x.root);
    if (!reads) continue;
    // An empty slice.
    if (x.pattern == Pattern::everyone && x.content == Content::each && x.out.size(i) == 0) {
      continue;
    }
    const int position = x.member(i);
    if (lane(position, x).read.load(std::memory_order_relaxed) <
        step_word(ticket(position, x), kAllSteps)) {
      late = i;
      ++count;
    }
  }
  return count;
}

}  // namespace od::coll::shm
