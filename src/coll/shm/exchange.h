// Where an exchange stands on one member: what it has shown so far, and what it has read.
//
// An exchange is over, described, or under way, in this order; showing and reading go on side by
// side while it is under way, each by phases of its own. Team drives it (team.h); the publisher
// alone moves Showing, the reader alone moves Reading.
#ifndef OVERDRIVE_COLL_SHM_EXCHANGE_H_
#define OVERDRIVE_COLL_SHM_EXCHANGE_H_

#include <cstddef>
#include <cstdint>

#include "coll/shm/channel.h"
#include "coll/shm/exchange_spec.h"
#include "coll/shm/slot_layout.h"

namespace od::coll::shm {

class Operation;

// The place of this member among those who take part.
struct Seat {
  int size = 0;  // how many take part
  int me = 0;
  Span readers, sources;  // may include this member itself
};

inline Seat seat_of(const ExchangeSpec& spec, int me, int size) {
  return {size, me, readers_of(spec.pattern, spec.root, me, size),
          sources_of(spec.pattern, spec.root, me, size)};
}

// What is new since sleepers were last looked for (waking.h). Not phases: all of them may be new at
// once, and are forgotten together.
struct News {
  bool post = false;   // this member shows something
  bool made = false;   // more pieces are in its cells
  bool round = false;  // it has read a round
  bool end = false;    // it has read everything
  bool any() const { return post || made || round || end; }
};

// What this member shows.
struct Showing {
  enum class Phase : std::uint8_t {
    undecided,  // which way
    decided,    // there may be no room yet
    ready,      // has what room it needs; the post comes with the first piece
    posted,     // further pieces may follow
  };
  Phase phase = Phase::undecided;
  Way way = Way::nothing;
  std::uint64_t ring_at = 0, ring_bytes = 0, table_bytes = 0;
  std::uint64_t cell_bytes = 0, block_bytes = 0;
  std::uint32_t cells = 0;
  std::uint32_t filled = 0;  // of `rounds`
  std::uint32_t rounds = 0;
  // How far readers have been looked at: for a cell to be free, and for the end.
  int reader_cursor = 0, end_cursor = 0;
  Awaited room;

  // From the slot's start.
  std::uint64_t cell_offset(std::uint32_t piece) const {
    return kControlBytes + ring_at + table_bytes + piece % cells * cell_bytes;
  }
  bool posted() const { return phase == Phase::posted; }
  bool filled_all() const { return filled == rounds; }
  // Its readers look into the program's buffer.
  bool awaits_readers() const { return way == Way::direct; }
};

// What a source has shown to this member.
struct Shown {
  const std::byte* start = nullptr;  // of this member's block, or of its part of the first cell
  std::uint64_t bytes = 0;
  std::uint64_t cell_bytes = 0;
  std::uint32_t cells = 0;
  std::uint32_t filled = 0;  // pieces known to be there
  std::uint32_t rounds = 0;  // of this member's block
  std::uint32_t taken = 0;   // rounds that have been copied
  Way way = Way::nothing;
  bool seen = false;
  bool expected = false;  // message: it is being received
};

// What it reads: rounds below `round` are over.
struct Reading {
  // What sources want to be told: each includes the one before.
  enum class Tells : std::uint8_t { nothing, end, rounds };
  Tells tells = Tells::nothing;
  // A source's blocks are of different sizes, some of them may be empty; found on the way.
  bool irregular = false;
  bool lengths_agree = true;  // what it was shown was as long as it expected
  std::uint32_t round = 0;
  std::uint32_t rounds = 0;
  std::byte* into = nullptr;  // combine: the result
  Shown* shown = nullptr;     // one per member
  Awaited content;

  bool over() const { return round == rounds; }
  void tell(Tells at_least) {
    if (at_least > tells) tells = at_least;
  }
};

struct Exchange {
  enum class Phase : std::uint8_t {
    over,       // or has never begun
    described,  // cannot begin yet: no room to show anything
    under_way,
  };

  ExchangeSpec spec;
  ExchangePart part;

  Phase phase = Phase::over;
  bool own_copied = false;  // at any time while it is under way
  bool turning = false;     // another root than that of the last exchange that had one
  Operation* operation = nullptr;
  std::uint64_t number = 0;
  Seat seat;
  Showing show;
  Reading read;
  News news;

  bool under_way() const { return phase == Phase::under_way; }
  int member(int i) const { return spec.member(i); }
  bool own_in_cells() const { return shm::own_in_cells(spec, part); }
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_EXCHANGE_H_
