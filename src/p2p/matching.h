// Who gets which message: posted receives and unexpected messages of one rank, in MPI's order.
//
// Receives without wildcards and all messages hang in buckets hashed by (context, source, tag);
// receives with a wildcard in buckets hashed by context, each stamped in posting order, so that an
// arriving message compares two candidates at most per bucket and takes the older. Messages hang in
// a second chain hashed by context, in order of arrival, for receives and probes with wildcards.
// Matching is O(1) however many receives or messages wait, wildcards excepted. Private to the rank.
#ifndef OVERDRIVE_P2P_MATCHING_H_
#define OVERDRIVE_P2P_MATCHING_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "host/host_table.h"
#include "p2p/envelope.h"
#include "p2p/fast_box.h"
#include "p2p/request.h"

namespace od::p2p {

// A message that has arrived before its receive.
struct Unexpected {
  enum class Source : std::uint8_t {
    local,  // header.kind says where the payload is
    self,   // sent by this process; payload in `data`
    host,   // matched by a probe through the host; `host_message` receives it
    aside,  // being received into `data` by `aside`, before its own receive is known
  };
  MessageHeader header;
  Source from = Source::local;
  std::uint16_t node_index = 0;  // sender
  std::uint64_t bytes = 0;
  CellDescriptor cell{};                  // kind cell
  unsigned frame = 0;                     // kind frame: which
  Envelope* envelope = nullptr;           // kind stream, or a listed message that stays there
  StreamDescriptor stream{};              // kind stream; `generation` also of a listed message
  std::unique_ptr<unsigned char[]> data;  // payload that left its box and exceeds `small`, or self
  unsigned char small[64];                // shorter payload that left its box
  host::Handle host_message = 0;
  Request* synchronous_sender = nullptr;  // self: completes when matched
  std::unique_ptr<Request> aside;         // see Receiver::take_aside

  Unexpected* next = nullptr;  // same bucket, or free list
  Unexpected* prev = nullptr;
  Unexpected* next_in_context = nullptr;  // order of arrival
  Unexpected* prev_in_context = nullptr;
};

class Matching {
 public:
  Matching();
  ~Matching();
  Matching(const Matching&) = delete;
  Matching& operator=(const Matching&) = delete;

  // --- posted receives -----------------------------------------------------------------------
  void post(Request& receive);
  void unpost(Request& receive);
  // The receive that an arriving message belongs to, removed from the queue; null if none.
  Request* match_posted(std::uint64_t context, std::uint32_t source, std::int32_t tag) {
    if (posted_count_ == 0) return nullptr;
    if (wild_count_ == 0) [[likely]] {
      // Nearly always the first of its chain: most chains hold receives of one kind.
      Chain<Request>& chain = exact_[hash_exact(context, source, tag) & (kExactBuckets - 1)];
      Request* const first = chain.head;
      if (first != nullptr && first->context == context &&
          first->peer == static_cast<int>(source) && first->tag == tag && !first->host_candidate)
          [[likely]] {
        chain.head = first->next;
        (chain.head != nullptr ? chain.head->prev : chain.tail) = nullptr;
        first->next = nullptr;
        --posted_count_;
        return first;
      }
    }
    return find_posted(context, source, tag);
  }
  // The oldest posted receive of `context` that accepts (source, tag), not removed.
  Request* peek_posted(std::uint64_t context, std::uint32_t source, std::int32_t tag);
  std::uint64_t posted_count() const { return posted_count_; }
  // Marks a posted receive as one that the host may serve; unpost() takes the mark away.
  void add_host_candidate(Request& receive);
  // Posted receives that the host may serve, oldest first; how many of them take any tag.
  const std::vector<Request*>& host_candidates() const { return host_candidates_; }
  std::size_t host_candidates_of_any_tag() const { return any_tag_candidates_; }

  // While a context is held, arriving messages match nothing and wait among the unexpected ones:
  // the oldest receive that accepts them may be taken by the host at any time (lent_receives.cc).
  // Only while a receive from any source is posted there. Calls count.
  void hold(std::uint64_t context);
  // True if the context is no longer held.
  bool unhold(std::uint64_t context);
  bool held(std::uint64_t context) const {
    return !held_.empty() && holding(context) != held_.end();
  }
  bool holds_any() const { return !held_.empty(); }
  // Lets a posted receive of a blocking call go before older ones of the same source and tag that
  // are of blocking calls as well. Their calls are under way in other threads now, so that MPI
  // knows no order among them; the thread whose receive this is looks for messages, and the others
  // would have to be given the processor first. True if it has gone before any.
  bool bring_forward(Request& receive) {
    if (receive.prev == nullptr) [[likely]]
      return false;  // the first of its chain, or not posted any more
    return overtake(receive);
  }
  // Posted receives of a context, oldest first.
  std::vector<Request*> posted_in(std::uint64_t context) const;
  static bool accepts(const Request& receive, std::uint64_t context, std::uint32_t source,
                      std::int32_t tag) {
    return receive.context == context &&
           (receive.peer == host::kAnySource || receive.peer == static_cast<int>(source)) &&
           (receive.tag == host::kAnyTag || receive.tag == tag);
  }

  // --- unexpected messages -------------------------------------------------------------------
  Unexpected* new_unexpected() {
    if (free_ == nullptr) [[unlikely]]
      grow_free_list();
    Unexpected* message = free_;
    free_ = message->next;
    message->next = nullptr;
    return message;
  }
  void add_unexpected(Unexpected& message);
  // The oldest message that a receive (source and tag may be wildcards) accepts; not removed.
  Unexpected* find_unexpected(std::uint64_t context, int source, int tag) {
    if (unexpected_count_ == 0) return nullptr;
    return search_unexpected(context, source, tag);
  }
  void remove_unexpected(Unexpected& message);
  void free_unexpected(Unexpected& message);
  std::uint64_t unexpected_count() const { return unexpected_count_; }
  std::uint64_t unexpected_peak() const { return unexpected_peak_; }
  // Messages of a context, in order of arrival.
  std::vector<Unexpected*> unexpected_in(std::uint64_t context) const;
  // Calls visit(message) for each message of a context; the visitor may not change the queue.
  template <typename Visit>
  void each_unexpected(Visit&& visit) const {
    for (const auto& bucket : by_context_) {
      for (Unexpected* m = bucket.head; m != nullptr; m = m->next_in_context) visit(*m);
    }
  }
  template <typename Visit>
  void each_posted(Visit&& visit) const {
    for (const auto& bucket : exact_) {
      for (Request* r = bucket.head; r != nullptr; r = r->next) visit(*r);
    }
    for (const auto& bucket : wild_) {
      for (Request* r = bucket.head; r != nullptr; r = r->next) visit(*r);
    }
  }

 private:
  template <typename T>
  struct Chain {
    T* head = nullptr;
    T* tail = nullptr;
  };

  Request* find_posted(std::uint64_t context, std::uint32_t source, std::int32_t tag);
  bool overtake(Request& receive);
  Chain<Request>& chain_of(const Request& receive);
  Request* candidate(std::uint64_t context, std::uint32_t source, std::int32_t tag);
  Unexpected* search_unexpected(std::uint64_t context, int source, int tag);
  void grow_unexpected();
  void grow_free_list();
  void drop_host_candidate(Request& receive);
  // Posted receives rarely exceed a few thousand; chains stay short well beyond.
  static constexpr std::size_t kExactBuckets = 1024;
  static std::uint64_t hash_exact(std::uint64_t context, std::uint32_t source, std::int32_t tag) {
    // Multiplicative mixing; contexts are hashes already, sources and tags are small and dense.
    std::uint64_t h =
        context ^ ((static_cast<std::uint64_t>(source) << 32) | static_cast<std::uint32_t>(tag));
    h *= 0x9e3779b97f4a7c15;
    return h >> 32;
  }
  static std::uint64_t hash_context(std::uint64_t context);
  static bool wild(const Request& receive) {
    return receive.peer == host::kAnySource || receive.tag == host::kAnyTag;
  }

  std::vector<Chain<Request>> exact_;
  std::vector<Chain<Request>> wild_;
  std::vector<Chain<Unexpected>> by_key_;
  std::vector<Chain<Unexpected>> by_context_;
  std::uint64_t key_mask_;
  std::uint64_t posted_count_ = 0;
  std::uint64_t wild_count_ = 0;
  std::uint64_t unexpected_count_ = 0;
  std::uint64_t unexpected_peak_ = 0;
  std::uint64_t next_stamp_ = 1;
  std::vector<Request*> host_candidates_;
  std::size_t any_tag_candidates_ = 0;
  struct Held {
    std::uint64_t context;
    std::uint64_t calls;  // of hold()
  };
  std::vector<Held>::const_iterator holding(std::uint64_t context) const {
    return std::find_if(held_.begin(), held_.end(),
                        [context](const Held& held) { return held.context == context; });
  }
  std::vector<Held> held_;
  Unexpected* free_ = nullptr;
  std::vector<std::unique_ptr<Unexpected[]>> slabs_;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_MATCHING_H_
