// Memory that keeps its size from use to use.
#ifndef OVERDRIVE_BASE_GROWING_MEMORY_H_
#define OVERDRIVE_BASE_GROWING_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace od {

// Memory of malloc; large blocks can be reached by local ranks.
class GrowingMemory {
 public:
  // At least `bytes`, contents undefined; null if there is no memory.
  char* get(std::size_t bytes) {
    if (bytes > bytes_ || memory_ == nullptr) {
      // Whole lines: vector kernels like aligned operands.
      const std::size_t rounded = (std::max<std::size_t>(bytes, 64) + 63) / 64 * 64;
      memory_.reset();
      memory_.reset(static_cast<char*>(std::aligned_alloc(64, rounded)));
      bytes_ = memory_ != nullptr ? rounded : 0;
    }
    return memory_.get();
  }
  // Gives large blocks back: allocating them anew costs little beside using them.
  void trim() {
    constexpr std::size_t kKeepBytes = 1 << 20;
    if (bytes_ <= kKeepBytes) return;
    memory_.reset();
    bytes_ = 0;
  }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace od

#endif  // OVERDRIVE_BASE_GROWING_MEMORY_H_
