// Tests packets: invariant checks against known ones, writing and parsing, arbitrary bytes.
//
// With OVERDRIVE_PACKET_SAMPLES=FILE one case writes packets of all kinds there, a line each: IPv4
// packet in hexadecimal. tests/switch/test_packets.py shows them to other implementations.
#include "innetwork/packet.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "innetwork/crc32.h"

namespace od::innetwork {
namespace {

std::vector<std::uint8_t> from_hex(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

constexpr Address kFrom{0x0a4d0001, 49152};
constexpr Address kTo{0x0a4d0002, 4791};

// Made with the RoCE layer of Scapy 2.6: from 10.77.0.1:49152 to 10.77.0.2, "do not fragment", id
// 0.
const char* const kKnown[] = {
    "6400ffff004f44000000000700010203040506076465666768696a6b6c6d6e6f707172737475767778797a7bb5d7d4"
    "d6",
    "0400ffff004f440000000007000102030405060708090a0b0c0d0e0f101112131415161718191a1bf95c7c14"};

TEST(InNetworkPacket, InvariantChecksEqualThoseOfAnotherImplementation) {
  for (const char* known : kKnown) {
    std::vector<std::uint8_t> bytes = from_hex(known);
    EXPECT_TRUE(check(bytes, kFrom, kTo));
    EXPECT_FALSE(check(bytes, kTo, kFrom));
    std::vector<std::uint8_t> resealed = bytes;
    resealed.back() ^= 1;
    EXPECT_FALSE(check(resealed, kFrom, kTo));
    seal(resealed, kFrom, kTo);
    EXPECT_EQ(resealed, bytes);
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
      // Only the byte with the congestion bits may change on the way.
      EXPECT_EQ(check(bytes, kFrom, kTo), bit / 8 == 4) << bit;
      bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
    }
  }
}

TEST(InNetworkPacket, ChecksumIsThatOfEthernet) {
  const std::string text = "123456789";
  EXPECT_EQ(crc32(0, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}),
            0xcbf43926u);
}

// Whatever way the processor has, whatever the length and where the bytes lie.
TEST(InNetworkPacket, ChecksumsByMultiplicationEqualThoseByTables) {
  std::mt19937 random(3);
  std::vector<std::uint8_t> bytes(1200);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  for (std::size_t length = 0; length < 700; ++length) {
    const std::span<const std::uint8_t> part =
        std::span<const std::uint8_t>(bytes).subspan(random() % 64, length);
    const auto before = static_cast<std::uint32_t>(random());
    ASSERT_EQ(crc32(before, part), crc32_by_tables(before, part)) << length;
    const std::size_t half = length / 2;
    ASSERT_EQ(crc32(crc32(before, part.first(half)), part.subspan(half)), crc32(before, part));
  }
}

Packet sample(Kind kind, std::uint8_t opcode) {
  Packet packet;
  packet.transport = {.opcode = opcode,
                      .queue_pair = kQueuePair,
                      .psn = 0xabcdef,
                      .acknowledge = false,
                      .queue_key = opcode == kUdSendOnly ? 0x11223344u : 0u,
                      .source_queue_pair = opcode == kUdSendOnly ? 0x4f4507u : 0u};
  packet.common.kind = static_cast<std::uint8_t>(kind);
  packet.common.group = 0x01020304;
  packet.common.key = 0x1122334455667788;
  packet.common.sequence = 77;
  packet.common.member = 5;
  packet.common.flags = 1;
  if (kind == Kind::refuse) packet.refusal.cause = 3;
  if (kind == Kind::query || kind == Kind::notify || kind == Kind::kill) {
    packet.control.operations = 0x7ff;
    packet.control.destination_ip = kTo.ip;
    packet.control.tor1 = 0xc6120001;
    packet.control.job = 0x8877665544332211;
    packet.control.group_size = 9;
    packet.control.load = 3;
  }
  return packet;
}

TEST(InNetworkPacket, WhatIsWrittenIsRead) {
  std::FILE* samples = nullptr;
  if (const char* path = std::getenv("OVERDRIVE_PACKET_SAMPLES")) samples = std::fopen(path, "w");
  std::vector<std::uint8_t> values(13 * 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i);
  for (int kind = 1; kind < kKinds; ++kind) {
    for (const std::uint8_t opcode : {kUdSendOnly, kRcSendOnly}) {
      Packet packet = sample(static_cast<Kind>(kind), opcode);
      const bool has_values = kind == static_cast<int>(Kind::data) ||
                              kind == static_cast<int>(Kind::result) ||
                              kind == static_cast<int>(Kind::kept);
      if (has_values) {
        packet.values.operation = static_cast<std::uint8_t>(Operation::sum);
        packet.values.type = static_cast<std::uint8_t>(Type::int16);
        packet.values.count = 13;
        packet.payload = values;
      }
      std::uint8_t buffer[256];
      const std::size_t bytes = write(packet, kFrom, kTo, buffer);
      ASSERT_EQ(bytes, packet_bytes(packet));
      EXPECT_EQ(bytes % 4, 0u);
      EXPECT_TRUE(check({buffer, bytes}, kFrom, kTo));
      Packet again;
      ASSERT_EQ(parse({buffer, bytes - kIcrcBytes}, again), Fault::none) << kind;
      EXPECT_EQ(again.common.group, packet.common.group);
      EXPECT_EQ(again.common.key, packet.common.key);
      EXPECT_EQ(again.common.member, packet.common.member);
      EXPECT_EQ(again.transport.psn, packet.transport.psn);
      EXPECT_EQ(again.transport.source_queue_pair, packet.transport.source_queue_pair);
      EXPECT_EQ(again.control.job, packet.control.job);
      EXPECT_EQ(again.control.load, packet.control.load);
      EXPECT_EQ(again.refusal.cause, packet.refusal.cause);
      EXPECT_TRUE(std::ranges::equal(again.payload, packet.payload));
      EXPECT_EQ(write(packet, kFrom, kTo, {buffer, bytes - 1}), 0u);
      // Cut off anywhere it is refused, or it is no packet of ours.
      for (std::size_t cut = 0; cut < bytes - kIcrcBytes; ++cut) {
        EXPECT_NE(parse({buffer, cut}, again), Fault::none) << kind << " cut to " << cut;
      }
      if (samples != nullptr) {
        std::fprintf(samples, "%d ", kind);
        for (std::size_t i = 0; i < bytes; ++i) std::fprintf(samples, "%02x", buffer[i]);
        std::fputs("\n", samples);
      }
    }
  }
  if (samples != nullptr) std::fclose(samples);
}

TEST(InNetworkPacket, OtherVersionsAndForeignPacketsAreToldApart) {
  Packet packet = sample(Kind::query, kUdSendOnly);
  std::uint8_t buffer[256];
  const std::size_t bytes = write(packet, kFrom, kTo, buffer) - kIcrcBytes;
  buffer[kBthBytes + kDethBytes + 2] = 2;
  EXPECT_EQ(parse({buffer, bytes}, packet), Fault::bad_version);
  buffer[kBthBytes + kDethBytes + 2] = 1;
  buffer[kBthBytes + kDethBytes + 3] = 99;
  EXPECT_EQ(parse({buffer, bytes}, packet), Fault::malformed);
  buffer[kBthBytes + kDethBytes] = 0;
  EXPECT_EQ(parse({buffer, bytes}, packet), Fault::foreign);
  buffer[0] = 0x0a;  // RDMA write
  EXPECT_EQ(parse({buffer, bytes}, packet), Fault::foreign);
}

TEST(InNetworkPacket, ValuesMustFillThePayload) {
  std::vector<std::uint8_t> values(16);
  Packet packet = sample(Kind::data, kUdSendOnly);
  packet.values.type = static_cast<std::uint8_t>(Type::int32);
  packet.values.count = 4;
  packet.payload = values;
  std::uint8_t buffer[256];
  const std::size_t bytes = write(packet, kFrom, kTo, buffer) - kIcrcBytes;
  EXPECT_EQ(parse({buffer, bytes}, packet), Fault::none);
  const std::size_t at = kBthBytes + kDethBytes + CommonHeader::kBytes;
  for (const auto& [offset, value] : {std::pair{3, 5}, {3, 3}, {1, 99}, {0, 200}, {2, 255}}) {
    const std::uint8_t before = buffer[at + static_cast<std::size_t>(offset)];
    buffer[at + static_cast<std::size_t>(offset)] = static_cast<std::uint8_t>(value);
    EXPECT_EQ(parse({buffer, bytes}, packet), Fault::malformed) << offset << " " << value;
    buffer[at + static_cast<std::size_t>(offset)] = before;
  }
}

TEST(InNetworkPacket, ArbitraryBytesDoNoHarm) {
  std::mt19937_64 random(3);
  std::uint8_t buffer[256];
  const std::size_t whole = write(sample(Kind::query, kUdSendOnly), kFrom, kTo, buffer);
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::uint8_t> bytes(buffer, buffer + random() % (whole + 1));
    for (std::uint64_t k = random() % 4; k > 0 && !bytes.empty(); --k) {
      bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
    }
    Packet packet;
    if (parse(bytes, packet) == Fault::none && !packet.payload.empty()) {
      EXPECT_LE(packet.payload.data() + packet.payload.size(), bytes.data() + bytes.size());
    }
  }
}

}  // namespace
}  // namespace od::innetwork
