// Finds the dependencies of steps by the units that they read and write.
#include "coll/plan/builder.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace od::coll {
namespace {

std::uint64_t block_key(Place place) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(place.block)) << 2 |
         static_cast<std::uint64_t>(place.buffer);
}

std::uint64_t peer_key(int peer, StepKind kind) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(peer)) << 1 |
         (kind == StepKind::kSend ? 1u : 0u);
}

}  // namespace

Place Builder::placed(Place place) const {
  if (!framed_ || place.buffer == Buffer::kScratch) return place;
  return (place.buffer == Buffer::kInput ? frame_.input : frame_.output) + place.offset;
}

int Builder::peer_of(int peer) const {
  return framed_ ? frame_.peers[static_cast<std::size_t>(peer)] : peer;
}

void Builder::enter(const Frame& frame) {
  frame_ = frame;
  framed_ = true;
}

void Builder::leave() { framed_ = false; }

Builder::StepId Builder::send(int peer, Place source, std::int64_t count) {
  if (count == 0) return kNoStep;
  return insert(
      {.count = count, .source = placed(source), .peer = peer_of(peer), .kind = StepKind::kSend});
}

Builder::StepId Builder::receive(int peer, Place target, std::int64_t count) {
  if (count == 0) return kNoStep;
  return insert({.count = count,
                 .target = placed(target),
                 .peer = peer_of(peer),
                 .kind = StepKind::kReceive});
}

Builder::StepId Builder::signal(int peer) {
  return insert({.peer = peer_of(peer), .kind = StepKind::kSend});
}

Builder::StepId Builder::await(int peer) {
  return insert({.peer = peer_of(peer), .kind = StepKind::kReceive});
}

Builder::StepId Builder::copy(Place target, Place source, std::int64_t count) {
  if (count == 0 || placed(target) == placed(source)) return kNoStep;
  return insert({.count = count,
                 .target = placed(target),
                 .source = placed(source),
                 .kind = StepKind::kCopy});
}

Builder::StepId Builder::reduce(Place target, Place left, Place right, std::int64_t count) {
  if (count == 0) return kNoStep;
  return insert({.count = count,
                 .target = placed(target),
                 .source = placed(left),
                 .right = placed(right),
                 .kind = StepKind::kReduce});
}

Builder::StepId Builder::node(const Step& step, std::int64_t reads, std::int64_t writes) {
  const StepId id = add(step);
  if (reads != 0) use(id, step.source, reads, false);
  if (writes != 0) use(id, step.target, writes, true);
  settle(id);
  return id;
}

Builder::StepId Builder::elsewhere(Elsewhere work, Place target, Place source, std::int64_t count) {
  const bool reads = work == Elsewhere::kCombine || work == Elsewhere::kShow;
  const bool writes = work == Elsewhere::kCombine || work == Elsewhere::kTake;
  Step step{.count = count,
            .peer = elsewhere_code(work, framed_ ? frame_.slice : 0),
            .kind = StepKind::kElsewhere};
  if (reads) step.source = placed(source);
  if (writes) step.target = placed(target);
  const StepId id = add(step);
  if (count != 0 && reads) use(id, step.source, count, false);
  if (count != 0 && writes) use(id, step.target, count, true);
  settle(id);
  otherwise_ = id;
  return id;
}

void Builder::fence() {
  const StepId first = fence_ == kNoStep ? 0 : fence_;
  const auto end = static_cast<StepId>(steps_.size());
  if (first == end) return;
  if (first == end - 1 && fence_ != kNoStep) return;  // nothing since the last fence
  Step join;
  join.kind = StepKind::kJoin;
  const StepId id = add(join);
  for (StepId step = first; step < end; ++step) {
    if (!has_follower_[static_cast<std::size_t>(step)]) wait_for(step);
  }
  settle(id);
  fence_ = id;
}

void Builder::order(StepId earlier, StepId later) {
  if (earlier == kNoStep || later == kNoStep || earlier == later) return;
  // The edges of the newest step are the last ones.
  for (auto edge = edges_.rbegin(); edge != edges_.rend() && edge->second == later; ++edge) {
    if (edge->first == earlier) return;
  }
  edges_.emplace_back(earlier, later);
  has_follower_[static_cast<std::size_t>(earlier)] = true;
}

Place Builder::scratch(std::int64_t units) {
  if (units <= reuse_end_ - reuse_next_) {
    const Place again{reuse_next_, 0, Buffer::kScratch};
    reuse_next_ += units;
    return again;
  }
  const Place place{scratch_units_, 0, Buffer::kScratch};
  scratch_units_ += units;
  return place;
}

void Builder::reuse_scratch(std::int64_t begin, std::int64_t end) {
  reuse_next_ = begin;
  reuse_end_ = end;
}

Schedule Builder::finish() {
  Schedule schedule;
  const std::size_t count = steps_.size();
  schedule.waits.assign(count, 0);
  schedule.first_follower.assign(count + 1, 0);
  for (const auto& [earlier, later] : edges_) {
    ++schedule.waits[static_cast<std::size_t>(later)];
    ++schedule.first_follower[static_cast<std::size_t>(earlier) + 1];
  }
  for (std::size_t i = 0; i < count; ++i) {
    schedule.first_follower[i + 1] += schedule.first_follower[i];
  }
  schedule.followers.resize(edges_.size());
  std::vector<std::uint32_t> next(schedule.first_follower.begin(), schedule.first_follower.end());
  for (const auto& [earlier, later] : edges_) {
    schedule.followers[next[static_cast<std::size_t>(earlier)]++] =
        static_cast<std::uint32_t>(later);
  }
  schedule.steps = std::move(steps_);
  schedule.scratch_units = scratch_units_;
  schedule.ordinals = ordinals_;
  schedule.node_steps = node_steps_;
  *this = Builder();
  return schedule;
}

// What a step reads and writes follows from its kind, but for steps of the node.
Builder::StepId Builder::insert(const Step& step) {
  const StepKind kind = step.kind;
  const bool reads_source =
      kind == StepKind::kSend || kind == StepKind::kCopy || kind == StepKind::kReduce;
  const StepId id = add(step);
  if (step.count != 0) {
    if (reads_source) use(id, step.source, step.count, false);
    if (kind == StepKind::kReduce) use(id, step.right, step.count, false);
    if (kind != StepKind::kSend) use(id, step.target, step.count, true);
  }
  settle(id);
  return id;
}

Builder::StepId Builder::add(const Step& step) {
  const auto id = static_cast<StepId>(steps_.size());
  steps_.push_back(step);
  steps_.back().segment = segment_;
  steps_.back().otherwise = otherwise_ != kNoStep;
  has_follower_.push_back(false);
  if (step.kind == StepKind::kSend || step.kind == StepKind::kReceive) {
    std::uint32_t& next = sent_[peer_key(step.peer, step.kind)];
    next = std::max(next, least_ordinal_);
    steps_.back().ordinal = next++;
    ordinals_ = std::max(ordinals_, next);
  }
  if (step.kind == StepKind::kNode) steps_.back().ordinal = node_steps_++;
  current_waits_.clear();
  if (otherwise_ != kNoStep) wait_for(otherwise_);
  return id;
}

// Splits the span that contains `at`, so that one starts there; returns the first span from `at`
// on.
Builder::Spans::iterator Builder::split(Spans& spans, std::int64_t at) {
  auto next = spans.lower_bound(at);
  if (next == spans.begin() || (next != spans.end() && next->first == at)) return next;
  const auto before = std::prev(next);
  if (before->second.end <= at) return next;
  Span rest = before->second;
  before->second.end = at;
  return spans.emplace_hint(next, at, std::move(rest));
}

void Builder::use(StepId step, Place place, std::int64_t count, bool writes) {
  Spans& spans = memory_[block_key(place)];
  const std::int64_t begin = place.offset;
  const std::int64_t end =
      count == kWholeBlock ? std::numeric_limits<std::int64_t>::max() : begin + count;
  auto span = split(spans, begin);
  split(spans, end);
  std::int64_t at = begin;
  span = spans.lower_bound(begin);
  while (at < end) {
    if (span == spans.end() || span->first > at) {
      const std::int64_t gap_end = span == spans.end() ? end : std::min(end, span->first);
      span = spans.emplace_hint(span, at, Span{gap_end, kNoStep, {}});
    }
    Span& found = span->second;
    if (found.writer != kNoStep && found.writer != step) wait_for(found.writer);
    if (writes) {
      for (const StepId reader : found.readers) {
        if (reader != step) wait_for(reader);
      }
      found.readers.clear();
      found.writer = step;
    } else {
      found.readers.push_back(step);
    }
    at = found.end;
    ++span;
  }
  if (!writes) return;
  // One history from here on: the map stays as small as the pieces in use.
  auto first = spans.find(begin);
  for (auto other = std::next(first); other != spans.end() && other->first < end;) {
    other = spans.erase(other);
  }
  first->second.end = end;
}

void Builder::wait_for(StepId earlier) { current_waits_.push_back(earlier); }

// Enters the edges of a new step.
void Builder::settle(StepId step) {
  std::sort(current_waits_.begin(), current_waits_.end());
  current_waits_.erase(std::unique(current_waits_.begin(), current_waits_.end()),
                       current_waits_.end());
  // A wait for something behind the fence includes the fence and all before it.
  if (fence_ != kNoStep && steps_[static_cast<std::size_t>(step)].kind != StepKind::kJoin) {
    const bool behind = !current_waits_.empty() && current_waits_.back() > fence_;
    current_waits_.erase(current_waits_.begin(),
                         std::lower_bound(current_waits_.begin(), current_waits_.end(), fence_));
    if (!behind && (current_waits_.empty() || current_waits_.front() != fence_)) {
      current_waits_.insert(current_waits_.begin(), fence_);
    }
  }
  for (const StepId earlier : current_waits_) {
    edges_.emplace_back(earlier, step);
    has_follower_[static_cast<std::size_t>(earlier)] = true;
  }
}

}  // namespace od::coll
