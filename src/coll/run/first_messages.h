// Blocks that come in several messages, the first of which says by its length how many there are.
//
// Ranks that do not agree how long a block is may not agree about that either. Then what is sent
// beyond what is expected is received and dropped, and what is not sent is not waited for: so all
// of them come to an end, with an error.
#ifndef OVERDRIVE_COLL_RUN_FIRST_MESSAGES_H_
#define OVERDRIVE_COLL_RUN_FIRST_MESSAGES_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace od {

struct FirstMessages {
  struct First {
    std::uint32_t step = 0;       // that receives it
    std::uint32_t messages = 0;   // that are expected
    std::int64_t room_bytes = 0;  // which may be more than is expected
  };
  std::vector<First> of;  // in the order of steps
  // How many messages a first one of that length speaks of.
  std::uint32_t (*told)(std::int64_t bytes) = nullptr;

  // Null: the step receives something else, or nothing.
  const First* find(std::uint32_t step) const {
    const auto before = [](const First& first, std::uint32_t sought) {
      return first.step < sought;
    };
    const auto found = std::lower_bound(of.begin(), of.end(), step, before);
    return found == of.end() || found->step != step ? nullptr : &*found;
  }
};

// Where messages go that nobody wants. Address space, of which as much is used as a message is
// long; enough for whole messages, because hosts may write more of one than was asked for.
class MessageBin {
 public:
  static constexpr std::int64_t kBytes = 64 << 20;

  MessageBin() = default;
  ~MessageBin() { close(); }
  MessageBin(const MessageBin&) = delete;
  MessageBin& operator=(const MessageBin&) = delete;

  // Null: there is no address space.
  void* open() {
    if (space_ != nullptr) return space_;
    void* const space = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space != MAP_FAILED) space_ = space;
    return space_;
  }
  void close() {
    if (space_ != nullptr) munmap(space_, kBytes);
    space_ = nullptr;
  }

 private:
  void* space_ = nullptr;
};

}  // namespace od

#endif  // OVERDRIVE_COLL_RUN_FIRST_MESSAGES_H_
