// Address passing for one rank: blocks of message memory, who refers to them, and views.
//
// A block lies in the reach file of its home, the rank that allocated it, and may be lent and
// passed on among the ranks of a *group*: those of a node who all reach each other's files. block.h
// says how references are counted and how blocks return. What a program sees of this is the table
// of include/overdrive/smpi_engine.h. Thread safety: everything here may be called by several
// threads; one mutex protects the lists.
#ifndef OVERDRIVE_SMPI_SERVICE_H_
#define OVERDRIVE_SMPI_SERVICE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "node/node.h"
#include "observe/counters.h"
#include "overdrive/smpi_engine.h"
#include "smpi/block.h"
#include "smpi/copy_choice.h"
#include "smpi/debug_views.h"
#include "smpi/size_classes.h"

namespace od::smpi {

struct Options {
  bool debug = false;
  std::uint64_t limit_bytes = 0;      // most memory of blocks of this rank; 0: no limit
  std::uint64_t reach_min_bytes = 0;  // what malloc puts into reachable memory
  std::byte* arena = nullptr;         // own mapping of the own reach file; null: nothing is shared
  std::uint64_t arena_bytes = 0;
  // Memory that peers reach, where there is any; the process's own malloc in a program.
  void* (*allocate)(std::uint64_t bytes, std::uint64_t alignment) = nullptr;
  void (*release)(void* memory) = nullptr;
  // Whether a block of memory lies in the own reach file: its offset, or ~0.
  std::uint64_t (*reach_offset)(const void* address, std::uint64_t bytes) = nullptr;
  void (*abort)(int code) = nullptr;  // ends the job
};

class Service {
 public:
  // `node` and `counters` outlive the service.
  Service(const node::Node& node, const Options& options, observe::Counters& counters);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // The table for programs; null when this rank has no reachable memory.
  const overdrive_smpi_engine* engine() const {
    return usable_.load(std::memory_order_relaxed) ? &table_ : nullptr;
  }

  void* alloc(std::uint64_t bytes, const char* site);
  int free(void* block, const char* site);
  int capacity(const void* block, std::uint64_t* bytes);
  int lend(const void* address, std::uint64_t bytes, std::uint32_t views,
           overdrive_smpi_place* place);
  int offer(const void* address, std::uint64_t bytes, overdrive_smpi_place* place);
  void take_back(const overdrive_smpi_place& place, std::uint32_t views);
  int pass(void* block, std::uint64_t bytes, overdrive_smpi_place* place);
  int settle(void* block, std::uint64_t bytes, overdrive_smpi_place* place);
  int open(const overdrive_smpi_place& place, const char* site, const void** address,
           std::uint64_t* view);
  void close(const overdrive_smpi_place& place, std::uint64_t view);
  int own(const overdrive_smpi_place& place, std::uint64_t view, const char* site, void** block);
  std::int64_t lent(const void* block);
  void pause();
  void released_twice(std::uint64_t view);
  void note_copy(std::uint64_t bytes);
  int free_after(void* block, const void* request);

  // Who knows when the program completes a request of the host's and then lets go of what it has
  // been given; false: not this request.
  using Follow = bool (*)(const void* request, std::shared_ptr<void> kept);
  void set_follow(Follow follow) { follow_ = follow; }

  // Short messages past MPI's calls, of the table's shape; only before the table is used.
  void set_messages(decltype(overdrive_smpi_engine::messages) find,
                    decltype(overdrive_smpi_engine::send_short) send,
                    decltype(overdrive_smpi_engine::recv_short) receive) {
    table_.messages = find;
    table_.send_short = send;
    table_.recv_short = receive;
  }

  // How long a cache line is on its way to the others, as far as the start has shown, if that makes
  // them far; else 0. `near_line_ns`: the same if they are near. `far_from_ns`: what makes them
  // far, if lines are found to take that long later on; 0: nothing is found. Only speed depends on
  // it.
  void set_far(double line_ns, double near_line_ns = 0, double far_from_ns = 0) {
    far_line_ns_.store(line_ns, std::memory_order_relaxed);
    near_line_ns_.store(near_line_ns, std::memory_order_relaxed);
    far_from_ns_.store(far_from_ns, std::memory_order_relaxed);
  }

  // In MPI_Finalize: completes the counters; debug mode reports the views that are left.
  void finish();
  // In a forked child, which must not touch what it shares with its parent's neighbours.
  void forget() {
    usable_.store(false, std::memory_order_relaxed);
    for (auto& block : unlent_) block.store(nullptr, std::memory_order_relaxed);
    kept_count_ = 0;
  }

 private:
  // Memory that holds blocks: one of its own, or a chunk of small ones of one class.
  struct Range {
    std::byte* end = nullptr;
    std::uint64_t stride_bytes = 0;  // of a chunk; 0: one block, which begins at the range
    std::uint32_t home = 0;
  };
  using Ranges = std::map<std::byte*, Range>;
  struct Found {
    Block* record = nullptr;  // null: not in a live block
    std::byte* block = nullptr;
    std::uint32_t home = 0;
  };
  struct Remembered {
    std::byte* start = nullptr;
    Range range;
  };
  // The data of a block on its way to another node; the block goes with it.
  struct Sent;
  static constexpr std::size_t kRemembered = 64;
  static constexpr std::size_t kUnlent = 16;
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  // In the home of a place: a copy for one viewer alone, who keeps its block (copies.cc).
  static constexpr std::uint32_t kTravels = std::uint32_t{1} << 31;
  // With it: its sender holds that copies pay, so the answer had better come in the same block.
  static constexpr std::uint32_t kWanted = std::uint32_t{1} << 30;
  static std::uint32_t home_of(const overdrive_smpi_place& place) {
    return place.home & ~(kTravels | kWanted);
  }
  static bool travels(const overdrive_smpi_place& place) { return (place.home & kTravels) != 0; }
  static constexpr std::size_t kMostKept = 8;
  static constexpr std::uint64_t kMostKeptBytes = 8u << 20;
  // What was lent in place to see what viewers read of it.
  struct Watched {
    const Block* record = nullptr;
    std::byte* start = nullptr;
    std::uint64_t bytes = 0;
  };

  // A block in which a copy has come, and which nobody refers to until the next one goes in it.
  struct Kept {
    std::uint64_t offset = 0;
    std::uint64_t capacity_bytes = 0;
    std::uint32_t home = 0;
    bool wanted = false;  // as kWanted
  };

  std::byte* arena_of(std::uint32_t home) const;
  std::uint64_t arena_bytes_of(std::uint32_t home) const;
  static std::uint64_t live_magic(std::uint32_t home, std::uint64_t offset);
  // The live block that holds the byte at `address`; mutex held.
  Found find(const void* address);
  // Likewise; only if this rank owns it, and so many bytes from `address` on are in it.
  Found find_lendable(const void* address, std::uint64_t bytes);
  overdrive_smpi_place place_of(const Found& found, const void* address, std::uint64_t bytes) const;
  // What is in the block is not new any more.
  void note_sent(const Found& found);
  void note_lent(const Found& found, std::uint32_t views);
  // Only its first byte, and only if this rank owns it.
  Found find_owned(const void* block);
  Block* checked(const overdrive_smpi_place& place, std::byte** arena) const;
  void add_range(std::byte* start, const Range& range);
  void drop_range(std::byte* start);

  // copies.cc; mutex held. How new data is lent: as a copy (then it is done), or in place, or not
  // at all, since it had better go with its message.
  enum class How { in_place, as_copy, by_content };
  How lend_well(const Found& found, const void* address, std::uint64_t bytes, std::uint32_t views,
                bool with_message, overdrive_smpi_place* place);
  // Copies that stay with their only viewer: in the block that such a copy has come in, or in a new
  // one, past the caches if that is far and no short one.
  // `wanted`: this rank holds that copies pay; else only as an answer to one who does.
  bool lend_in_kept(const Found& found, const void* address, std::uint64_t bytes, bool wanted,
                    overdrive_smpi_place* place);
  bool lend_in_new(const Found& found, const void* address, std::uint64_t bytes, bool far,
                   overdrive_smpi_place* place);
  // Asked where a copy would pay and none is kept: whether one goes in a new block now.
  bool new_is_due();
  bool copied_as_learnt(std::uint64_t bytes, bool far);
  // `copied`: what copied_as_learnt() has said. False: nothing is lent yet, it goes in place.
  bool lend_as_told(const Found& found, const void* address, std::uint64_t bytes, bool far,
                    bool copied, overdrive_smpi_place* place);
  bool lend_past_caches(const Found& found, const void* address, std::uint64_t bytes,
                        std::uint32_t views, overdrive_smpi_place* place);
  void let_travel(const Found& found, const Found& copy, std::uint64_t bytes,
                  overdrive_smpi_place* place);
  // What alloc_locked() has made.
  Found found_own(std::byte* block) const {
    const auto offset = static_cast<std::uint64_t>(block - options_.arena);
    return {block_at(options_.arena, offset), block, member_};
  }
  // A copy that its only viewer has read, or nobody will: kept for the next one.
  void keep(const overdrive_smpi_place& place, const Block& record);
  // Gives the oldest back until so many with so many bytes are left.
  void limit_kept(std::size_t count, std::uint64_t bytes);
  // No view of the block is left.
  void look_at_viewers(Block& record);
  // The block begins anew, or has another owner.
  void forget_viewers(Block& record);

  std::byte* alloc_locked(std::uint64_t bytes, const char* site);
  std::byte* take_small(std::uint32_t size_class);
  std::byte* take_large(std::uint64_t bytes);
  void begin_block(std::byte* block, std::uint64_t capacity, std::uint32_t size_class,
                   const char* site);
  // The owner lets go, or whom a passed block has reached; mutex held.
  void let_go(std::uint32_t home, std::uint64_t offset, Block& record);
  // Where a block of this rank stands in unlent_, if it does.
  std::atomic<const void*>& unlent_entry(const void* block) {
    return unlent_[(reinterpret_cast<std::uintptr_t>(block) / OVERDRIVE_SMPI_ALIGNMENT) % kUnlent];
  }
  // It is lent, or not this rank's any more.
  void end_unlent(const void* block) {
    std::atomic<const void*>& entry = unlent_entry(block);
    if (entry.load(std::memory_order_relaxed) == block) {
      entry.store(nullptr, std::memory_order_relaxed);
    }
  }
  // So many viewers let go; mutex not held.
  void end_views(const overdrive_smpi_place& place, Block& record, std::uint32_t count);
  // Nobody refers to the block any more; mutex held.
  void give_back(std::uint32_t home, std::uint64_t offset, Block& record);
  void take_in(std::byte* block, Block& record);
  void collect_returned();
  void fill_table();

  const node::Node& node_;
  const Options options_;
  observe::Counters& counters_;
  const std::uint32_t member_;
  Follow follow_ = nullptr;
  std::atomic<bool> usable_{false};     // relaxed: MPI_Init and fork order it
  std::atomic<double> far_line_ns_{0};  // relaxed: a guess
  overdrive_smpi_engine table_{};

  std::mutex mutex_;
  Ranges ranges_;
  Watched watched_;
  CopyChoice copy_choice_;
  std::array<Kept, kMostKept> kept_{};  // the newest last
  std::size_t kept_count_ = 0;
  std::uint32_t sends_missed_ = 0;
  std::atomic<double> near_line_ns_{0};  // relaxed: a guess
  std::atomic<double> far_from_ns_{0};   // relaxed: a guess
  // Blocks of this rank of which lent() has said that nobody looks at them, and that have not been
  // sent since: who asks again, as owners of short blocks do all the time, need not be kept
  // waiting. Relaxed: threads that use one block take turns, and that orders what they see here.
  std::array<std::atomic<const void*>, kUnlent> unlent_{};
  std::array<Remembered, kRemembered> remembered_{};  // by address; looked at before ranges_
  std::array<std::vector<std::byte*>, kClassCount> free_;
  struct Chunk {
    std::byte* next = nullptr;
    std::byte* end = nullptr;
  };
  std::array<Chunk, kClassCount> chunks_;  // what has not been cut into blocks yet
  std::uint64_t used_bytes_ = 0;
  std::unique_ptr<DebugViews> debug_;
  std::atomic<std::uint64_t> pauses_{0};         // relaxed: how often somebody has waited
  std::atomic<std::uint64_t> next_check_ns_{0};  // relaxed: one of the waiting threads looks then
};

}  // namespace od::smpi

#endif  // OVERDRIVE_SMPI_SERVICE_H_
