// Messages of the transport, by which one of two members hands over a block that its post only
// announces.
//
// The source begins its message before it posts; the reader expects it once it has seen the post,
// so that the source alone decides which blocks come so. An exchange has one message at most in
// each direction.
#ifndef OVERDRIVE_COLL_SHM_CARRIER_H_
#define OVERDRIVE_COLL_SHM_CARRIER_H_

#include <cstddef>
#include <cstdint>

namespace od::coll::shm {

class Carrier {
 public:
  // Begins the message of an exchange to or from a member. The bytes stay where they are until
  // sent() or received(). False: there is no memory for it now.
  virtual bool send(std::uint64_t exchange, int member, const std::byte* from,
                    std::uint64_t bytes) = 0;
  virtual bool receive(std::uint64_t exchange, int member, std::byte* to, std::uint64_t bytes) = 0;
  // Whether it is over; true from then on until the next one with such a number (modulo kLanes)
  // begins.
  virtual bool sent(std::uint64_t exchange) = 0;
  virtual bool received(std::uint64_t exchange) = 0;

 protected:
  ~Carrier() = default;
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_CARRIER_H_
