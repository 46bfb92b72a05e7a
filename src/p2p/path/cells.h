// The path through shared cells: a pipeline of pieces that the sender fills and the receiver
// drains. What every other path falls back to.
//
// Invariants:
//  - The payload begins in an exchange frame, if one was held, goes on in rotating cells, and from
//    `buffer_from` on lies in the sender's own memory or has been written into the receive buffer.
//  - The sender publishes a piece by `filled` (release), the receiver gives it back by `drained`;
//    a cell has exactly one side at a time.
//  - One turn fills at most so much that two ranks which send to each other keep both directions
//    moving.
#ifndef OVERDRIVE_P2P_PATH_CELLS_H_
#define OVERDRIVE_P2P_PATH_CELLS_H_

#include <cstddef>
#include <cstdint>

#include "p2p/path/side.h"
#include "p2p/streams.h"

namespace od::p2p {

// Fills what there is room for, in one turn; true if anything was.
bool fill_cells(SendSide& side, OutgoingStream& stream);
// Copies the rest into own memory, which only its limit prevents: then the program may go on.
bool fill_own_memory(SendSide& side, OutgoingStream& stream);
// Drains up to `filled`; true if anything was.
bool drain_cells(ReceiveSide& side, IncomingStream& stream, std::uint64_t filled);

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PATH_CELLS_H_
