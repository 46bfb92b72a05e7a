// Pieces of blocks, and where they lie.

#include "coll/run/arrival_blocks.h"

#include <algorithm>
#include <cstring>

#include "memory/copy.h"

namespace od {

using coll::shm::ArrivalArea;

namespace {

// Before the first piece: the word, and what keeps the piece aligned.
constexpr std::int64_t kHead = 64;
constexpr std::int64_t kPiece = ArrivalCall::kMessageBytes;
static_assert(kHead + kPiece <= static_cast<std::int64_t>(ArrivalArea::kCellBytes));

// So that several calls fit into the area one behind the other.
std::uint64_t share_of(const ArrivalComm& shared) {
  return std::max<std::uint64_t>(1, shared.cells_per_rank() / ArrivalArea::kEntries);
}

}  // namespace

ArrivalBlocks::ArrivalBlocks(ArrivalComm& shared, int root)
    : ArrivalCall(shared, root), share_(share_of(shared)) {}

bool ArrivalBlocks::is_short(std::int64_t bytes, std::size_t members) const {
  return members > 1 && bytes <= static_cast<std::int64_t>(share_) * kPiece;
}

std::size_t ArrivalBlocks::pieces_of(std::int64_t bytes) {
  return static_cast<std::size_t>((bytes + kPiece - 1) / kPiece);
}

std::int64_t ArrivalBlocks::piece_offset(std::size_t piece) {
  return static_cast<std::int64_t>(piece) * kPiece;
}

std::int64_t ArrivalBlocks::piece_bytes(std::int64_t bytes, std::size_t piece) {
  return std::min(kPiece, bytes - piece_offset(piece));
}

void ArrivalBlocks::add_block(Stream& stream, char* block, std::int64_t bytes) {
  for (std::size_t piece = 0; piece < pieces_of(bytes); ++piece) {
    stream.pieces.push_back({block + piece_offset(piece), piece_bytes(bytes, piece)});
  }
}

void ArrivalBlocks::add_share(Stream& stream, std::size_t member, std::int64_t bytes) const {
  for (std::size_t piece = 0; piece < pieces_of(bytes); ++piece) {
    stream.pieces.push_back({place_of(member, piece), piece_bytes(bytes, piece)});
  }
}

void ArrivalBlocks::add_incoming(Stream& stream, char* block, std::int64_t block_bytes,
                                 std::int64_t bytes) {
  if (bytes == block_bytes) return add_block(stream, block, bytes);
  note(host_.err_truncate);
  stream.aside.push_back(std::make_unique<char[]>(static_cast<std::size_t>(bytes)));
  add_block(stream, stream.aside.back().get(), bytes);
}

template <typename Begin>
bool ArrivalBlocks::advance_stream(Stream& stream, Begin begin) {
  bool moved = false;
  while (!stream.open.empty() && test(stream.open.front())) {
    stream.open.erase(stream.open.begin());
    ++stream.done;
    moved = true;
  }
  while (stream.begun < stream.pieces.size() && stream.open.size() < kWindow) {
    stream.open.push_back(begin(stream.pieces[stream.begun++]));
    moved = true;
  }
  return moved;
}

bool ArrivalBlocks::advance_outgoing(Stream& stream) {
  return advance_stream(stream, [&](const Piece& piece) {
    return send(piece.at, piece.bytes, stream.peer, stream.tag);
  });
}

bool ArrivalBlocks::advance_incoming(Stream& stream) {
  return advance_stream(stream, [&](const Piece& piece) {
    return receive(piece.at, piece.bytes, stream.peer, stream.tag);
  });
}

std::uint64_t ArrivalBlocks::area_bytes() const {
  return members().size() * share_ * ArrivalArea::kCellBytes;
}

char* ArrivalBlocks::place_of(std::size_t member, std::size_t piece) const {
  if (piece == 0) return head_of(member) + kHead;
  return reinterpret_cast<char*>(area_->segment(number_, member * share_ + piece));
}

char* ArrivalBlocks::head_of(std::size_t member) const {
  return reinterpret_cast<char*>(area_->segment(number_, member * share_));
}

void ArrivalBlocks::set_word(std::size_t member, std::int64_t word) const {
  std::memcpy(head_of(member), &word, sizeof(word));
}

std::int64_t ArrivalBlocks::word(std::size_t member) const {
  std::int64_t found;
  std::memcpy(&found, head_of(member), sizeof(found));
  return found;
}

void ArrivalBlocks::copy_into_area(std::size_t member, const char* block,
                                   std::int64_t bytes) const {
  for (std::size_t piece = 0; piece < pieces_of(bytes); ++piece) {
    memory::copy_ordinary(place_of(member, piece), block + piece_offset(piece),
                          static_cast<std::size_t>(piece_bytes(bytes, piece)));
  }
}

void ArrivalBlocks::copy_from_area(std::size_t member, char* block, std::int64_t bytes) const {
  for (std::size_t piece = 0; piece < pieces_of(bytes); ++piece) {
    memory::copy_ordinary(block + piece_offset(piece), place_of(member, piece),
                          static_cast<std::size_t>(piece_bytes(bytes, piece)));
  }
}

}  // namespace od
