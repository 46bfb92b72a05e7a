// Driving exchanges: which begins next, what can be done of those under way, who is told.

#include "coll/shm/team.h"

#include <cstring>
#include <optional>
#include <utility>

#include "coll/shm/waking.h"

namespace od::coll::shm {

namespace {

template <typename Part, typename Of>
std::vector<Part> of_members(const TeamSetup& setup, Of&& of) {
  std::vector<Part> parts;
  for (const TeamMember& member : setup.members) parts.push_back(of(member));
  return parts;
}

}  // namespace

Team::Team(TeamSetup setup)
    : shape_(static_cast<int>(setup.members.size()), setup.me, setup.layout->slot_bytes,
             setup.tuning,
             of_members<CacheClaim>(setup, [](const TeamMember& member) { return member.cache; })),
      in_groups_(setup.in_groups),
      carrier_(setup.carrier),
      channel_(of_members<ChannelMember>(setup,
                                         [](const TeamMember& member) {
                                           return ChannelMember{member.region, member.lease};
                                         }),
               setup.me, *setup.layout, setup.wake_mode, Lanes(setup.tuning.oversubscribed)),
      publisher_(
          channel_, shape_, counters_,
          of_members<bool>(setup, [](const TeamMember& member) { return member.reaches_us; }),
          setup.carrier),
      reader_(channel_, shape_, counters_,
              of_members<ReachFile>(setup,
                                    [](const TeamMember& member) {
                                      return ReachFile{member.reach, member.reach_bytes};
                                    }),
              {setup.corrupt, setup.context}, {setup.distance, setup.context}, setup.carrier),
      lines_(channel_, shape_) {}

Team::~Team() = default;

bool Team::advance() {
  bool moved = false;
  while (!reader_.broken()) {
    bool again = false;
    while (first_open_ != nullptr && begin_next()) again = true;
    for (std::uint64_t number = channel_.completed(); number < channel_.next(); ++number) {
      Exchange& x = lane_exchange(number);
      if (x.under_way() && x.number == number && step(x)) again = true;
    }
    if (!again) break;
    moved = true;
  }
  if (any_news_) tell_sleepers();
  return moved;
}

bool Team::anything_ready() const {
  const auto ready = [](const Awaited& awaited) { return awaited.waiting() && awaited.here(); };
  if (first_open_ != nullptr && ready(channel_.awaits_acknowledgement())) return true;
  for (std::uint64_t number = channel_.completed(); number < channel_.next(); ++number) {
    const Exchange& x = lane_exchange(number);
    if (!x.under_way()) continue;
    if (ready(x.show.room) || ready(x.read.content) || message_moves(x)) return true;
  }
  return false;
}

// Whether a message has arrived, or left as the last of what there is to do, or may now be
// received.
bool Team::message_moves(const Exchange& x) const {
  if (carrier_ == nullptr) return false;
  const bool received = Reader::awaits_message(x) && carrier_->received(x.number);
  const bool leaves = x.show.way == Way::message && x.read.over();
  return received || Reader::may_receive(x) || (leaves && carrier_->sent(x.number));
}

const std::atomic<std::uint32_t>* Team::awaited_member() const {
  for (std::uint64_t number = channel_.completed(); number < channel_.next(); ++number) {
    const Exchange& x = lane_exchange(number);
    if (!x.under_way()) continue;
    const std::atomic<std::uint32_t>* missing = nullptr;
    for (int i = x.seat.sources.first; i < x.seat.sources.last; ++i) {
      if (i == x.seat.me) continue;
      const int position = x.member(i);
      if (channel_.has_posted(position, number)) continue;
      missing = channel_.away(position);
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
    const int member = awaited.waiting() ? channel_.owner_of(awaited.word) : -1;
    if (member < 0) return;
    text += std::string(", ") + name + " of member " + std::to_string(member) + " (" +
            std::to_string(awaited.word->load(std::memory_order_relaxed)) + " of " +
            std::to_string(awaited.at_least) + ")";
  };
  for (std::uint64_t number = channel_.completed(); number < channel_.next(); ++number) {
    const Exchange& x = lane_exchange(number);
    if (!x.under_way()) continue;
    text += "exchange " + std::to_string(number) + ": shown " + std::to_string(x.show.filled) +
            " of " + std::to_string(x.show.rounds) + ", read " + std::to_string(x.read.round) +
            " of " + std::to_string(x.read.rounds);
    add("waits for room", x.show.room);
    add("waits for content", x.read.content);
    if (Reader::awaits_message(x)) text += ", waits for a message";
    if (x.show.way == Way::message && !carrier_->sent(x.number)) text += ", sends a message";
    text += "; ";
  }
  if (first_open_ != nullptr) {
    text += "exchange " + std::to_string(channel_.next()) + " has not begun";
    add("waits for acknowledgement", channel_.awaits_acknowledgement());
  }
  return text;
}

// The next exchange of the oldest operation that has any left; false if it cannot begin yet.
bool Team::begin_next() {
  Operation& op = *first_open_;
  Exchange& x = lane_exchange(channel_.next());
  if (x.under_way()) return false;
  if (x.phase == Exchange::Phase::over && !describe_next(op, x)) return false;
  if (!publisher_.prepare(x)) {
    ++counters_.full_waits;
    return false;
  }
  channel_.stop_awaiting_acknowledgement();
  reader_.prepare(x);
  x.phase = Exchange::Phase::under_way;
  ++counters_.exchanges;
  channel_.begin();
  ++op.state_.begun;
  if (op.state_.begun_all()) {
    first_open_ = op.state_.next;
    if (first_open_ == nullptr) last_open_ = nullptr;
  }
  if (!x.show.posted() && x.show.filled_all()) {
    publisher_.post(x);
    any_news_ = true;
  }
  return true;
}

// False while it needs the result of an exchange that is not ready.
bool Team::describe_next(Operation& op, Exchange& x) {
  if (x.news.any()) tell_sleepers();
  if (op.spec_.kind == Operation::Spec::Kind::single) {
    x.spec = op.spec_.single.spec;
    x.part = op.spec_.single.part;
  } else {
    ReductionPlan& plan = op.spec_.reduction;
    if (const auto needs = plan.needs(op.state_.begun)) {
      const std::uint64_t needed = op.state_.first_number + *needs;
      const Exchange& before = lane_exchange(needed);
      if (before.under_way() && before.number == needed && !before.read.over()) return false;
    }
    const PlannedExchange planned = plan.describe(op.state_.begun);
    x.spec = planned.spec;
    x.part = planned.part;
  }
  x.operation = &op;
  x.number = channel_.next();
  const bool all = x.spec.circle == nullptr;
  x.seat = seat_of(x.spec, all ? shape_.me : shape_.groups.place(shape_.me),
                   all ? shape_.size : static_cast<int>(x.spec.circle->size()));
  // The first of an exscan combines nothing.
  if (x.spec.pattern == Pattern::before && x.seat.me == 0 && !x.part.own_operand) {
    x.seat.sources = {};
  }
  x.show = {};
  x.show.reader_cursor = x.show.end_cursor = x.seat.readers.first;
  if (const std::optional<Way> way = lines_.take_shown_ahead()) {
    x.show.phase = Showing::Phase::posted;
    x.show.way = *way;
  }
  x.read = {};
  x.read.into = x.part.in.base;
  x.own_copied = x.turning = false;
  if (x.spec.rooted()) {
    const int root = x.member(x.spec.root);
    x.turning = std::exchange(last_root_, root) != root;
  }
  x.phase = Exchange::Phase::described;
  return true;
}

// Whatever can be done next of an exchange that has begun; true if anything has moved.
bool Team::step(Exchange& x) {
  bool moved = false;
  if (x.show.way == Way::cells && !x.show.filled_all()) moved = publisher_.fill(x);
  if (!x.own_copied) {
    const auto& own = x.part.own_copy;
    if (own.bytes != 0) std::memcpy(own.to, own.from, own.bytes);
    x.own_copied = moved = true;
  }
  if (!x.read.over()) moved = reader_.read_round(x) || moved;
  if (x.news.any()) any_news_ = true;
  if (!x.read.over() || !x.show.filled_all()) return moved;
  if (!publisher_.readers_are_through(x)) return moved;
  retire(x);
  return true;
}

void Team::retire(Exchange& x) {
  x.phase = Exchange::Phase::over;
  Operation::State& op = x.operation->state_;
  ++op.finished;
  if (!x.read.lengths_agree) op.lengths_agree = false;
  if (x.number != channel_.completed()) return;
  std::uint64_t below = channel_.completed();
  do {
    ++below;
  } while (below < channel_.next() && !lane_exchange(below).under_way());
  channel_.complete(below);
  any_news_ = true;
}

// Wakes those who may sleep on what has been published since the last call.
void Team::tell_sleepers() {
  any_news_ = false;
  channel_.order_for_sleepers();
  for (Exchange& x : exchanges_) {
    if (x.news.any()) mark_for_news(channel_, x);
  }
  channel_.mark_for_completed();
  channel_.wake_marked();
}

}  // namespace od::coll::shm
