// The words by which the members of a team tell each other what they show, have read and have
// finished: lanes and tickets, acknowledgements, and who sleeps and has to be woken.
//
// Invariants: only the owner writes to a slot; tickets and step words only grow; a post is written
// again only when every member has completed the exchange that used it before. Every store and load
// of these words that orders anything is here, with its pairing; what is shown is the publisher's
// matter, what is done with it the reader's (publisher.h, reader.h). Nothing here waits.
#ifndef OVERDRIVE_COLL_SHM_CHANNEL_H_
#define OVERDRIVE_COLL_SHM_CHANNEL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/shm/slot_layout.h"
#include "coll/shm/slots.h"
#include "node/region_layout.h"
#include "node/wait.h"

namespace od::coll::shm {

// Waiting for a word of another member.
struct Awaited {
  const std::atomic<std::uint64_t>* word = nullptr;  // null: not waiting
  std::uint64_t at_least = 0;

  bool waiting() const { return word != nullptr; }
  // Pairs with the release of whoever shows or acknowledges something by the word.
  bool here() const { return word == nullptr || word->load(std::memory_order_acquire) >= at_least; }
};

// A member's slot, as it told.
struct ChannelMember {
  std::byte* region = nullptr;  // start of its region in this process
  SlotLease lease;
};

class Channel {
 public:
  Channel(const std::vector<ChannelMember>& members, int me, const od::node::RegionLayout& layout,
          od::node::WakeMode wake_mode, Lanes lanes = Lanes(false));

  int size() const { return static_cast<int>(peers_.size()); }
  int me() const { return me_; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  std::byte* slot(int i) const { return peer(i).slot; }
  // The member in whose slot a word lies, for reports; -1: none.
  int owner_of(const void* word) const;

  // --- Numbers: of the exchange that begins next, and below which all are over here.
  std::uint64_t next() const { return next_; }
  std::uint64_t completed() const { return completed_; }
  bool quiet() const { return next_ == completed_; }
  void begin() { ++next_; }
  // All exchanges below this one are over here: this member reads nothing of them any more.
  void complete(std::uint64_t below) {
    completed_ = below;
    completed_untold_ = true;
    // Release: everything of them has been read; pairs with the acquire in acknowledged() and in
    // Slots::allocate().
    peer(me_).control->completed.store(peer(me_).base + below, std::memory_order_release);
  }
  // What a post tells of it in passing.
  std::uint32_t completed_low() const {
    return static_cast<std::uint32_t>(peer(me_).base + completed_);
  }

  // --- Posts and step words. Exchange n of a member has its ticket base + n + 1.
  std::uint64_t ticket(int i, std::uint64_t number) const { return peer(i).base + number + 1; }
  const Lanes& lanes() const { return lanes_; }
  Post& post(int i, std::uint64_t number) const { return lanes_.post(peer(i).control, number); }
  Post& own_post(std::uint64_t number) const { return post(me_, number); }

  // The line by which readers see how far away the member is; null: with this post there is none.
  // It lies where the exchange would be shown as a line.
  std::byte* timed_line(int i, std::uint64_t number, const Post& post) const {
    if (post.way != Way::cells && post.way != Way::direct) return nullptr;
    if (number % kTimedInterval != 0 || post.place.bytes < kTimedMinBytes) return nullptr;
    if (lanes_.cell_bytes() < kLinesBytes) return nullptr;  // ranks share cores
    return slot(i) + lanes_.cell_offset(number) + kLinesBytes / 2;
  }

  // The post is written, and the pieces that it tells of.
  void publish(std::uint64_t number) {
    // Release: the post's content, and the cells filled so far; pairs with the acquire in shows()
    // and in LineServer::lines_here().
    own_post(number).ticket.store(ticket(me_, number), std::memory_order_release);
  }
  // Whether the post can be read. Not overtaken: a member overwrites its post only when this one
  // has completed the exchange.
  bool shows(int i, std::uint64_t number) const {
    // Pairs with the release in publish().
    return post(i, number).ticket.load(std::memory_order_acquire) == ticket(i, number);
  }
  Awaited post_of(int i, std::uint64_t number) const {
    return {&post(i, number).ticket, ticket(i, number)};
  }
  // To be followed by an acquire (shows()) before anything of the post is read.
  bool has_posted(int i, std::uint64_t number) const {
    return post(i, number).ticket.load(std::memory_order_relaxed) >= ticket(i, number);
  }

  // So many pieces of the own blocks are in the cells.
  void tell_made(std::uint64_t number, std::uint64_t pieces) {
    // Release: the piece; pairs with the acquire in made_by().
    lane(me_, number).made.store(step_word(ticket(me_, number), pieces), std::memory_order_release);
  }
  // How many pieces of that member are there, if it has told more than its post did; else 0.
  std::uint32_t made_by(int i, std::uint64_t number) const {
    // Pairs with the release in tell_made().
    const std::uint64_t word = lane(i, number).made.load(std::memory_order_acquire);
    const std::uint64_t none = step_word(ticket(i, number), 0);
    return word > none ? static_cast<std::uint32_t>(word - none) : 0;
  }
  Awaited pieces_of(int i, std::uint64_t number, std::uint64_t pieces) const {
    return {&lane(i, number).made, step_word(ticket(i, number), pieces)};
  }

  // So many rounds of all sources have been read; kAllSteps: nothing more is.
  void tell_read(std::uint64_t number, std::uint64_t rounds) {
    // Release: the loads are over; pairs with the acquire in Awaited::here() of rounds_of().
    lane(me_, number).read.store(step_word(ticket(me_, number), rounds), std::memory_order_release);
  }
  Awaited rounds_of(int i, std::uint64_t number, std::uint64_t rounds) const {
    return {&lane(i, number).read, step_word(ticket(i, number), rounds)};
  }
  // A hint that orders nothing, for waking.
  bool has_read_all(int i, std::uint64_t number) const {
    return lane(i, number).read.load(std::memory_order_relaxed) >=
           step_word(ticket(i, number), kAllSteps);
  }

  // --- Acknowledgement: whether all exchanges below this one are over for every member. Where not,
  // awaits_acknowledgement() says whose word is missing, unless that is this member's own.
  bool acknowledged(std::uint64_t exchange) {
    return acknowledged_ >= exchange || look_for_acknowledgement(exchange);
  }
  // Whether the post of this exchange shows nothing any more that somebody may still want.
  bool post_free(std::uint64_t number) {
    return number < lanes_.posts() || acknowledged(number - lanes_.posts() + 1);
  }
  // And the cell for its line, of which there may be fewer.
  bool cell_free(std::uint64_t number) {
    return number < lanes_.cells() || acknowledged(number - lanes_.cells() + 1);
  }
  // The same of an exchange so many later, as far as it can be told without waiting for it.
  bool cell_seems_free(std::uint64_t number) const {
    return number < lanes_.cells() || seems_acknowledged(number - lanes_.cells() + 1);
  }
  std::uint64_t acknowledged_below() const { return acknowledged_; }
  const Awaited& awaits_acknowledgement() const { return awaits_acknowledgement_; }
  void stop_awaiting_acknowledgement() { awaits_acknowledgement_ = {}; }
  // What a post tells in passing: the low half of a word that only grows.
  void note_completed(int i, std::uint32_t completed_low) {
    Peer& from = peer(i);
    const auto known_low = static_cast<std::uint32_t>(from.base + from.known_completed);
    const std::uint32_t more = completed_low - known_low;
    // A post that is older than what is known already looks like a huge step.
    if (more < (std::uint32_t{1} << 31)) from.known_completed += more;
  }
  // What others have to say before the slot serves again (Slots::release), when all is over here.
  std::vector<Slots::Acknowledgement> acknowledgements() const;

  // --- Sleepers. After publishing: order_for_sleepers(), then look who is to be told, mark() them,
  // and wake_marked(). docs/design/collectives-in-a-node.md says why no wake-up is lost.

  // With a core for each rank whoever may wait is woken at once; else by the one that finds that
  // nothing is missing any more.
  bool wakes_at_once() const { return wake_mode_.expedited; }
  // Between publishing something and looking who sleeps; pairs with the barrier in Idler::step.
  void order_for_sleepers() const {
    if (wake_mode_.expedited) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  void mark(int i) { peer(i).to_wake = true; }
  // If more exchanges are over here than sleepers were told of: those who wait for that.
  void mark_for_completed();
  // Those who are marked and asleep.
  void wake_marked();
  // All others, at once: that something is shown, or that an exchange is over.
  void wake_for_post();
  void wake_for_completed();
  // Whether that member has given its core away (node/region_layout.h); only a hint.
  const std::atomic<std::uint32_t>* away(int i) const { return peer(i).away; }
  std::uint64_t wakes() const { return wakes_; }

  // --- For statistics (arrivals.cc): when this member was called for the operation whose first
  // exchange this is, and how far apart all members were. False: not known of all of them.
  void note_arrival(std::uint64_t number, std::uint64_t ns);
  bool arrivals_apart(std::uint64_t number, std::uint64_t* ns) const;

 private:
  struct Peer {
    SlotControl* control = nullptr;
    std::byte* slot = nullptr;
    std::atomic<std::uint32_t>* armed = nullptr;
    const std::atomic<std::uint32_t>* away = nullptr;
    std::uint64_t base = 0;
    std::uint64_t known_completed = 0;  // at least so many exchanges are over for it
    bool to_wake = false;

    // Asleep until somebody's `completed` grows; ordered by the barriers around the armed word.
    bool wants_acknowledgement() const {
      return control->wants_acks.load(std::memory_order_relaxed) != 0;
    }
  };

  Lane& lane(int i, std::uint64_t number) const { return peer(i).control->lanes[number % kLanes]; }
  Peer& peer(int i) { return peers_[static_cast<std::size_t>(i)]; }
  const Peer& peer(int i) const { return peers_[static_cast<std::size_t>(i)]; }
  bool look_for_acknowledgement(std::uint64_t exchange);
  bool seems_acknowledged(std::uint64_t exchange) const;
  void wake_if_asleep(const Peer& p);

  int me_;
  std::uint64_t slot_bytes_;
  od::node::WakeMode wake_mode_;
  Lanes lanes_;
  std::vector<Peer> peers_;
  std::uint64_t next_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t acknowledged_ = 0;  // all below are over everywhere
  Awaited awaits_acknowledgement_;
  bool completed_untold_ = false;
  std::uint64_t wakes_ = 0;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_CHANNEL_H_
