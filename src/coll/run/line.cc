// Which calls are lines (coll/shm/line.h). Whatever is not plain is left to the general way: other
// shapes of datatypes, operations without a kernel, lengths that differ.

#include "coll/run/line.h"

#include <algorithm>
#include <array>
#include <optional>

#include "coll/shm/slot_layout.h"

namespace od {

using coll::shm::Content;
using coll::shm::Line;
using coll::shm::Pattern;
using coll::shm::ReductionForm;
using coll::shm::Team;
using coll::shm::Use;

namespace {

// `count` elements as bytes of one run; null if they are not.
std::byte* run_of(const void* address, std::int64_t count, const p2p::LayoutRef& layout) {
  char* start;
  if (!p2p::is_contiguous(*layout, address, count, &start)) return nullptr;
  return reinterpret_cast<std::byte*>(start);
}

// The size of a block or vector if it can be shown at once, else 0.
std::uint64_t fitting(std::int64_t count, std::int64_t element_bytes) {
  constexpr auto kMost = static_cast<std::int64_t>(coll::shm::kLinesBytes);
  if (count <= 0 || count > kMost || element_bytes <= 0 || element_bytes > kMost) return 0;
  const std::int64_t bytes = count * element_bytes;
  return bytes <= kMost ? static_cast<std::uint64_t>(bytes) : 0;
}

// A block as bytes of one run.
struct Run {
  std::byte* start = nullptr;
  std::uint64_t bytes = 0;
};

// Nothing if it is none, or too long to be shown at once.
std::optional<Run> block_run(const void* buffer, const BlockPlace& block,
                             const p2p::LayoutRef& layout) {
  if (block.count == 0) return Run{};
  const std::uint64_t bytes = layout ? fitting(block.count, layout->size) : 0;
  if (bytes == 0) return {};
  const auto address =
      reinterpret_cast<std::uintptr_t>(buffer) + static_cast<std::uintptr_t>(block.offset_bytes);
  std::byte* const start = run_of(reinterpret_cast<const void*>(address), block.count, layout);
  if (start == nullptr) return {};
  return Run{start, bytes};
}

// Where blocks of different lengths go; of teams that are larger they take the general way.
constexpr int kMostMembers = 64;
struct Places {
  coll::shm::Blocks blocks;
  std::array<std::int64_t, kMostMembers> offsets;
  std::array<std::int64_t, kMostMembers> sizes;
};

// What each shows is taken as it is.
void take_all(Line& line) { line.taken_bytes = line.bytes; }

// Of blocks of equal size, one for each member, each takes its own.
void take_block(const Team& team, Line& line) {
  const std::uint64_t each = line.bytes;
  line.content = Content::each;
  line.taken_bytes = each;
  if (team.size() == 2) return;
  line.taken_at = static_cast<std::uint64_t>(team.position()) * each;
  line.bytes = static_cast<std::uint64_t>(team.size()) * each;
}

// What others take of blocks that begin there.
const std::byte* shown_of(const Team& team, const std::byte* blocks, std::uint64_t each) {
  return team.size() == 2 ? blocks + (team.position() == 0 ? each : 0) : blocks;
}

bool fill_bcast(const CollectiveCall& call, Line& line) {
  line.pattern = Pattern::from_root;
  line.content = Content::same;
  line.use = Use::copy;
  line.root = call.root;
  line.bytes = fitting(call.recv_count, call.recv_type->size);
  std::byte* const data = run_of(call.recv, call.recv_count, call.recv_type);
  line.shown = line.into = data;
  take_all(line);
  return line.bytes != 0 && data != nullptr;
}

// In place the result goes where a block lies that another may still want.
bool fill_reduce_scatter(const Team& team, const CollectiveCall& call, Line& line) {
  if (call.in_place || call.send == call.recv) return false;
  const auto me = static_cast<std::size_t>(team.position());
  if (team.size() == 2 && equal_counts(call.recv_blocks)) {
    if (line.bytes == 0) return false;
    line.shown = shown_of(team, line.own, line.bytes);
    line.own += me * line.bytes;
    take_block(team, line);
    return true;
  }
  // As the exchange of such a vector: all of it is shown, and each takes its block.
  const auto members = static_cast<std::size_t>(team.size());
  line.content = Content::same;
  line.taken_bytes = line.bytes;
  line.bytes = 0;
  for (std::size_t i = 0; i < members; ++i) {
    const std::int64_t count =
        call.recv_blocks.empty() ? call.recv_count : call.recv_blocks[i].count;
    if (i == me) line.taken_at = line.bytes;
    if (count == 0) continue;
    const std::uint64_t bytes = fitting(count, call.recv_type->extent);
    if (bytes == 0) return false;
    line.bytes += bytes;
    if (line.bytes > coll::shm::kLinesBytes) return false;
  }
  line.shown = line.own;
  line.own += line.taken_at;
  return line.bytes != 0;
}

bool fill_reduction(const Team& team, const CollectiveCall& call, ReductionForm form, Line& line) {
  const p2p::Layout& layout = *call.recv_type;
  const coll::CollectiveInfo& info = coll::info(call.collective);
  if (call.reduction.kernel == nullptr || layout.shape != p2p::Shape::contiguous) return false;
  // One of the two may be on a device.
  if (call.send_type && call.send_type->shape != p2p::Shape::contiguous) return false;
  line.use = Use::combine;
  line.combiner.kernel = call.reduction.kernel;
  line.combiner.extent_bytes = static_cast<std::uint64_t>(layout.extent);
  line.bytes = fitting(call.recv_count, layout.extent);
  line.into = static_cast<std::byte*>(call.recv);
  line.own = static_cast<const std::byte*>(call.in_place ? call.recv : call.send);
  line.shown = line.own;
  if (info.input == coll::Part::kEach) return fill_reduce_scatter(team, call, line);
  if (line.bytes == 0) return false;
  take_all(line);
  line.content = Content::same;
  if (info.flow == coll::Flow::kPrefix) {
    line.pattern = Pattern::before;
    if (!info.takes_self) line.own = nullptr;
    return true;
  }
  if (!info.rooted()) return team.allreduces_whole(line.bytes, form);
  line.pattern = Pattern::to_root;
  line.root = call.root;
  return team.reduces_whole(line.bytes, form);
}

// Allgather and alltoall: a block of each member for all, or for each.
bool fill_blocks(const Team& team, const CollectiveCall& call, Line& line) {
  line.use = Use::copy;
  line.bytes = fitting(call.recv_count, call.recv_type->size);
  const bool gathers = coll::info(call.collective).input == coll::Part::kOne;
  line.content = gathers ? Content::same : Content::each;
  if (line.bytes == 0) return false;
  line.into = run_of(call.recv, call.recv_count * team.size(), call.recv_type);
  if (line.into == nullptr) return false;
  const auto me = static_cast<std::uint64_t>(team.position());
  const std::uint64_t each = line.bytes;
  const std::byte* blocks = line.into;
  if (!call.in_place) {
    if (fitting(call.send_count, call.send_type->size) != each) return false;
    blocks = run_of(call.send, call.send_count * (gathers ? 1 : team.size()), call.send_type);
    if (blocks == nullptr) return false;
    line.own = gathers ? blocks : blocks + me * each;
  }
  if (gathers) {
    line.shown = call.in_place ? blocks + me * each : blocks;
    take_all(line);
    return true;
  }
  line.shown = shown_of(team, blocks, each);
  take_block(team, line);
  return true;
}

// Gather and scatter.
bool fill_rooted(const Team& team, const CollectiveCall& call, Line& line) {
  const bool gathers = coll::info(call.collective).flow == coll::Flow::kToRoot;
  const bool root = team.position() == call.root;
  line.use = Use::copy;
  line.root = call.root;
  line.pattern = gathers ? Pattern::to_root : Pattern::from_root;
  line.content = Content::same;
  const auto me = static_cast<std::uint64_t>(team.position());
  // The side that has all blocks describes them by the one buffer, its own block by the other.
  const auto run = [&](bool receives, std::int64_t blocks) {
    const std::int64_t count = receives ? call.recv_count : call.send_count;
    const p2p::LayoutRef& type = receives ? call.recv_type : call.send_type;
    line.bytes = fitting(count, type->size);
    if (line.bytes == 0) return static_cast<std::byte*>(nullptr);
    return run_of(receives ? call.recv : call.send, blocks * count, type);
  };
  const auto take = [&] { gathers ? take_all(line) : take_block(team, line); };
  if (!root) {
    line.shown = line.into = run(!gathers, 1);
    take();
    return line.into != nullptr;
  }
  if (!call.in_place) {
    line.own = run(!gathers, 1);
    if (line.own == nullptr) return false;
  }
  const std::uint64_t own_bytes = line.bytes;
  std::byte* const blocks = run(gathers, team.size());
  if (blocks == nullptr || (!call.in_place && own_bytes != line.bytes)) return false;
  if (gathers) {
    line.into = blocks;
    take();
    return true;
  }
  // The root of a scatter gets its own block without looking at anybody.
  line.shown = shown_of(team, blocks, line.bytes);
  if (!call.in_place) {
    line.into = const_cast<std::byte*>(line.own);
    line.own = blocks + me * line.bytes;
  }
  take();
  return true;
}

// Lengths and places of what this member gets, or sends; false if it is not plain.
bool fill_places(const Team& team, const CollectiveCall& call, bool sent, Places& places) {
  const auto& blocks = sent ? call.send_blocks : call.recv_blocks;
  const auto& types = sent ? call.send_types : call.recv_types;
  const p2p::LayoutRef& one_type = sent ? call.send_type : call.recv_type;
  const void* const buffer = sent ? call.send : call.recv;
  const int members = team.size();
  if (members > kMostMembers || blocks.size() != static_cast<std::size_t>(members)) return false;
  std::byte* const base = const_cast<std::byte*>(static_cast<const std::byte*>(buffer));
  places.blocks.base = base;
  places.blocks.offsets = places.offsets.data();
  places.blocks.sizes = places.sizes.data();
  for (std::size_t i = 0; i < static_cast<std::size_t>(members); ++i) {
    const std::optional<Run> run =
        block_run(buffer, blocks[i], types.empty() ? one_type : types[i]);
    if (!run) return false;
    places.offsets[i] = run->bytes != 0 ? run->start - base : 0;
    places.sizes[i] = static_cast<std::int64_t>(run->bytes);
  }
  return true;
}
bool fill_places(const Team& team, const CollectiveCall& call, Places& places) {
  return fill_places(team, call, false, places);
}

// What this member keeps of its own; in place it is there already.
bool keep_own(const Team& team, const std::optional<Run>& own, const Places& places, Line& line) {
  line.own = own ? own->start : nullptr;
  return own && own->bytes == places.blocks.size(team.position());
}

// Allgatherv and gatherv: contributions of different lengths, which whoever gets them knows.
bool fill_gathered(const Team& team, const CollectiveCall& call, bool rooted, Line& line,
                   Places& places) {
  line.content = Content::same;
  const bool gets = !rooted || team.position() == call.root;
  if (gets) {
    if (!fill_places(team, call, places)) return false;
    line.places = &places.blocks;
  }
  if (call.in_place) {
    line.shown = places.blocks.at(team.position());
    line.bytes = places.blocks.size(team.position());
    return true;
  }
  const std::optional<Run> own = block_run(call.send, {call.send_count, 0}, call.send_type);
  if (!own || (gets && !keep_own(team, own, places, line))) return false;
  line.shown = own->start;
  line.bytes = own->bytes;
  return true;
}

// This member's block of a scatterv.
bool take_one(const CollectiveCall& call, Line& line) {
  const std::optional<Run> run = block_run(call.recv, {call.recv_count, 0}, call.recv_type);
  if (!run) return false;
  line.into = run->start;
  line.taken_bytes = run->bytes;
  return true;
}

// What this member sends is shown behind a table, in which the others find how long their blocks
// are; false if it is too much, which is found before anything else is looked at.
bool fill_table(const Team& team, const CollectiveCall& call, Line& line, Places& sent) {
  const auto members = static_cast<std::size_t>(team.size());
  if (call.send_blocks.size() != members) return false;
  std::uint64_t longest = 0;
  for (std::size_t i = 0; i < members; ++i) {
    const std::int64_t count = call.send_blocks[i].count;
    if (count == 0 || i == static_cast<std::size_t>(team.position())) continue;
    const p2p::LayoutRef& type = call.send_types.empty() ? call.send_type : call.send_types[i];
    const std::uint64_t bytes = type ? fitting(count, type->size) : 0;
    if (bytes == 0) return false;
    longest = std::max(longest, bytes);
  }
  line.spacing = coll::shm::table_spacing(longest);
  line.bytes = line.tabled_bytes(team.size());
  if (line.bytes > team.line_bytes() || !fill_places(team, call, true, sent)) return false;
  line.blocks = &sent.blocks;
  return true;
}

// Scatterv and alltoallv, alltoallw, of more than two: nobody knows where its block would lie among
// those of others.
bool fill_tabled(const Team& team, const CollectiveCall& call, bool rooted, Line& line,
                 Places& places, Places& sent) {
  line.content = Content::each;
  line.tabled = true;
  const int me = team.position();
  const bool sends = !rooted || me == call.root;
  if (!sends) {
    if (!take_one(call, line)) return false;
    // Another one's block may be longer and make it no line: then looking for one was in vain.
    line.spacing = coll::shm::table_spacing(line.taken_bytes);
    return line.tabled_bytes(team.size()) <= team.line_bytes();
  }
  if (!rooted && call.in_place) return false;
  if (!fill_table(team, call, line, sent)) return false;
  line.own = sent.blocks.at(me);
  const std::uint64_t own_bytes = sent.blocks.size(me);
  if (!rooted) {
    if (!fill_places(team, call, places)) return false;
    line.places = &places.blocks;
    return own_bytes == places.blocks.size(me);
  }
  return call.in_place || (take_one(call, line) && line.taken_bytes == own_bytes);
}

// Two show each other the one block.
bool fill_scattered(const Team& team, const CollectiveCall& call, bool rooted, Line& line,
                    Places& places) {
  const auto me = static_cast<std::size_t>(team.position());
  line.content = Content::each;
  const auto sent = [&](std::size_t to) {
    return block_run(call.send, call.send_blocks[to],
                     call.send_types.empty() ? call.send_type : call.send_types[to]);
  };
  if (rooted && team.position() != call.root) {
    if (!take_one(call, line)) return false;
    line.bytes = line.taken_bytes;
    return true;
  }
  if (call.send_blocks.size() != 2) return false;
  const std::optional<Run> shown = sent(1 - me);
  if (!shown) return false;
  line.shown = shown->start;
  line.bytes = shown->bytes;
  if (!rooted) {
    if (call.in_place || !fill_places(team, call, places)) return false;
    line.places = &places.blocks;
    return keep_own(team, sent(me), places, line);
  }
  if (call.in_place) return true;
  const std::optional<Run> own = sent(me);
  if (!own || !take_one(call, line) || own->bytes != line.taken_bytes) return false;
  line.own = own->start;
  return true;
}

// Blocks of different lengths.
bool fill_irregular(const Team& team, const CollectiveCall& call, Line& line, Places& places,
                    Places& sent) {
  const coll::CollectiveInfo& info = coll::info(call.collective);
  line.use = Use::copy;
  line.root = call.root;
  if (info.rooted()) {
    line.pattern = info.scatters() ? Pattern::from_root : Pattern::to_root;
  }
  if (info.input == coll::Part::kOne) return fill_gathered(team, call, info.rooted(), line, places);
  return team.size() == 2 ? fill_scattered(team, call, info.rooted(), line, places)
                          : fill_tabled(team, call, info.rooted(), line, places, sent);
}

bool fill_line(const Team& team, const CollectiveCall& call, ReductionForm form, Line& line,
               Places& places, Places& sent) {
  const coll::CollectiveInfo& info = coll::info(call.collective);
  if (info.output == coll::Part::kNone) return true;
  if (info.reduces) return fill_reduction(team, call, form, line);
  if (info.counts != coll::Counts::kSame) return fill_irregular(team, call, line, places, sent);
  if (info.input == coll::Part::kNone) return fill_bcast(call, line);
  return info.rooted() ? fill_rooted(team, call, line) : fill_blocks(team, call, line);
}

}  // namespace

bool serve_as_line(Team& team, const CollectiveCall& call, ReductionForm form,
                   coll::shm::Patience patience) {
  Line line;
  Places places, sent;
  return fill_line(team, call, form, line, places, sent) && team.serve_line(line, patience);
}

}  // namespace od
