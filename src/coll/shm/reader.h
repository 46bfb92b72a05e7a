// What a member does with what it is shown in an exchange: it looks for posts, checks where they
// say that bytes are, and copies or combines them, round by round.
//
// A reader touches nothing of what a source shows before it has acquired the source's ticket or
// `made` (Channel::shows, made_by), and tells that it has read only what sources wait for. Nothing
// that a post says is used before it is compared with the sizes of slot and reach file.
#ifndef OVERDRIVE_COLL_SHM_READER_H_
#define OVERDRIVE_COLL_SHM_READER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/shm/carrier.h"
#include "coll/shm/channel.h"
#include "coll/shm/exchange.h"
#include "coll/shm/team_counters.h"
#include "coll/shm/team_shape.h"

namespace od::coll::shm {

// A member's reach file in this process, or null.
struct ReachFile {
  std::byte* start = nullptr;
  std::uint64_t bytes = 0;
};

// What is called when a member's slot contains nonsense: ends the job, or returns, after which
// nothing moves any more.
struct CorruptHandler {
  void (*function)(void* context, int member) = nullptr;
  void* context = nullptr;
};

// What is called with a line that a member has just written, to see how long it takes from there.
struct DistanceHandler {
  void (*function)(void* context, int member, const void* line) = nullptr;
  void* context = nullptr;
};

class Reader {
 public:
  Reader(Channel& channel, const TeamShape& shape, TeamCounters& counters,
         std::vector<ReachFile> reach, CorruptHandler corrupt, DistanceHandler distance,
         Carrier* carrier);

  // When the exchange begins.
  void prepare(Exchange& x);
  // One round; false when it has to wait.
  bool read_round(Exchange& x);
  // Of two members: a message is being received; or is to be, for which there was no memory.
  static bool awaits_message(const Exchange& x) { return announced(x) && of_other(x).expected; }
  static bool may_receive(const Exchange& x) { return announced(x) && !of_other(x).expected; }
  // A member's slot contained nonsense.
  bool broken() const { return broken_; }

 private:
  void look_at_all(Exchange& x);
  bool look(Exchange& x, int source);
  bool resolve(Exchange& x, int source, const Post& post);
  bool resolve_payload(Exchange& x, Shown& s, const Post& post);
  bool resolve_cells(Exchange& x, int source, const Post& post, std::uint64_t after_table);
  bool available(Exchange& x, int source, std::uint32_t round);
  bool arrived(Exchange& x, int source, Shown& s);
  static const Shown& of_other(const Exchange& x) { return x.read.shown[1 - x.seat.me]; }
  static bool announced(const Exchange& x) {
    if (x.seat.size != 2 || x.read.over()) return false;
    return of_other(x).seen && of_other(x).way == Way::message;
  }
  bool copy_round(Exchange& x);
  void copy_shown(Exchange& x, int source, Shown& s);
  bool combine_round(Exchange& x);
  bool combine_groups(Exchange& x);
  const std::byte* own_share(const Exchange& x) const;
  const std::byte* own_operand(const Exchange& x) const;
  void make_scratch(const Exchange& x);

  Channel& channel_;
  const TeamShape& shape_;
  TeamCounters& counters_;
  std::vector<ReachFile> reach_;
  CorruptHandler corrupt_;
  DistanceHandler distance_;
  Carrier* carrier_;
  bool broken_ = false;
  std::vector<Shown> shown_;  // kLanes times one per member
  std::vector<const std::byte*> operands_;
  std::vector<std::byte> scratch_;
  std::byte* aligned_scratch_ = nullptr;  // to a line, as cells are
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_READER_H_
