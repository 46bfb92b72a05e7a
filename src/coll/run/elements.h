// Elements of a reduction: moving them between the program's buffers and packed memory, and
// combining them by a kernel or by the host, which calls operations of the program.
//
// Inside a collective elements are always packed, one after the other without gaps: so everything
// that moves them handles bytes, and gaps of the program's buffers are never touched. Where its
// elements have gaps or another order, combining unpacks a few at a time into elements as the
// program has them, which is what its operations are called with.
#ifndef OVERDRIVE_COLL_RUN_ELEMENTS_H_
#define OVERDRIVE_COLL_RUN_ELEMENTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/growing_memory.h"
#include "coll/run/call.h"
#include "coll/shm/combiner.h"
#include "host/host_table.h"
#include "p2p/layout.h"

namespace od {

// Both return a host error code.
int pack_elements(const host::HostTable& host, const p2p::Layout& layout, const void* address,
                  std::int64_t count, char* packed);
int unpack_elements(const host::HostTable& host, const p2p::Layout& layout, const char* packed,
                    void* address, std::int64_t count);

class ElementCombiner {
 public:
  // Returns a host error code. The combiner stays where it is until the call is over.
  int begin(const host::HostTable& host, const Reduction& reduction, const p2p::LayoutRef& layout);
  void release();

  // For packed elements; valid until release().
  const coll::shm::Combiner& get() const { return combiner_; }
  // target = left op right, which may be one of them.
  void combine(char* target, const char* left, const char* right, std::int64_t count);
  // What the host said when it was last asked to compute something that it did not.
  int error() const { return error_; }

 private:
  void join_here(const void* left, void* inout, std::int64_t count);
  static void join_runs(void* context, const void* left, void* inout, std::size_t count);
  static void join_packed(void* context, std::byte* dest, const std::byte* const* source,
                          std::size_t sources, std::size_t count);
  // Room for elements as the program has them, and where the first one's address is.
  char* elements(int which, std::int64_t count);
  void note(int error) {
    if (error_ == host::kSuccess) error_ = error;
  }

  const host::HostTable* host_ = nullptr;
  Reduction reduction_;
  p2p::LayoutRef layout_;
  coll::shm::Combiner combiner_;
  std::int64_t lower_ = 0;  // where the data of one element begins and ends
  std::int64_t end_ = 0;
  int error_ = host::kSuccess;
  std::array<GrowingMemory, 2> elements_;
  GrowingMemory aside_;
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_ELEMENTS_H_
