// Whether all ranks of a job run this library, found out without a collective operation of the
// host that a rank without it would never join.
//
//   before the host's MPI_Init   every rank opens a socket with a name that follows from the job
//                                and its local rank, and pins up its build on the job's board
//   after it                     the leader (local rank 0) connects to the sockets of the others.
//                                MPI_Init has synchronised the job: who has no socket is not here
//   between nodes                leaders look up the ranks of other nodes on the board
//   in the end                   the leader tells its node what it has found
// A rank whose leader has no socket is on its own and knows that much. Where the host's MPI_Init
// did not synchronise, a missing socket is looked for again for one second.
#ifndef OVERDRIVE_NODE_ROLL_CALL_H_
#define OVERDRIVE_NODE_ROLL_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/launcher.h"
#include "node/star.h"

namespace od::node {

// A place where every rank of a job can leave a number before the host's MPI_Init and read those of
// all others after it, at once: the key-value store of the launcher.
class Board {
 public:
  virtual ~Board() = default;
  // Whether there is one, and this rank's number has been left there.
  virtual bool usable() const = 0;
  // What the rank has left; nothing: it has left nothing.
  virtual std::optional<std::uint64_t> look_up(int rank) = 0;
};

enum class Attendance {
  everybody,    // all ranks of the job run this build, and all know it
  incomplete,   // some do not; everybody who does knows it and stays passive
  unknown,      // no evidence either way
  unspeakable,  // some do not, and ranks on other nodes cannot learn it
};

struct Muster {
  Attendance attendance = Attendance::unknown;
  std::string missing;         // who, and why that counts
  bool speaks = true;          // whether it is this rank's turn to say it
  std::unique_ptr<Star> star;  // with `everybody`, if the whole job is on this node
};

class RollCall {
 public:
  // For hosts whose MPI_Init does not synchronise; all others need none of it.
  static constexpr std::uint64_t kAbsentLimitNs = 1'000'000'000;

  // `build` is equal for libraries that understand each other; `version` is for people. Who is not
  // there is looked for so long.
  RollCall(const LaunchView& view, std::uint64_t build, std::string version,
           std::uint64_t absent_limit_ns = kAbsentLimitNs);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  // Before the host's MPI_Init.
  void announce();
  // After it. Blocks for leader or followers, which the host's MPI_Init has let go; for those who
  // are not there at most for a second. `board` may be null.
  Muster meet(int world_rank, int world_size, Board* board);
  // Whether this rank's socket may go: nobody looks for it any more.
  bool done() const { return listener_ < 0; }

 private:
  struct Card;
  struct Follower {
    int socket = -1;
    bool missing = true;
    std::unique_ptr<Card> card;
  };

  std::uint64_t name_of(int local_rank) const;
  Card own_card(bool on_board) const;
  Muster lead(Board* board);
  Muster follow(Board* board);
  bool greet(Follower& follower, int local_rank) const;
  bool call_followers(std::vector<Follower>& followers, bool* thrifty) const;
  Muster judge(const std::vector<Follower>& followers, Board* board) const;
  std::string names_of_missing(const std::vector<Follower>& followers) const;
  void leaderless(Muster& muster) const;

  const LaunchView view_;
  const std::uint64_t build_;
  const std::string version_;
  const std::uint64_t absent_limit_ns_;
  int listener_ = -1;
  int announce_error_ = 0;
};

}  // namespace od::node

#endif  // OVERDRIVE_NODE_ROLL_CALL_H_
