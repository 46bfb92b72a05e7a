// Checks that messages of all lengths come out of a fast box whole and in order, many laps long.
#include "p2p/fast_box.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace od::p2p {
namespace {

unsigned char byte_of(std::uint32_t message, std::uint32_t at) {
  return static_cast<unsigned char>(message * 131 + at * 7);
}

// A box and both its ends.
class FastBox : public testing::TestWithParam<std::uint64_t> {
 protected:
  FastBox() : memory_(new (std::align_val_t{4096}) std::byte[GetParam()]()) {
    producer_ = BoxProducer(memory_, GetParam());
    consumer_ = BoxConsumer(memory_, GetParam());
  }
  ~FastBox() override { ::operator delete[](memory_, std::align_val_t{4096}); }

  // The longest message that the transport would put into a box of this size.
  static std::uint32_t longest() {
    return box_line_count(GetParam()) / 4 * kContinuationPayloadBytes;
  }
  static bool put(BoxProducer& producer, std::uint32_t number, std::uint32_t bytes) {
    if (!producer.has_room(bytes)) return false;
    std::vector<unsigned char> data(bytes);
    for (std::uint32_t i = 0; i < bytes; ++i) data[i] = byte_of(number, i);
    MessageHeader header;
    header.context = number * std::uint64_t{3};
    header.tag = static_cast<std::int32_t>(number);
    header.source = number % kMaxBoxSource;
    header.kind = Kind::inline_data;
    const auto frames_before = static_cast<std::uint8_t>(number);
    if (number % 3 == 1 && bytes >= kPrefixBytes) {
      // From two places.
      const std::vector<unsigned char> rest(data.begin() + kPrefixBytes, data.end());
      producer.put_behind(header, data.data(), rest.data(), bytes - kPrefixBytes, frames_before);
    } else {
      producer.put(header, data.data(), bytes, frames_before);
    }
    return true;
  }
  // Precondition: a message waits. False if it is not message `number` of `bytes`.
  static bool take(BoxConsumer& consumer, std::uint32_t number, std::uint32_t bytes) {
    MessageHeader header;
    consumer.peek(&header);
    if (header.context != number * std::uint64_t{3} || header.inline_bytes != bytes ||
        header.tag != static_cast<std::int32_t>(number) || header.kind != Kind::inline_data ||
        consumer.frames_before() != static_cast<std::uint8_t>(number)) {
      return false;
    }
    std::vector<unsigned char> data(bytes);
    consumer.take(data.data(), bytes, bytes);
    for (std::uint32_t i = 0; i < bytes; ++i) {
      if (data[i] != byte_of(number, i)) return false;
    }
    return true;
  }

  std::byte* memory_;
  BoxProducer producer_;
  BoxConsumer consumer_;
};

TEST_P(FastBox, MessagesOfAllLengthsComeInOrderHoweverFullItIs) {
  std::mt19937 random(7);
  const auto draw = [&](std::uint32_t below) {
    return static_cast<std::uint32_t>(random() % below);
  };
  std::deque<std::uint32_t> waiting;
  std::uint32_t sent = 0, received = 0;
  const std::uint32_t enough = 40 * box_line_count(GetParam());  // the lap number wraps
  while (received < enough) {
    const std::uint32_t burst = draw(2) == 0 ? 1 : draw(200);
    for (std::uint32_t i = 0; i < burst; ++i) {
      const std::uint32_t bytes = draw(3) == 0 ? draw(longest() + 1) : draw(41);
      if (!put(producer_, sent, bytes)) break;
      waiting.push_back(bytes);
      ++sent;
    }
    for (std::uint32_t left = draw(200); left > 0 && !waiting.empty(); --left) {
      ASSERT_TRUE(consumer_.ready());
      ASSERT_TRUE(take(consumer_, received, waiting.front())) << received;
      waiting.pop_front();
      ++received;
    }
    ASSERT_EQ(consumer_.ready(), !waiting.empty());
    if (consumer_.unpublished() && draw(4) == 0) consumer_.publish();
  }
  EXPECT_EQ(producer_.messages(), BoxCount(sent));
  EXPECT_EQ(consumer_.messages(), BoxCount(received));
}

TEST_P(FastBox, HoldsAsManyLinesAsThereAre) {
  const std::uint32_t lines = box_line_count(GetParam());
  for (int lap = 0; lap < 20; ++lap) {
    const std::uint32_t first = static_cast<std::uint32_t>(lap) * lines;
    for (std::uint32_t i = 0; i < lines; ++i) ASSERT_TRUE(put(producer_, first + i, 8));
    ASSERT_FALSE(put(producer_, first + lines, 8));
    for (std::uint32_t i = 0; i < lines; ++i) {
      ASSERT_TRUE(consumer_.ready());
      ASSERT_TRUE(take(consumer_, first + i, 8));
    }
    ASSERT_FALSE(consumer_.ready());
    if (consumer_.unpublished()) consumer_.publish();
  }
}

// The producer writes while the consumer reads, now ahead by a whole box and now not at all.
TEST_P(FastBox, ProducerAndConsumerAtTheSameTime) {
  constexpr std::uint32_t kMessages = 8000;
  const auto bytes_of = [](std::uint32_t number) {
    return number % 16 == 0 ? number % (longest() + 1) : number % 41;
  };
  std::thread sender([&] {
    for (std::uint32_t number = 0; number < kMessages; ++number) {
      while (!put(producer_, number, bytes_of(number))) std::this_thread::yield();
      if (number % 1000 == 0) std::this_thread::yield();
    }
  });
  std::uint32_t wrong = 0;
  for (std::uint32_t number = 0; number < kMessages; ++number) {
    while (!consumer_.ready()) {
      if (consumer_.unpublished()) consumer_.publish();
      std::this_thread::yield();
    }
    if (number % 1300 == 0) std::this_thread::yield();
    if (!take(consumer_, number, bytes_of(number))) {
      ++wrong;
      break;
    }
  }
  if (wrong != 0) std::_Exit(1);  // the sender would wait for ever
  sender.join();
  EXPECT_FALSE(consumer_.ready());
}

INSTANTIATE_TEST_SUITE_P(Sizes, FastBox, testing::Values(1024, 2048, 8192),
                         testing::PrintToStringParamName());

// A frame says after how many messages of the box it comes, so whatever waits in the box must not
// look like nothing.
TEST(BoxCounts, TellApartWhateverTheLargestBoxHolds) {
  constexpr std::uint64_t kBytes = 1 << 20;
  const auto memory = std::unique_ptr<std::byte[], void (*)(std::byte*)>(
      new (std::align_val_t{4096}) std::byte[kBytes](),
      [](std::byte* block) { ::operator delete[](block, std::align_val_t{4096}); });
  BoxProducer producer(memory.get(), kBytes);
  const BoxConsumer consumer(memory.get(), kBytes);
  MessageHeader header;
  header.kind = Kind::inline_data;
  std::uint32_t waiting = 0;
  EXPECT_EQ(producer.messages(), consumer.messages());
  for (; producer.has_room(0); ++waiting) {
    producer.put(header, nullptr, 0);
    ASSERT_NE(producer.messages(), consumer.messages()) << waiting + 1 << " wait";
  }
  EXPECT_EQ(waiting, (kBytes - sizeof(BoxHeader)) / sizeof(BoxLine));
}

}  // namespace
}  // namespace od::p2p
