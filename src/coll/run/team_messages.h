// The messages between two members of a team (coll/shm/carrier.h), by our own transport.
//
// They have the team's own context, in which the members have told each other their slots before
// (tag 0, coll/run/team.h); their tag is the exchange's number, so that neither side needs to wait
// for the other. Used under the rank's lock.
#ifndef OVERDRIVE_COLL_RUN_TEAM_MESSAGES_H_
#define OVERDRIVE_COLL_RUN_TEAM_MESSAGES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "coll/shm/carrier.h"
#include "coll/shm/slot_layout.h"
#include "p2p/endpoint.h"

namespace od {

class TeamMessages final : public coll::shm::Carrier {
 public:
  // `members` are the team's ranks in `comm`; all of it outlives this.
  TeamMessages(p2p::Endpoint& endpoint, Comm& comm, const std::vector<int>& members,
               std::uint64_t context)
      : endpoint_(endpoint), comm_(comm), members_(members), context_(context) {}
  TeamMessages(const TeamMessages&) = delete;
  TeamMessages& operator=(const TeamMessages&) = delete;

  bool send(std::uint64_t exchange, int member, const std::byte* from,
            std::uint64_t bytes) override;
  bool receive(std::uint64_t exchange, int member, std::byte* to, std::uint64_t bytes) override;
  bool sent(std::uint64_t exchange) override { return over(place(sends_, exchange)); }
  bool received(std::uint64_t exchange) override { return over(place(receives_, exchange)); }

 private:
  // Of the exchanges that may be under way; null: none, or over.
  using Messages = std::array<Request*, coll::shm::kLanes>;

  static Request*& place(Messages& messages, std::uint64_t exchange) {
    return messages[exchange % coll::shm::kLanes];
  }
  Request* prepare(RequestKind kind, std::uint64_t exchange, int member, void* address,
                   std::uint64_t bytes);
  bool over(Request*& message);

  p2p::Endpoint& endpoint_;
  Comm& comm_;
  const std::vector<int>& members_;
  std::uint64_t context_;
  Messages sends_{};
  Messages receives_{};
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_TEAM_MESSAGES_H_
