// What the copy paths find on the sender's and on the receiver's side.
//
// All of it belongs to the rank's Sender and Receiver and lives as long as they do.
#ifndef OVERDRIVE_P2P_PATH_SIDE_H_
#define OVERDRIVE_P2P_PATH_SIDE_H_

#include <cstddef>
#include <cstdint>

#include "config/settings.h"
#include "host/host_table.h"
#include "observe/counters.h"

namespace od::p2p {

class Delivery;
class Links;
class Outbox;
class SendMemory;
class Stores;

struct SendSide {
  Links& links;
  SendMemory& memory;
  Outbox& outbox;
  Stores& stores;
  const config::Settings& settings;
  observe::Counters& counters;
  bool verify;
};

struct ReceiveSide {
  Links& links;
  Delivery& delivery;
  const config::Settings& settings;
  observe::Counters& counters;
  bool verify;
};

// One message that the receiver reads from the sender's buffer itself.
struct DirectRead {
  const std::byte* source = nullptr;  // where it lies here, if it is mapped
  std::uint64_t checksum = 0;         // of what has been read, when verification is on
  int delivered = host::kSuccess;     // what Delivery::deliver has returned
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PATH_SIDE_H_
