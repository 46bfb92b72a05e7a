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

}  // namespace

Matching::Matching()
    : exact_(kExactBuckets),
      wild_(kContextBuckets),
      by_key_(kFirstKeyBuckets),
      by_context_(kContextBuckets),
      key_mask_(kFirstKeyBuckets - 1) {}

Matching::~Matching() = default;

std::uint64_t Matching::hash_context(std::uint64_t context) { return context >> 17; }

void Matching::post(Request& receive) {
  receive.stamp = next_stamp_++;
  ++posted_count_;
  if (wild(receive)) {
    ++wild_count_;
    append(wild_[hash_context(receive.context) & (kContextBuckets - 1)], receive, &Request::next,
           &Request::prev);
  } else {
    append(
        exact_[hash_exact(receive.context, static_cast<std::uint32_t>(receive.peer), receive.tag) &
               (kExactBuckets - 1)],
        receive, &Request::next, &Request::prev);
  }
}

void Matching::add_host_candidate(Request& receive) {
  receive.host_candidate = true;
  ++receive.comm->host_candidates;
  host_candidates_.push_back(&receive);
}

void Matching::drop_host_candidate(Request& receive) {
  receive.host_candidate = false;
  --receive.comm->host_candidates;
  host_candidates_.erase(std::find(host_candidates_.begin(), host_candidates_.end(), &receive));
}

void Matching::unpost(Request& receive) {
  --posted_count_;
  if (receive.host_candidate) [[unlikely]]
    drop_host_candidate(receive);
  if (wild(receive)) {
    --wild_count_;
    unlink(wild_[hash_context(receive.context) & (kContextBuckets - 1)], receive, &Request::next,
           &Request::prev);
  } else {
    unlink(
        exact_[hash_exact(receive.context, static_cast<std::uint32_t>(receive.peer), receive.tag) &
               (kExactBuckets - 1)],
        receive, &Request::next, &Request::prev);
  }
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

bool Matching::unhold(std::uint64_t context) {
  held_.erase(std::find(held_.begin(), held_.end(), context));
  return !held(context);
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
