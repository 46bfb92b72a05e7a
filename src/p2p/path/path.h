// The copy paths: one row each in one table, from which the sender, the receiver, the command line
// and the manual know them.
//
// A path brings the payload of a long message from the sender's buffer into the receiver's. The
// sender chooses one (copy_plan.h, path_table.h) and says in the stream's descriptor what it
// offers; the receiver accepts or declines, and what a path cannot serve takes cells. Each path has
// a file of its own beside this one, with what its row points to.
//
// Invariants:
//  - The numbers of Path are in shared memory (StreamDescriptor::path) and are the rows' places.
//  - A path that lets the receiver read (`offers`) puts nothing into cells before the receiver has
//    declined or the sender has withdrawn; any other fills cells as long as it does nothing better.
#ifndef OVERDRIVE_P2P_PATH_PATH_H_
#define OVERDRIVE_P2P_PATH_PATH_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "config/settings.h"
#include "observe/counters.h"

namespace od {
struct Request;
}

namespace od::p2p {

class Links;
struct DirectRead;
struct IncomingStream;
struct OutgoingStream;
struct Payload;
struct ReceiveSide;
struct SendSide;
struct StreamDescriptor;

// What the sender offers.
enum class Path : std::uint8_t {
  cells,        // copy in, copy out, piece by piece
  pull,         // the receiver reads the sender's buffer through shared memory
  cooperative,  // the same, and the sender helps by writing parts of it into the receiver's buffer
  push,         // cells until the receiver has come, then straight into its buffer
  kernel,       // the receiver reads the sender's buffer with process_vm_readv
};
inline constexpr std::size_t kPathCount = 5;

// What people are told of a path, and what it counts.
struct PathWords {
  const char* name;
  const char* doc;       // what happens
  const char* who;       // copies
  const char* needs;     // "": nothing
  const char* good_for;  // why it is there
  const char* option;    // word of `overdrive --paths` that allows it
  std::uint64_t observe::Counters::*sends;
  std::uint64_t observe::Counters::*receives;
  std::uint64_t observe::Counters::*bytes;
};

struct PathRow {
  PathWords words;
  config::CopyPath forced;  // value of `copy_path` that names it

  // From which size on the thresholds choose it, near and far; null: they do not.
  std::uint64_t config::Settings::*min_bytes[2];
  // The same for a buffer that has been rewritten since it was last sent; null: alike.
  std::uint64_t config::Settings::*rewritten_min_bytes[2];

  // --- sender --------------------------------------------------------------------------------
  // The receiver reads the sender's buffer: nothing is copied before it has come.
  bool offers;
  // Of these: through memory that it has mapped, so that the buffer must be `reachable`.
  bool mapped;
  // Shorter messages do not try it by themselves: one side would do all of it, or the payload be in
  // cells before the receive can have come.
  std::uint64_t least_bytes;
  // Whether a message may try it to find out what it costs; null: never.
  bool (*able)(const Links& links, std::uint32_t peer, bool reachable);
  // What the descriptor says (`source_address`); `place`: of the buffer, if the path is mapped.
  // False: not for this peer now, the message takes cells.
  bool (*offer)(Links& links, std::uint32_t peer, const Payload& payload, std::uint64_t place,
                std::uint64_t* source_address);
  // Once the receiver has come: writes into its buffer, which it has told. True if anything was
  // done. Null: the sender has no part in it.
  bool (*help)(SendSide& side, OutgoingStream& stream);

  // --- receiver ------------------------------------------------------------------------------
  // The receiver tells the place of its buffer.
  bool writes;
  // Whether the receiver can read what is offered; null: it does not read.
  bool (*readable)(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor& descriptor,
                   DirectRead* read);
  // Reads all of it; false: the payload has to come through cells after all.
  bool (*read)(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor& descriptor,
               Request& receive, DirectRead* read);
  // The same, together with a sender that helps; null: alone.
  void (*share)(ReceiveSide& side, IncomingStream& stream, const StreamDescriptor& descriptor,
                const DirectRead& read);
};

// By Path.
extern const PathRow kPathRows[kPathCount];
inline const PathRow& row_of(Path path) { return kPathRows[static_cast<std::size_t>(path)]; }
// The path that a peer has named; it may name one of another version, which takes cells.
inline const PathRow& row_named(std::uint8_t path) {
  return kPathRows[path < kPathCount ? path : 0];
}
inline const char* name_of(Path path) { return row_of(path).words.name; }

// What carries messages that go in one piece, before their receiver has come; shortest first.
std::span<const PathWords> short_paths();

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PATH_PATH_H_
