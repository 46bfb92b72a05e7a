// Moves data between a program's buffer of some datatype and a contiguous stream of bytes.
//
// A cursor's position is (element, block, bytes within the block). Whole blocks of the common small
// sizes are moved by loops whose block size is a compile-time constant; the copy kernel that the
// caller chose is only worth its call for long runs.
#include "p2p/layout.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace od::p2p {
namespace {

// Below this a run is copied by inlined moves: a call costs more than the copy.
constexpr std::size_t kKernelMinBytes = 64;

template <std::size_t kBytes>
inline void copy_ends(char* to, const char* from, std::size_t bytes) {
  // Two possibly overlapping moves cover every length from kBytes to 2 * kBytes.
  char head[kBytes];
  char tail[kBytes];
  std::memcpy(head, from, kBytes);
  std::memcpy(tail, from + bytes - kBytes, kBytes);
  std::memcpy(to, head, kBytes);
  std::memcpy(to + bytes - kBytes, tail, kBytes);
}

inline void copy_run(char* to, const char* from, std::size_t bytes, Cursor::Copy copy) {
  if (bytes >= kKernelMinBytes) {
    copy(to, from, bytes);
  } else if (bytes >= 32) {
    copy_ends<32>(to, from, bytes);
  } else if (bytes >= 16) {
    copy_ends<16>(to, from, bytes);
  } else if (bytes >= 8) {
    copy_ends<8>(to, from, bytes);
  } else if (bytes >= 4) {
    copy_ends<4>(to, from, bytes);
  } else if (bytes >= 2) {
    copy_ends<2>(to, from, bytes);
  } else if (bytes == 1) {
    *to = *from;
  }
}

template <bool kPack>
inline void move_run(char* user, char* stream, std::size_t bytes, Cursor::Copy copy) {
  if constexpr (kPack) {
    copy_run(stream, user, bytes, copy);
  } else {
    copy_run(user, stream, bytes, copy);
  }
}

template <bool kPack, std::size_t kBytes>
void move_fixed_blocks(char* user, char* stream, std::int64_t blocks, std::int64_t stride) {
  for (std::int64_t i = 0; i < blocks; ++i) {
    if constexpr (kPack) {
      std::memcpy(stream, user, kBytes);
    } else {
      std::memcpy(user, stream, kBytes);
    }
    // The last step may leave the buffer; as integers that is defined, and it is never
    // dereferenced.
    user = reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(user) +
                                   static_cast<std::uintptr_t>(stride));
    stream += kBytes;
  }
}

template <bool kPack>
void move_blocks(char* user, char* stream, std::int64_t blocks, std::int64_t block_bytes,
                 std::int64_t stride, Cursor::Copy copy) {
  switch (block_bytes) {
    case 1:
      return move_fixed_blocks<kPack, 1>(user, stream, blocks, stride);
    case 2:
      return move_fixed_blocks<kPack, 2>(user, stream, blocks, stride);
    case 4:
      return move_fixed_blocks<kPack, 4>(user, stream, blocks, stride);
    case 8:
      return move_fixed_blocks<kPack, 8>(user, stream, blocks, stride);
    case 16:
      return move_fixed_blocks<kPack, 16>(user, stream, blocks, stride);
    default:
      break;
  }
  for (std::int64_t i = 0; i < blocks; ++i) {
    move_run<kPack>(user + i * stride, stream, static_cast<std::size_t>(block_bytes), copy);
    stream += block_bytes;
  }
}

void copy_plain(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

}  // namespace

void LayoutRef::release() {
  // Release orders this owner's last use before the destruction, acquire (of whoever takes the
  // count to zero) makes all of them visible to it; pairs with the same operation of the other
  // owners.
  if (layout_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (layout_->dispose != nullptr) layout_->dispose(layout_->host_type);
  delete layout_;
}

Cursor::Cursor(void* base, std::int64_t count, const Layout& layout)
    : base_(static_cast<char*>(base)),
      layout_(&layout),
      remaining_(layout.shape == Shape::opaque ? 0 : count * layout.size) {}

template <bool kPack>
void Cursor::transfer_strided(char* stream, std::int64_t bytes, Copy copy) {
  const Layout& layout = *layout_;
  // When one element continues the pattern of the one before, the blocks of all elements are one
  // sequence: no work between elements.
  std::int64_t blocks_per_element = layout.block_count;
  std::int64_t stride = layout.stride;
  if (blocks_per_element == 1) {
    stride = layout.extent;
    blocks_per_element = std::numeric_limits<std::int64_t>::max();
  } else if (layout.extent == blocks_per_element * stride) {
    blocks_per_element = std::numeric_limits<std::int64_t>::max();
  }
  const std::int64_t block_bytes = layout.block_bytes;
  while (bytes > 0) {
    const std::int64_t start = element_ * layout.extent + layout.lower + block_ * stride;
    if (within_ != 0 || bytes < block_bytes) {
      const std::int64_t part = std::min(block_bytes - within_, bytes);
      move_run<kPack>(base_ + start + within_, stream, static_cast<std::size_t>(part), copy);
      stream += part;
      bytes -= part;
      within_ += part;
      if (within_ < block_bytes) return;
      within_ = 0;
      ++block_;
    } else {
      const std::int64_t blocks = std::min(bytes / block_bytes, blocks_per_element - block_);
      move_blocks<kPack>(base_ + start, stream, blocks, block_bytes, stride, copy);
      stream += blocks * block_bytes;
      bytes -= blocks * block_bytes;
      block_ += blocks;
    }
    if (block_ == blocks_per_element) {
      block_ = 0;
      ++element_;
    }
  }
}

template <bool kPack>
void Cursor::transfer_segments(char* stream, std::int64_t bytes, Copy copy) {
  const Segment* const segments = layout_->segments.data();
  const auto segment_count = static_cast<std::int64_t>(layout_->segments.size());
  while (bytes > 0) {
    char* const element = base_ + element_ * layout_->extent;
    while (block_ < segment_count) {
      const Segment segment = segments[block_];
      const std::int64_t part = std::min(segment.bytes - within_, bytes);
      move_run<kPack>(element + segment.offset + within_, stream, static_cast<std::size_t>(part),
                      copy);
      stream += part;
      bytes -= part;
      if (within_ + part < segment.bytes) {
        within_ += part;
        return;
      }
      within_ = 0;
      ++block_;
      if (bytes == 0) break;
    }
    if (block_ == segment_count) {
      block_ = 0;
      ++element_;
    }
  }
}

template <bool kPack>
std::size_t Cursor::transfer(char* stream, std::size_t bytes, Copy copy) {
  if (remaining_ <= 0) return 0;
  if (copy == nullptr) copy = copy_plain;
  const auto now = static_cast<std::int64_t>(
      std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(remaining_)));
  remaining_ -= now;
  switch (layout_->shape) {
    case Shape::contiguous:
      move_run<kPack>(base_ + layout_->lower + within_, stream, static_cast<std::size_t>(now),
                      copy);
      within_ += now;
      break;
    case Shape::strided:
      transfer_strided<kPack>(stream, now, copy);
      break;
    case Shape::segments:
      transfer_segments<kPack>(stream, now, copy);
      break;
    case Shape::opaque:
      break;  // remaining_ is 0
  }
  return static_cast<std::size_t>(now);
}

std::size_t Cursor::pack(void* out, std::size_t bytes, Copy copy) {
  return transfer<true>(static_cast<char*>(out), bytes, copy);
}

std::size_t Cursor::unpack(const void* in, std::size_t bytes, Copy copy) {
  // transfer<false> only reads the stream.
  return transfer<false>(static_cast<char*>(const_cast<void*>(in)), bytes, copy);
}

}  // namespace od::p2p
