// Test support: messages between the two processes of a forked job, in memory that both have mapped
// before.
//
// The sender writes content and length, then `sent` (release); the receiver, which has acquired
// that, copies and then stores `taken` (release). Both hold the exchange's number + 1.
#ifndef OVERDRIVE_COLL_SHM_TEST_CARRIER_H_
#define OVERDRIVE_COLL_SHM_TEST_CARRIER_H_

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "coll/shm/carrier.h"
#include "coll/shm/slot_layout.h"
#include "coll/shm/test_team.h"

namespace od::coll::shm {

class TestCarrier final : public Carrier {
 public:
  static constexpr std::uint64_t kMostBytes = 64 << 10;

  // Before the job's processes are forked.
  TestCarrier() {
    void* const memory =
        mmap(nullptr, sizeof(Mails), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    mails_ = new (memory) Mails;
  }
  ~TestCarrier() { munmap(mails_, sizeof(Mails)); }
  TestCarrier(const TestCarrier&) = delete;
  TestCarrier& operator=(const TestCarrier&) = delete;

  // In one of two processes.
  void begin(TestNode& node, int me) {
    node_ = &node;
    me_ = me;
  }

  bool send(std::uint64_t exchange, int member, const std::byte* from,
            std::uint64_t bytes) override {
    REQUIRE(member == 1 - me_ && bytes <= kMostBytes);
    // As if there was no memory.
    if (exchange % 7 == 0) return false;
    Mail& mail = mail_of(me_, exchange);
    mail.bytes = bytes;
    std::memcpy(mail.content.data(), from, bytes);
    if (!late(exchange)) publish(mail, exchange);
    return true;
  }
  bool receive(std::uint64_t exchange, int member, std::byte* to, std::uint64_t bytes) override {
    REQUIRE(member == 1 - me_);
    if (exchange % 5 == 0 && !std::exchange(refused_, true)) return false;
    refused_ = false;
    expected_[exchange % kLanes] = {to, bytes};
    return true;
  }
  bool sent(std::uint64_t exchange) override {
    Mail& mail = mail_of(me_, exchange);
    // Pairs with the release by the receiver.
    if (late(exchange) && mail.sent.load(std::memory_order_relaxed) != exchange + 1) {
      publish(mail, exchange);
    }
    return mail.taken.load(std::memory_order_acquire) == exchange + 1;
  }
  bool received(std::uint64_t exchange) override {
    Expected& expected = expected_[exchange % kLanes];
    if (expected.to == nullptr) return true;
    Mail& mail = mail_of(1 - me_, exchange);
    // Pairs with the release in publish().
    if (mail.sent.load(std::memory_order_acquire) != exchange + 1) return false;
    std::memcpy(expected.to, mail.content.data(), std::min(expected.bytes, mail.bytes));
    expected.to = nullptr;
    mail.taken.store(exchange + 1, std::memory_order_release);
    node_->wake(1 - me_);
    return true;
  }

 private:
  struct Mail {
    std::atomic<std::uint64_t> sent{0}, taken{0};
    std::uint64_t bytes = 0;
    std::array<std::byte, kMostBytes> content;
  };
  using Mails = std::array<std::array<Mail, kLanes>, 2>;
  struct Expected {
    std::byte* to = nullptr;
    std::uint64_t bytes = 0;
  };

  Mail& mail_of(int from, std::uint64_t exchange) {
    return (*mails_)[static_cast<std::size_t>(from)][exchange % kLanes];
  }
  // Comes after the post, once the sender has nothing else to do. Of one member: two that wait for
  // each other would never have.
  bool late(std::uint64_t exchange) const { return me_ == 0 && exchange % 3 == 0; }
  void publish(Mail& mail, std::uint64_t exchange) {
    mail.sent.store(exchange + 1, std::memory_order_release);
    node_->wake(1 - me_);
  }

  Mails* mails_ = nullptr;
  TestNode* node_ = nullptr;
  int me_ = 0;
  bool refused_ = false;
  std::array<Expected, kLanes> expected_{};
};

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_TEST_CARRIER_H_
