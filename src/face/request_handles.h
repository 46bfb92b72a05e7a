// The handles that stand for our requests and matched messages in the program's hands.
//
// A handle is made from the slot index of the engine's Request and must never be mistaken for one
// of the host's. In ABIs with integer handles it is an integer that the host's own encoding marks
// as invalid; in ABIs with pointer handles it is an address inside a reservation of ours, so that
// "is it ours" is one subtraction and one comparison. Open MPI's Fortran library reads the Fortran
// index straight out of the object behind a handle, so in that ABI each block of the reservation
// carries our Fortran integer where the host's object has its. Fortran integers of ours start at
// kFirstFortran; hosts count theirs from 0.
#ifndef OVERDRIVE_SRC_FACE_REQUEST_HANDLES_H_
#define OVERDRIVE_SRC_FACE_REQUEST_HANDLES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "host/host_table.h"

namespace od::face {

class RequestHandles {
 public:
  // Integer handles of the MPICH family: bits 31-30 say the kind of object, 0 is "invalid"; bits
  // 29-26 say request. With the index field above 0x100000 no constant of the family is met either.
  static constexpr std::uint32_t kFirstInteger = 0x2c100001;
  static constexpr std::uint32_t kIntegerCount = 0x2ffffff0 - kFirstInteger;
  static constexpr int kFirstFortran = 0x40000000;
  // Room for the fields of a host object that Fortran libraries read; Open MPI's lie below 128.
  static constexpr std::size_t kBlockBytes = 256;
  static constexpr std::size_t kBlockWords = kBlockBytes / sizeof(std::int32_t);

  // Makes handles for slots 0 .. capacity - 1; false if there is no address space for them.
  bool reserve(std::uint32_t capacity, bool pointers);
  // Word of a block that must hold the Fortran integer of its request (or message).
  void set_fortran_words(int request_word, int message_word) {
    request_word_ = request_word;
    message_word_ = message_word;
  }

  bool is_ours(host::Handle handle) const { return handle - base_ < span_; }
  std::uint32_t index_of(host::Handle handle) const {
    return static_cast<std::uint32_t>((handle - base_) >> shift_);
  }
  // The handle of a slot, or 0 if it lies beyond what could be reserved.
  host::Handle handle_of(std::uint32_t index) {
    if (index >= capacity_) [[unlikely]]
      return 0;
    // pairs with the release store in fill()
    if (index >= filled_.load(std::memory_order_acquire)) [[unlikely]]
      fill(index);
    return base_ + (static_cast<host::Handle>(index) << shift_);
  }

  bool is_our_fortran(int value) const {
    return value >= kFirstFortran && static_cast<std::uint32_t>(value - kFirstFortran) < capacity_;
  }
  int fortran_of(std::uint32_t index) const { return kFirstFortran + static_cast<int>(index); }

 private:
  void fill(std::uint32_t index);

  host::Handle base_ = 0;
  host::Handle span_ = 0;  // handles of ours are base_ <= handle < base_ + span_
  unsigned shift_ = 0;
  std::uint32_t capacity_ = 0;
  std::atomic<std::uint32_t> filled_{0};  // blocks whose Fortran words are written
  int request_word_ = -1;
  int message_word_ = -1;
  std::mutex mutex_;
};

}  // namespace od::face

#endif  // OVERDRIVE_SRC_FACE_REQUEST_HANDLES_H_
