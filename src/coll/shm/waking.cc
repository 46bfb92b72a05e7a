// Readers that are told of posts and pieces, sources that are told of rounds.

#include "coll/shm/waking.h"

namespace od::coll::shm {

namespace {

// The lowest of those who take part that should post but has not.
int first_missing_post(const Channel& channel, const ExchangeSpec& spec, const Seat& seat,
                       std::uint64_t number) {
  if (spec.pattern == Pattern::from_root) return seat.size;
  for (int i = 0; i < seat.size; ++i) {
    if (i == seat.me || (spec.pattern == Pattern::to_root && i == spec.root)) continue;
    if (!channel.has_posted(spec.member(i), number)) return i;
  }
  return seat.size;
}

// How many members may still tell that they have read everything, and one of them. Those that find
// nothing to tell (all they read was in cells, or empty) count as well: there is one at most whom
// somebody waits for, the only source that shows its buffer. Where there may be more, nobody
// counts.
int late_readers(const Channel& channel, const Exchange& x, int& late) {
  const ExchangeSpec& spec = x.spec;
  const ExchangePart& part = x.part;
  if (spec.pattern == Pattern::before || x.read.irregular) return 0;
  if (part.own_places || part.out.sizes != nullptr || part.in.sizes != nullptr) return 0;
  int count = 0;
  for (int i = 0; i < x.seat.size; ++i) {
    if (i == x.seat.me) continue;
    const bool reads = spec.pattern == Pattern::everyone ||
                       (spec.pattern == Pattern::from_root ? i != spec.root : i == spec.root);
    if (!reads) continue;
    // An empty slice.
    if (spec.pattern == Pattern::everyone && spec.content == Content::each &&
        part.out.size(i) == 0) {
      continue;
    }
    if (!channel.has_read_all(spec.member(i), x.number)) {
      late = i;
      ++count;
    }
  }
  return count;
}

}  // namespace

void mark_readers(Channel& channel, const ExchangeSpec& spec, const Seat& seat,
                  std::uint64_t number) {
  if (spec.combines_groups()) {
    // Each needs a few of the results only: whoever needs this one may need no other.
    const std::uint64_t each = spec.across.final_each();
    for (int i = 0; i < channel.size(); ++i) {
      const std::uint64_t from = each * static_cast<std::uint64_t>(i);
      if (spec.across.holds(channel.me(), from, from + each)) channel.mark(i);
    }
    return;
  }
  // Readers of which all sources have posted.
  const int posted =
      channel.wakes_at_once() ? seat.size : first_missing_post(channel, spec, seat, number);
  for (int i = seat.readers.first; i < seat.readers.last; ++i) {
    const int last_source = spec.pattern == Pattern::before ? i : seat.size;
    if (spec.pattern == Pattern::from_root || posted >= last_source) channel.mark(spec.member(i));
  }
}

void mark_for_news(Channel& channel, Exchange& x) {
  const Seat& seat = x.seat;
  if (x.news.post) {
    mark_readers(channel, x.spec, seat, x.number);
  } else if (x.news.made) {
    for (int i = seat.readers.first; i < seat.readers.last; ++i) channel.mark(x.member(i));
  }
  if (x.news.round || x.news.end) {
    int late = -1;
    const bool count = !x.news.round && !channel.wakes_at_once();
    const int late_ones = count ? late_readers(channel, x, late) : 0;
    if (late_ones == 0) {
      for (int i = seat.sources.first; i < seat.sources.last; ++i) channel.mark(x.member(i));
    } else if (late_ones == 1) {
      // It does not wait for itself.
      channel.mark(x.member(late));
    }
  }
  x.news = {};
}

}  // namespace od::coll::shm
