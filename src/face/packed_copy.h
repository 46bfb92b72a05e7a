// A contiguous copy of a message, for calls that receive into the buffer they send from.
#ifndef OVERDRIVE_SRC_FACE_PACKED_COPY_H_
#define OVERDRIVE_SRC_FACE_PACKED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "face/state.h"
#include "p2p/layout.h"
#include "p2p/opaque.h"

namespace od::face {

class PackedCopy {
 public:
  PackedCopy(const void* buf, std::int64_t count, const p2p::Layout& layout)
      : bytes_(count * layout.size) {
    if (bytes_ == 0) return;
    data_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes_)]);
    if (data_ == nullptr) {
      error_ = MPI_ERR_NO_MEM;
      return;
    }
    char* start = nullptr;
    if (p2p::is_contiguous(layout, buf, count, &start)) {
      std::memcpy(data_.get(), start, static_cast<std::size_t>(bytes_));
    } else if (layout.shape == p2p::Shape::opaque) {
      error_ = p2p::pack_opaque(state.host, layout, buf, count, data_.get(), bytes_);
    } else {
      p2p::Cursor cursor(const_cast<void*>(buf), count, layout);
      cursor.pack(data_.get(), static_cast<std::size_t>(bytes_), copy_bytes);
    }
  }
  int error() const { return error_; }
  std::int64_t bytes() const { return bytes_; }
  void* data() const { return data_.get(); }
  std::unique_ptr<std::byte[]> take() { return std::move(data_); }

 private:
  static void copy_bytes(void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  std::int64_t bytes_ = 0;
  int error_ = MPI_SUCCESS;
  std::unique_ptr<std::byte[]> data_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_PACKED_COPY_H_
