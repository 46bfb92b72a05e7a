// Hash chains of posted receives and unexpected messages.

#include "p2p/matching.h"

#include <algorithm>
#include <utility>

#include "p2p/comm.h"

namespace od::p2p {

namespace {

constexpr std::size_t kContextBuckets = 64;
constexpr std::size_t kFirstKeyBuckets = 1024;
constexpr std::size_t kUnexpectedSlab = 64;

template <typename Chain, typename T>
void append(Chain& chain, T& item, T* T::*next, T* T::*prev) {
  item.*next = nullptr;
  item.*prev = chain.tail;
  if (chain.tail != nullptr) {
    chain.tail->*next = &item;
  } else {
    chain.head = &item;
  }
  chain.tail = &item;
}

template <typename Chain, typename T>
void unlink(Chain& chain, T& item, T* T::*next, T* T::*prev) {
  (item.*prev != nullptr ? (item.*prev)->*next : chain.head) = item.*next;
  (item.*next != nullptr ? (item.*next)->*prev : chain.tail) = item.*prev;
  item.*next = nullptr;
  item.*prev = nullptr;
}

template <typename Chain, typename T>
void insert_before(Chain& chain, T& item, T& next) {
  item.next = &next;
  item.prev = next.prev;
  (next.prev != nullptr ? next.prev->next : chain.head) = &item;
  next.prev = &item;
}

template <typename Chain, typename T>
void insert_after(Chain& chain, T& item, T& prev) {
  item.prev = &prev;
  item.next = prev.next;
  (prev.next != nullptr ? prev.next->prev : chain.tail) = &item;
  prev.next = &item;
}

}  // namespace

Matching::Matching()
    : exact_(kExactBuckets),
      wild_(kContextBuckets),
      by_key_(kFirstKeyBuckets),
      by_context_(kContextBuckets),
      key_mask_(kFirstKeyBuckets - 1) {}

Matching::~Matching() = default;

std::uint64_t Matching::hash_context(std::uint64_t context) { return context >> 17; }

Matching::Chain<Request>& Matching::chain_of(const Request& receive) {
  if (wild(receive)) return wild_[hash_context(receive.context) & (kContextBuckets - 1)];
  const auto source = static_cast<std::uint32_t>(receive.peer);
  return exact_[hash_exact(receive.context, source, receive.tag) & (kExactBuckets - 1)];
}

void Matching::post(Request& receive) {
  receive.stamp = next_stamp_++;
  ++posted_count_;
  if (wild(receive)) ++wild_count_;
  append(chain_of(receive), receive, &Request::next, &Request::prev);
}

void Matching::add_host_candidate(Request& receive) {
  receive.host_candidate = true;
  ++receive.comm->host_candidates;
  if (receive.tag == host::kAnyTag) ++any_tag_candidates_;
  host_candidates_.push_back(&receive);
}

void Matching::drop_host_candidate(Request& receive) {
  receive.host_candidate = false;
  --receive.comm->host_candidates;
  if (receive.tag == host::kAnyTag) --any_tag_candidates_;
  host_candidates_.erase(std::find(host_candidates_.begin(), host_candidates_.end(), &receive));
}

void Matching::unpost(Request& receive) {
  --posted_count_;
  if (receive.host_candidate) [[unlikely]]
    drop_host_candidate(receive);
  if (wild(receive)) --wild_count_;
  unlink(chain_of(receive), receive, &Request::next, &Request::prev);
}

bool Matching::overtake(Request& receive) {
  // Threads that wait are few; who has more before it waits for its turn.
  constexpr int kMost = 16;
  // Exact receives between the wild ones would have to be looked for everywhere.
  if (receive.host_candidate || (wild(receive) && wild_count_ != posted_count_)) return false;
  Request* first = nullptr;
  int looked = 0;
  for (Request* r = receive.prev; r != nullptr && ++looked <= kMost; r = r->prev) {
    if (r->context != receive.context) continue;
    const bool alike = r->peer == receive.peer && r->tag == receive.tag;
    if (r->blocking) {
      if (alike && !r->host_candidate) first = r;
    } else if (alike || wild(receive)) {
      break;  // keeps its place before this one
    }
  }
  if (first == nullptr) return false;
  if (wild_count_ != 0 && !wild(receive)) {
    for (Request* r = wild_[hash_context(receive.context) & (kContextBuckets - 1)].head;
         r != nullptr && r->stamp < receive.stamp; r = r->next) {
      if (r->stamp > first->stamp && !r->blocking && r->context == receive.context) return false;
    }
  }
  // They change places, with their stamps.
  Chain<Request>& chain = chain_of(receive);
  Request* const before = receive.prev;
  unlink(chain, receive, &Request::next, &Request::prev);
  insert_before(chain, receive, *first);
  if (before != first) {
    unlink(chain, *first, &Request::next, &Request::prev);
    insert_after(chain, *first, *before);
  }
  std::swap(first->stamp, receive.stamp);
  return true;
}

Request* Matching::candidate(std::uint64_t context, std::uint32_t source, std::int32_t tag) {
  Request* best = nullptr;
  for (Request* r = exact_[hash_exact(context, source, tag) & (kExactBuckets - 1)].head;
       r != nullptr; r = r->next) {
    if (accepts(*r, context, source, tag)) {
      best = r;
      break;
    }
  }
  if (wild_count_ != 0) {
    for (Request* r = wild_[hash_context(context) & (kContextBuckets - 1)].head; r != nullptr;
         r = r->next) {
      if (best != nullptr && r->stamp > best->stamp) break;
      if (accepts(*r, context, source, tag)) return r;
    }
  }
  return best;
}

void Matching::hold(std::uint64_t context) {
  const auto known = holding(context);
  if (known == held_.end()) {
    held_.push_back({context, 1});
  } else {
    ++held_[static_cast<std::size_t>(known - held_.begin())].calls;
  }
}

bool Matching::unhold(std::uint64_t context) {
  const auto known = holding(context);
  if (--held_[static_cast<std::size_t>(known - held_.begin())].calls != 0) return false;
  held_.erase(known);
  return true;
}

std::vector<Request*> Matching::posted_in(std::uint64_t context) const {
  std::vector<Request*> found;
  each_posted([&](Request& receive) {
    if (receive.context == context) found.push_back(&receive);
  });
  std::sort(found.begin(), found.end(),
            [](const Request* a, const Request* b) { return a->stamp < b->stamp; });
  return found;
}

std::vector<Unexpected*> Matching::unexpected_in(std::uint64_t context) const {
  std::vector<Unexpected*> found;
  for (Unexpected* m = by_context_[hash_context(context) & (kContextBuckets - 1)].head;
       m != nullptr; m = m->next_in_context) {
    if (m->header.context == context) found.push_back(m);
  }
  return found;
}

Request* Matching::peek_posted(std::uint64_t context, std::uint32_t source, std::int32_t tag) {
  if (held(context)) [[unlikely]]
    return nullptr;
  return candidate(context, source, tag);
}

Request* Matching::find_posted(std::uint64_t context, std::uint32_t source, std::int32_t tag) {
  Request* receive = peek_posted(context, source, tag);
  if (receive != nullptr) unpost(*receive);
  return receive;
}

void Matching::grow_free_list() {
  slabs_.push_back(std::make_unique<Unexpected[]>(kUnexpectedSlab));
  Unexpected* slab = slabs_.back().get();
  for (std::size_t i = 0; i < kUnexpectedSlab; ++i) {
    slab[i].next = free_;
    free_ = &slab[i];
  }
}

void Matching::free_unexpected(Unexpected& message) {
  // Only what the next use does not set itself.
  message.from = Unexpected::Source::local;
  message.envelope = nullptr;
  message.data.reset();
  message.host_message = 0;
  message.synchronous_sender = nullptr;
  message.aside.reset();
  message.next = free_;
  free_ = &message;
}

void Matching::grow_unexpected() {
  std::vector<Chain<Unexpected>> larger(by_key_.size() * 4);
  key_mask_ = larger.size() - 1;
  // By context chain order, so that every key chain keeps the order of arrival.
  for (auto& bucket : by_context_) {
    for (Unexpected* m = bucket.head; m != nullptr; m = m->next_in_context) {
      append(larger[hash_exact(m->header.context, m->header.source, m->header.tag) & key_mask_], *m,
             &Unexpected::next, &Unexpected::prev);
    }
  }
  by_key_ = std::move(larger);
}

void Matching::add_unexpected(Unexpected& message) {
  if (unexpected_count_ >= by_key_.size() * 4) grow_unexpected();
  append(by_key_[hash_exact(message.header.context, message.header.source, message.header.tag) &
                 key_mask_],
         message, &Unexpected::next, &Unexpected::prev);
  append(by_context_[hash_context(message.header.context) & (kContextBuckets - 1)], message,
         &Unexpected::next_in_context, &Unexpected::prev_in_context);
  ++unexpected_count_;
  unexpected_peak_ = std::max(unexpected_peak_, unexpected_count_);
}

void Matching::remove_unexpected(Unexpected& message) {
  unlink(by_key_[hash_exact(message.header.context, message.header.source, message.header.tag) &
                 key_mask_],
         message, &Unexpected::next, &Unexpected::prev);
  unlink(by_context_[hash_context(message.header.context) & (kContextBuckets - 1)], message,
         &Unexpected::next_in_context, &Unexpected::prev_in_context);
  --unexpected_count_;
}

Unexpected* Matching::search_unexpected(std::uint64_t context, int source, int tag) {
  if (source != host::kAnySource && tag != host::kAnyTag) {
    const auto from = static_cast<std::uint32_t>(source);
    for (Unexpected* m = by_key_[hash_exact(context, from, tag) & key_mask_].head; m != nullptr;
         m = m->next) {
      if (m->header.context == context && m->header.source == from && m->header.tag == tag) {
        return m;
      }
    }
    return nullptr;
  }
  for (Unexpected* m = by_context_[hash_context(context) & (kContextBuckets - 1)].head;
       m != nullptr; m = m->next_in_context) {
    if (m->header.context == context &&
        (source == host::kAnySource || m->header.source == static_cast<std::uint32_t>(source)) &&
        (tag == host::kAnyTag || m->header.tag == tag)) {
      return m;
    }
  }
  return nullptr;
}

}  // namespace od::p2p
