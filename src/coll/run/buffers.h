// The memory of one collective call as schedules name it: buffers, blocks and units.
//
// Reductions count elements, collectives that only move data count bytes of the packed message.
// Buffers of contiguous datatypes are used where they are; others are packed into memory of our own
// before (what is read) and unpacked afterwards (what was written).
#ifndef OVERDRIVE_COLL_RUN_BUFFERS_H_
#define OVERDRIVE_COLL_RUN_BUFFERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/growing_memory.h"
#include "coll/plan/schedule.h"
#include "coll/run/call.h"
#include "coll/run/elements.h"
#include "host/host_table.h"
#include "p2p/layout.h"

namespace od {

class CollectiveBuffers {
 public:
  // Finds addresses and packs what has to be packed. `ranks` is the communicator's size, `rank`
  // this rank. Returns a host error code.
  // `aside`: of calls that only move data, what is read is copied first, so that the program may
  // overwrite it.
  int begin(const host::HostTable& host, const CollectiveCall& call, int ranks, int rank,
            bool aside = false);
  // Writes the output through another mapping: `shadow` says where a range of the program's memory
  // is mapped as well, which it is. Only where the output is used as it is.
  void write_through(char* (*shadow)(const void* address, std::uint64_t bytes));
  // Memory for intermediate results: `units` of the schedule, each of `units_per_unit` of ours.
  int begin_scratch(std::int64_t units, std::int64_t units_per_unit);
  // Unpacks what was received. Returns a host error code.
  int finish();
  void release();

  // Whether the output is used as it is.
  bool writes_in_place() const { return unpack_.empty(); }

  // The layout of MPI_BYTE.
  static const p2p::LayoutRef& byte_layout();

  // Whether the call goes on with a copy of its output as input (alltoallv and w in place).
  bool copied_input() const { return copied_input_; }
  // Whether reduce() may call the host, and whether finish() does.
  bool computes_in_host() const { return computes_in_host_; }
  bool unpacks_in_host() const { return unpacks_in_host_; }
  // Bytes of a unit, which is an element of a reduction, packed, or else a byte.
  std::int64_t unit_bytes() const { return unit_bytes_; }
  const coll::shm::Combiner& combiner() const { return combiner_.get(); }

  char* address(const coll::Place& place) const {
    const Side& side = sides_[static_cast<std::size_t>(place.buffer)];
    char* const base =
        side.blocks.empty() ? side.base : side.blocks[static_cast<std::size_t>(place.block)];
    return base + place.offset * step_bytes_;
  }
  std::int64_t units_per_unit() const { return units_per_unit_; }
  // Our units in `count` units of the schedule; the whole block at `place` for kWholeBlock.
  std::int64_t units(std::int64_t count, const coll::Place& place) const {
    if (count != coll::kWholeBlock) return count * units_per_unit_;
    return sides_[static_cast<std::size_t>(place.buffer)]
        .block_units[static_cast<std::size_t>(place.block)];
  }
  // target = source, `units` units that do not overlap.
  int copy(char* target, const char* source, std::int64_t units) const;
  // target = left op right.
  int reduce(char* target, const char* left, const char* right, std::int64_t units);

 private:
  struct Side {
    char* base = nullptr;
    std::vector<char*> blocks;
    std::vector<std::int64_t> block_units;
  };
  // A piece of the program's memory that is packed or unpacked.
  struct Piece {
    void* address;
    std::int64_t count;
    const p2p::LayoutRef* layout;
    char* packed;
    std::int64_t bytes;
  };

  int begin_reduction(const CollectiveCall& call, int ranks, int rank);
  int begin_vector(const CollectiveCall& call, int ranks);
  int begin_blocks(const CollectiveCall& call, int ranks);
  int begin_neighbours(const CollectiveCall& call);
  int place_blocks(coll::Buffer buffer, void* address, const std::vector<BlockPlace>& blocks,
                   const p2p::LayoutRef& layout, const std::vector<p2p::LayoutRef>& layouts,
                   bool read, bool written);
  int place_vector(coll::Buffer buffer, void* address, std::int64_t count,
                   const p2p::LayoutRef& layout, bool read, bool written);
  int pack(const Piece& piece);

  const host::HostTable* host_ = nullptr;
  std::array<Side, 3> sides_;
  ElementCombiner combiner_;  // of reductions
  bool copied_input_ = false;
  bool aside_ = false;
  bool computes_in_host_ = false;
  bool unpacks_in_host_ = false;
  std::int64_t unit_bytes_ = 1;
  std::int64_t units_per_unit_ = 1;
  std::int64_t step_bytes_ = 1;  // between two units of the schedule
  std::vector<Piece> unpack_;
  std::vector<BlockPlace> neighbour_blocks_;
  GrowingMemory scratch_;
  std::array<GrowingMemory, 2> packed_;  // input, output
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_BUFFERS_H_
