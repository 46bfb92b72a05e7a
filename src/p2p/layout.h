// The shape of one datatype element in memory, flattened so that data can move piecewise between a
// program's buffer and a byte stream without an intermediate pack.
//
// A Layout is immutable after construction and shared by reference count (LayoutRef): the face
// caches one per datatype handle, every pending operation holds one, MPI_Type_free only drops the
// cache's. Reference counts are atomic because completion may happen on another thread than the
// free.
#ifndef OVERDRIVE_P2P_LAYOUT_H_
#define OVERDRIVE_P2P_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "host/host_table.h"

namespace od::p2p {

// A run of bytes of one element, relative to the address the program passes.
struct Segment {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

enum class Shape : std::uint8_t {
  contiguous,  // `count` elements are one run of bytes starting at `lower` (size == extent)
  strided,     // each element: block_count blocks of block_bytes, stride bytes apart, from `lower`
  segments,    // each element: the runs in `segments`, in typemap order
  opaque,      // nothing a cursor could walk over: see p2p/opaque.h
};

struct Layout;

// Shared ownership of a Layout; a null reference means "type unknown".
class LayoutRef {
 public:
  LayoutRef() = default;
  inline explicit LayoutRef(const Layout* layout);
  inline LayoutRef(const LayoutRef& other);
  LayoutRef(LayoutRef&& other) noexcept : layout_(std::exchange(other.layout_, nullptr)) {}
  LayoutRef& operator=(LayoutRef other) noexcept {
    std::swap(layout_, other.layout_);
    return *this;
  }
  inline ~LayoutRef();
  const Layout* get() const { return layout_; }
  const Layout* operator->() const { return layout_; }
  const Layout& operator*() const { return *layout_; }
  explicit operator bool() const { return layout_ != nullptr; }

 private:
  inline void acquire();
  void release();  // out of line; deletes the layout with the last reference

  const Layout* layout_ = nullptr;
};

struct Layout {
  Shape shape = Shape::contiguous;
  std::int64_t size = 0;    // bytes of data in one element
  std::int64_t extent = 0;  // distance between consecutive elements, may be negative or zero
  std::int64_t lower = 0;   // offset of the first block (contiguous, strided)
  std::int64_t block_count = 1;
  std::int64_t block_bytes = 0;
  std::int64_t stride = 0;
  std::vector<Segment> segments;
  // Size of each basic element if the host refuses messages that end inside one, else 0.
  std::int64_t whole_bytes = 0;
  host::Handle host_type = 0;  // needed by opaque layouts; a duplicate that outlives the program's
  void (*dispose)(host::Handle host_type) = nullptr;  // frees host_type with the last reference
  // Never freed (predefined datatypes): references are not counted, which saves the atomic
  // operations on the path of every small message.
  bool immortal = false;
  mutable std::atomic<std::uint32_t> references{0};
  // The same elements in host memory, for elements on a device: these are opaque, because the host
  // must not touch them (p2p/staging.h). Unset for all others.
  LayoutRef in_host_memory;
};

inline LayoutRef::LayoutRef(const Layout* layout) : layout_(layout) { acquire(); }
inline LayoutRef::LayoutRef(const LayoutRef& other) : layout_(other.layout_) { acquire(); }
inline LayoutRef::~LayoutRef() {
  if (layout_ != nullptr && !layout_->immortal) release();
}
inline void LayoutRef::acquire() {
  // Relaxed: a new reference is only ever made from an existing one.
  if (layout_ != nullptr && !layout_->immortal) {
    layout_->references.fetch_add(1, std::memory_order_relaxed);
  }
}

// A resumable walk over `count` elements at `base`: moves the next bytes of the typemap to or from
// a contiguous stream. Not for opaque layouts. `copy` chooses the copy kernel of contiguous runs.
class Cursor {
 public:
  using Copy = void (*)(void* to, const void* from, std::size_t bytes);

  Cursor() = default;
  Cursor(void* base, std::int64_t count, const Layout& layout);

  // Bytes not yet moved.
  std::int64_t remaining() const { return remaining_; }
  // Copies the next min(bytes, remaining()) bytes out of the buffer to `out`; returns how many.
  std::size_t pack(void* out, std::size_t bytes, Copy copy);
  // Copies the next min(bytes, remaining()) bytes from `in` into the buffer; returns how many.
  std::size_t unpack(const void* in, std::size_t bytes, Copy copy);

 private:
  char* base_ = nullptr;
  const Layout* layout_ = nullptr;
  template <bool kPack>
  std::size_t transfer(char* stream, std::size_t bytes, Copy copy);
  template <bool kPack>
  void transfer_strided(char* stream, std::int64_t bytes, Copy copy);
  template <bool kPack>
  void transfer_segments(char* stream, std::int64_t bytes, Copy copy);

  std::int64_t remaining_ = 0;
  std::int64_t element_ = 0;  // current element
  std::int64_t block_ = 0;    // current block or segment within it
  std::int64_t within_ = 0;   // bytes of that block already moved
};

// True when `count` elements at `address` are one run of bytes; then *start is its first byte.
inline bool is_contiguous(const Layout& layout, const void* address, std::int64_t count,
                          char** start) {
  if (layout.shape == Shape::contiguous ||
      (count == 1 && layout.shape == Shape::strided && layout.block_count == 1)) {
    *start = static_cast<char*>(const_cast<void*>(address)) + layout.lower;
    return true;
  }
  return false;
}

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_LAYOUT_H_
