// Test support: collective calls drawn by chance, with their memory and what must come out.
#ifndef OVERDRIVE_ENGINE_TEST_CALLS_H_
#define OVERDRIVE_ENGINE_TEST_CALLS_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "coll/ops/kernels.h"
#include "coll/run/call.h"
#include "p2p/context.h"
#include "p2p/layout.h"

namespace od::test_calls {

using coll::Collective;
using Value = std::int64_t;

inline p2p::LayoutRef value_layout() {
  static auto* layout = [] {
    auto* made = new p2p::Layout;
    made->size = made->extent = made->block_bytes = sizeof(Value);
    made->immortal = true;
    return made;
  }();
  return p2p::LayoutRef(layout);
}
// A value and a gap of the same size.
inline p2p::LayoutRef sparse_layout() {
  static const p2p::LayoutRef layout = [] {
    auto* made = new p2p::Layout;
    made->shape = p2p::Shape::strided;
    made->size = made->block_bytes = sizeof(Value);
    made->extent = 2 * sizeof(Value);
    made->immortal = true;
    return p2p::LayoutRef(made);
  }();
  return layout;
}

constexpr Value kGap = -77;

// Values with or without gaps between them.
class Vector {
 public:
  Vector() = default;
  Vector(std::int64_t count, bool sparse)
      : step_(sparse ? 2 : 1), values_(static_cast<std::size_t>(count * step_), kGap) {}
  Value& operator[](std::int64_t i) { return values_[static_cast<std::size_t>(i * step_)]; }
  void* data() { return values_.data(); }
  std::vector<Value>& values() { return values_; }
  std::int64_t step_bytes() const { return step_ * static_cast<std::int64_t>(sizeof(Value)); }
  bool gaps_are_whole() const {
    for (std::size_t i = 1; step_ == 2 && i < values_.size(); i += 2) {
      if (values_[i] != kGap) return false;
    }
    return true;
  }

 private:
  std::int64_t step_ = 1;
  std::vector<Value> values_;
};

// What rank `from` has at position i for rank `to` (or for all) in call number `call`.
inline Value value(int call, int from, int to, std::int64_t i) {
  return static_cast<Value>(mix(static_cast<std::uint64_t>(call) * 1000003 +
                                static_cast<std::uint64_t>(from * 101 + to)) >>
                            8) +
         i;
}
inline Value sum(int call, int first, int end, std::int64_t i) {
  Value total = 0;
  for (int rank = first; rank < end; ++rank) total += value(call, rank, 0, i);
  return total;
}
// Elements that `from` has for `to` where counts differ.
inline std::int64_t irregular(int call, int from, int to, std::int64_t most) {
  return static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(call * 7919 + from * 31 + to)) %
                                   static_cast<std::uint64_t>(most + 1));
}

// One call of one rank: its arguments, memory and the check of its result.
class Trial {
 public:
  Trial(int number, int me, int ranks, std::mt19937_64& same)
      : number_(number), me_(me), ranks_(ranks) {
    const auto draw = [&same](std::int64_t limit) {
      return static_cast<std::int64_t>(same() % static_cast<std::uint64_t>(limit));
    };
    constexpr std::int64_t kCounts[] = {0, 1, 2, 5, 64, 700, 5000, 40000};
    call_.collective = static_cast<Collective>(draw(coll::kCollectives));
    call_.root = static_cast<int>(draw(ranks));
    count_ = kCounts[draw(std::size(kCounts))];
    const bool in_place = draw(3) == 0;
    const bool sparse = draw(4) == 0 && !coll::info(call_.collective).reduces;
    layout_ = sparse ? sparse_layout() : value_layout();
    sparse_ = sparse;
    call_.reduction.kernel = coll::ops::find_kernel(coll::ops::Op::sum, coll::ops::Kind::int64);
    fill(in_place);
    before_ = output_.values();
  }

  CollectiveCall& call() { return call_; }
  // The input again, which a call in place has overwritten.
  void restore() { std::copy(before_.begin(), before_.end(), output_.values().begin()); }
  std::string text() const {
    return std::string(coll::info(call_.collective).name) + ", count " + std::to_string(count_) +
           ", root " + std::to_string(call_.root) + (call_.in_place ? ", in place" : "") +
           (sparse_ ? ", with gaps" : "");
  }
  // Position of the first wrong value, or -1.
  std::int64_t first_wrong() {
    if (!output_.gaps_are_whole()) return -2;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(expected_.size()); ++i) {
      if (output_[i] != expected_[static_cast<std::size_t>(i)]) return i;
    }
    return -1;
  }

 private:
  void input(std::int64_t blocks, bool per_rank) {
    input_ = Vector(blocks * count_, sparse_);
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t i = 0; i < count_; ++i) {
        input_[b * count_ + i] = value(number_, me_, per_rank ? static_cast<int>(b) : 0, i);
      }
    }
    call_.send = input_.data();
    call_.send_count = count_;
    call_.send_type = layout_;
  }
  void output(std::int64_t count) {
    output_ = Vector(count, sparse_);
    expected_.assign(static_cast<std::size_t>(count), kGap);
    call_.recv = output_.data();
    call_.recv_count = count_;
    call_.recv_type = layout_;
  }
  void expect_block(std::int64_t at, int from, int to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      expected_[static_cast<std::size_t>(at + i)] = value(number_, from, to, i);
    }
  }
  void expect_sum(std::int64_t at, int first, int end, std::int64_t from, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      expected_[static_cast<std::size_t>(at + i)] = sum(number_, first, end, from + i);
    }
  }
  void place(std::int64_t at, int to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) output_[at + i] = value(number_, me_, to, i);
  }
  void leave_input_out() {
    call_.in_place = true;
    call_.send = nullptr;
    call_.send_type = p2p::LayoutRef();
  }

  void fill(bool in_place);
  void fill_blocks(bool in_place);

  CollectiveCall call_;
  int number_;
  int me_;
  int ranks_;
  std::int64_t count_ = 0;
  bool sparse_ = false;
  p2p::LayoutRef layout_;
  Vector input_;
  Vector output_;
  std::vector<Value> before_;  // content of the output
  std::vector<Value> expected_;
};

inline void Trial::fill(bool in_place) {
  const bool root = me_ == call_.root;
  switch (call_.collective) {
    case Collective::kBarrier:
      return;
    case Collective::kBcast:
      output(count_);
      if (root) place(0, 0, count_);
      expect_block(0, call_.root, 0, count_);
      return;
    case Collective::kAllgather:
    case Collective::kGather:
      input(1, false);
      if (call_.collective == Collective::kGather && !root) return;
      output(count_ * ranks_);
      for (int r = 0; r < ranks_; ++r) expect_block(r * count_, r, 0, count_);
      if (in_place) {
        leave_input_out();
        place(me_ * count_, 0, count_);
      }
      return;
    case Collective::kScatter:
      if (root) input(ranks_, true);
      if (root && in_place) {
        call_.in_place = true;
        return;
      }
      output(count_);
      expect_block(0, call_.root, me_, count_);
      return;
    case Collective::kAlltoall:
      input(ranks_, true);
      output(count_ * ranks_);
      for (int r = 0; r < ranks_; ++r) expect_block(r * count_, r, me_, count_);
      if (in_place) {
        leave_input_out();
        for (int r = 0; r < ranks_; ++r) place(r * count_, r, count_);
      }
      return;
    case Collective::kAllreduce:
    case Collective::kScan:
    case Collective::kExscan:
    case Collective::kReduce: {
      input(1, false);
      const bool scans = call_.collective == Collective::kScan;
      const bool exscans = call_.collective == Collective::kExscan;
      call_.recv_count = count_;
      call_.recv_type = layout_;
      if (call_.collective == Collective::kReduce && !root) return;
      output(count_);
      if (in_place) {
        leave_input_out();
        place(0, 0, count_);
      }
      if (exscans && me_ == 0) {
        if (in_place) expect_block(0, me_, 0, count_);  // stays as it is
        return;
      }
      expect_sum(0, 0, scans ? me_ + 1 : (exscans ? me_ : ranks_), 0, count_);
      return;
    }
    case Collective::kReduceScatterBlock: {
      const std::int64_t block = count_;
      count_ *= ranks_;
      input(1, false);
      output(in_place ? count_ : block);
      if (in_place) {
        leave_input_out();
        place(0, 0, count_);
      }
      call_.recv_count = block;
      expect_sum(0, 0, ranks_, me_ * block, block);
      if (in_place) expected_.resize(static_cast<std::size_t>(block));
      return;
    }
    default:
      fill_blocks(in_place);
  }
}

inline void Trial::fill_blocks(bool in_place) {
  const std::int64_t most = count_;
  const bool root = me_ == call_.root;
  const auto counts = [&](int from, int to) { return irregular(number_, from, to, most); };
  // Blocks with a gap of one value before each.
  const auto lay_out = [&](std::vector<BlockPlace>& blocks, auto count_of, std::int64_t step) {
    std::int64_t at = 0;
    for (int r = 0; r < ranks_; ++r) {
      blocks.push_back({count_of(r), (at + 1) * step});
      at += count_of(r) + 1;
    }
    return at;
  };
  const auto at = [](const BlockPlace& block, std::int64_t step) {
    return block.offset_bytes / step;
  };
  const std::int64_t step = sparse_ ? 16 : 8;
  switch (call_.collective) {
    case Collective::kReduceScatter: {
      std::int64_t total = 0, mine = 0;
      for (int r = 0; r < ranks_; ++r) {
        call_.recv_blocks.push_back({counts(0, r), 0});
        if (r == me_) mine = total;
        total += counts(0, r);
      }
      count_ = total;
      input(1, false);
      output(in_place ? total : counts(0, me_));
      if (in_place) {
        leave_input_out();
        place(0, 0, total);
      }
      call_.recv_count = counts(0, me_);
      expect_sum(0, 0, ranks_, mine, counts(0, me_));
      expected_.resize(static_cast<std::size_t>(counts(0, me_)));
      return;
    }
    case Collective::kAllgatherv:
    case Collective::kGatherv: {
      const bool all = call_.collective == Collective::kAllgatherv;
      count_ = counts(me_, 0);
      input(1, false);
      if (!all && !root) return;
      const std::int64_t total = lay_out(
          call_.recv_blocks, [&](int r) { return counts(r, 0); }, step);
      const std::int64_t own = count_;
      output(total);
      call_.recv_count = 0;
      for (int r = 0; r < ranks_; ++r) {
        expect_block(at(call_.recv_blocks[static_cast<std::size_t>(r)], step), r, 0, counts(r, 0));
      }
      if (in_place) {
        leave_input_out();
        place(at(call_.recv_blocks[static_cast<std::size_t>(me_)], step), 0, own);
      }
      return;
    }
    case Collective::kScatterv: {
      if (root) {
        const std::int64_t total = lay_out(
            call_.send_blocks, [&](int r) { return counts(0, r); }, step);
        input_ = Vector(total, sparse_);
        for (int r = 0; r < ranks_; ++r) {
          const std::int64_t begin = at(call_.send_blocks[static_cast<std::size_t>(r)], step);
          for (std::int64_t i = 0; i < counts(0, r); ++i) {
            input_[begin + i] = value(number_, me_, r, i);
          }
        }
        call_.send = input_.data();
        call_.send_type = layout_;
        if (in_place) {
          call_.in_place = true;
          return;
        }
      }
      count_ = counts(0, me_);
      output(count_);
      expect_block(0, call_.root, me_, count_);
      return;
    }
    default: {
      const bool symmetric = in_place;  // then both directions have the same counts
      const auto count_of = [&](int from, int to) {
        return symmetric ? counts(std::min(from, to), std::max(from, to)) : counts(from, to);
      };
      const std::int64_t sent = lay_out(
          call_.send_blocks, [&](int r) { return count_of(me_, r); }, step);
      const std::int64_t received = lay_out(
          call_.recv_blocks, [&](int r) { return count_of(r, me_); }, step);
      input_ = Vector(sent, sparse_);
      output(received);
      for (int r = 0; r < ranks_; ++r) {
        const auto i = static_cast<std::size_t>(r);
        const std::int64_t begin = at(call_.send_blocks[i], step);
        for (std::int64_t e = 0; e < call_.send_blocks[i].count; ++e) {
          input_[begin + e] = value(number_, me_, r, e);
        }
        expect_block(at(call_.recv_blocks[i], step), r, me_, call_.recv_blocks[i].count);
        if (in_place) place(at(call_.recv_blocks[i], step), r, call_.recv_blocks[i].count);
      }
      call_.send = input_.data();
      call_.send_type = layout_;
      if (call_.collective == Collective::kAlltoallw) {
        call_.send_types.assign(static_cast<std::size_t>(ranks_), layout_);
        call_.recv_types.assign(static_cast<std::size_t>(ranks_), layout_);
        call_.send_type = call_.recv_type = p2p::LayoutRef();
      }
      if (in_place) {
        leave_input_out();
        call_.send_blocks.clear();
        call_.send_types.clear();
      }
    }
  }
}

}  // namespace od::test_calls

#endif  // OVERDRIVE_ENGINE_TEST_CALLS_H_
