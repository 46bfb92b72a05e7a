// What the rows of the table of copy paths point to; see PathRow for what each does.
#ifndef OVERDRIVE_P2P_PATH_ROWS_H_
#define OVERDRIVE_P2P_PATH_ROWS_H_

#include <cstdint>

#include "p2p/path/path.h"

namespace od::p2p {

bool cells_able(const Links& links, std::uint32_t peer, bool reachable);
bool cells_offer(Links& links, std::uint32_t peer, const Payload& payload, std::uint64_t place,
                 std::uint64_t* source_address);

bool pull_able(const Links& links, std::uint32_t peer, bool reachable);
bool pull_offer(Links& links, std::uint32_t peer, const Payload& payload, std::uint64_t place,
                std::uint64_t* source_address);
bool pull_readable(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor& descriptor,
                   DirectRead* read);
bool pull_read(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor& descriptor,
               Request& receive, DirectRead* read);

// Offered, declined and, by a receiver whose buffer the sender cannot reach, read as a pull.
bool cooperative_help(SendSide& side, OutgoingStream& stream);
void cooperative_share(ReceiveSide& side, IncomingStream& stream,
                       const StreamDescriptor& descriptor, const DirectRead& read);

bool push_able(const Links& links, std::uint32_t peer, bool reachable);
bool push_offer(Links& links, std::uint32_t peer, const Payload& payload, std::uint64_t place,
                std::uint64_t* source_address);
bool push_help(SendSide& side, OutgoingStream& stream);

bool kernel_offer(Links& links, std::uint32_t peer, const Payload& payload, std::uint64_t place,
                  std::uint64_t* source_address);
bool kernel_readable(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor& descriptor,
                     DirectRead* read);
bool kernel_read(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor& descriptor,
                 Request& receive, DirectRead* read);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PATH_ROWS_H_
