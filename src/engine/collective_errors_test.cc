// Ranks in forked processes that do not agree how long a message of a collective is: who gets less
// is told so, and everything else goes on as if nothing had happened.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "coll/run/buffers.h"
#include "coll/run/call.h"
#include "engine/engine.h"
#include "engine/test_rank.h"
#include "engine/test_traffic.h"

namespace od {
namespace {

using node::Exchange;
using node::run_forked_job;

constexpr std::int64_t kBytes = 1 << 20;  // the receiver takes them from the sender's memory

// All to all, but what rank 0 sends to rank 1 is a byte shorter than rank 1 thinks.
struct ShortBlock {
  ShortBlock(int me, int ranks)
      : send(static_cast<std::size_t>(ranks * kBytes), filler(me)),
        recv(static_cast<std::size_t>(ranks * kBytes)) {
    call.collective = coll::Collective::kAlltoallv;
    call.send = send.data();
    call.recv = recv.data();
    call.send_type = call.recv_type = CollectiveBuffers::byte_layout();
    for (int rank = 0; rank < ranks; ++rank) {
      const std::int64_t sent = me == 0 && rank == 1 ? kBytes - 1 : kBytes;
      call.send_blocks.push_back({sent, rank * kBytes});
      call.recv_blocks.push_back({kBytes, rank * kBytes});
    }
  }
  static char filler(int rank) { return static_cast<char>('a' + rank); }
  // Whether everything from rank `from` has come.
  bool has(int from) const {
    const auto first = recv.begin() + from * kBytes;
    return std::all_of(first, first + kBytes, [from](char c) { return c == filler(from); });
  }

  std::vector<char> send, recv;
  CollectiveCall call;
};

TEST(CollectiveErrors, SendsAfterAnErrorAreWaitedFor) {
  expect_success(run_forked_job(3, [](int me, const Exchange& exchange) {
    // The step in which rank 1 is told of the error comes before one in which it sends.
    setenv("OVERDRIVE_ADJUST_ALLTOALLV", "pairwise", 1);
    auto rank = make_test_rank(exchange);
    for (int turn = 0; turn < 10; ++turn) {
      ShortBlock trial(me, exchange.size);
      CollectiveCall call = trial.call;
      Request* request = nullptr;
      bool served = false;
      REQUIRE(rank->icollective(std::move(call), *rank->world(), &request, &served) == 0 && served);
      rank->wait(*request);
      REQUIRE((request->status.error != 0) == (me == 1));
      rank->release(*request);
      // A message of this call that is still under way shows the other side this.
      std::fill(trial.send.begin(), trial.send.end(), 'x');
      for (int from = 0; from < exchange.size; ++from) {
        if (me != 1 || from != 0) REQUIRE(trial.has(from));
      }
    }
    rank->finalize();
    return 0;
  }));
}

}  // namespace
}  // namespace od
