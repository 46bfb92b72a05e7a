// What a member shows to others in an exchange: which way, where in its slot, and the post.
//
// Order: the bytes, then `made` or the post's ticket (Channel::tell_made, publish); a reader
// acquires one of them first. A cell is filled again when all its readers have told that they have
// read it. The source alone decides the way; the post tells it.
#ifndef OVERDRIVE_COLL_SHM_PUBLISHER_H_
#define OVERDRIVE_COLL_SHM_PUBLISHER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "coll/shm/carrier.h"
#include "coll/shm/channel.h"
#include "coll/shm/exchange.h"
#include "coll/shm/slot_ring.h"
#include "coll/shm/team_counters.h"
#include "coll/shm/team_shape.h"
#include "memory/send_history.h"

namespace od::coll::shm {

class Publisher {
 public:
  // `reach_us`: for each member whether it has mapped this process's reach file. `carrier`: null if
  // nothing is sent as a message.
  Publisher(Channel& channel, const TeamShape& shape, TeamCounters& counters,
            std::vector<bool> reach_us, Carrier* carrier);

  // Decides the way and takes what room it needs; false while there is none.
  bool prepare(Exchange& x);
  // Shows it, with what is in the cells so far.
  void post(Exchange& x);
  // One piece into its cell, if the cell is free; posts with the first one.
  bool fill(Exchange& x);
  // Whether nobody reads in the program's buffer any more.
  bool readers_are_through(Exchange& x) {
    if (x.show.way == Way::message) return carrier_->sent(x.number);
    return !x.show.awaits_readers() || readers_at(x, kAllSteps, x.show.end_cursor);
  }

 private:
  Way choose_way(const Exchange& x);
  const Tuning::Row& row() const;
  bool message_pays(const Exchange& x, std::uint64_t bytes, bool direct) const;
  bool begin_message(const Exchange& x);
  memory::BufferUse used_before(const Exchange& x);
  bool direct_pays(const Exchange& x, std::uint64_t bytes);
  bool reachable_blocks(const Exchange& x) const;
  static std::uint64_t shown_bytes(const Exchange& x);
  static std::uint64_t block_of_pair(const Exchange& x);
  static std::uint64_t told_bytes(const Exchange& x);
  bool place_result(Exchange& x);
  bool reserve(Exchange& x);
  void populate_window();
  void plan_cells(Exchange& x);
  void fill_piece(Exchange& x);
  static void fill_payload(const Exchange& x, Post& post);
  void fill_table(const Exchange& x, std::uint64_t offset);
  bool readers_at(Exchange& x, std::uint64_t rounds, int& cursor);

  Channel& channel_;
  const TeamShape& shape_;
  TeamCounters& counters_;
  std::vector<bool> reach_us_;
  Carrier* carrier_;
  bool all_reach_us_;
  SlotRing ring_;
  std::uint64_t populated_bytes_ = 0;  // of the ring
  // Places for results, each with the exchange that shows what is in it: its number + 1; 0: unused
  // so far.
  std::array<std::uint64_t, kResults> result_shown_by_{};
  std::uint32_t next_result_ = 0;
  memory::SendHistory history_;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_PUBLISHER_H_
