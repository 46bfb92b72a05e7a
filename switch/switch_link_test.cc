// Tests what links do to frames, and how settings are read: rates, queues, faults, units.
#include "switch/link.h"

#include <gtest/gtest.h>

#include "switch/config.h"
#include "switch/units.h"

namespace od::fabric {
namespace {

constexpr std::uint64_t kUs = 1000;

TEST(Units, AreReadAndWritten) {
  EXPECT_EQ(parse_duration_ns("20us"), 20'000u);
  EXPECT_EQ(parse_duration_ns("1.5ms"), 1'500'000u);
  EXPECT_EQ(parse_duration_ns("0"), 0u);
  EXPECT_EQ(parse_duration_ns("20"), std::nullopt);
  EXPECT_EQ(parse_duration_ns("-1us"), std::nullopt);
  EXPECT_EQ(parse_duration_ns("us"), std::nullopt);
  EXPECT_EQ(parse_rate_bits("2.5Gbit"), 2'500'000'000u);
  EXPECT_EQ(parse_rate_bits("off"), 0u);
  EXPECT_EQ(parse_rate_bits("1"), std::nullopt);
  EXPECT_EQ(parse_bytes("4MiB"), 4u << 20);
  EXPECT_EQ(parse_share("1%"), 0.01);
  EXPECT_EQ(parse_share("0.5"), 0.005);
  EXPECT_EQ(parse_share("101%"), std::nullopt);
  EXPECT_EQ(duration_text(20'000), "20us");
  EXPECT_EQ(rate_text(2'500'000'000), "2.5gbit");
}

class LinkTest : public ::testing::Test {
 protected:
  FramePtr frame(std::size_t bytes) {
    FramePtr made = pool_.take(bytes);
    std::fill_n(made->data(), bytes, std::uint8_t{0});
    return made;
  }
  FramePool pool_{64 << 20};
};

TEST_F(LinkTest, LatencyAloneDelays) {
  Link link;
  link.set({.latency_ns = 20 * kUs});
  const FramePtr one = frame(100);
  EXPECT_EQ(link.pass(*one, 5 * kUs).due_ns, 25 * kUs);
  EXPECT_EQ(link.pass(*one, 5 * kUs).due_ns, 25 * kUs);
}

TEST_F(LinkTest, ARateSpacesFrames) {
  Link link;
  link.set({.rate_bits = 1'000'000'000});
  const FramePtr full = frame(1514);
  // 1514 bytes, and 24 for preamble, checksum and gap, at 8 ns a byte.
  EXPECT_EQ(link.pass(*full, 0).due_ns, 1538u * 8);
  EXPECT_EQ(link.pass(*full, 0).due_ns, 2u * 1538 * 8);
  EXPECT_EQ(link.pass(*full, 1'000'000).due_ns, 1'000'000u + 1538 * 8);
  // A short frame is filled up to 60 bytes.
  EXPECT_EQ(link.pass(*frame(20), 2'000'000).due_ns, 2'000'000u + (60 + 24) * 8);
}

TEST_F(LinkTest, AFrameOfManySegmentsTakesTheTimeOfAll) {
  const FramePtr train = frame(66 + 3 * 1448 + 100);
  train->offload.gso_type = 1;
  train->offload.header_bytes = 66;
  train->offload.segment_bytes = 1448;
  EXPECT_EQ(Link::wire_bytes(*train), 3u * 1448 + 100 + 4u * (66 + 24));
}

TEST_F(LinkTest, AQueueIsBounded) {
  Link link;
  link.set({.rate_bits = 1'000'000'000, .queue_bytes = 10 * 1538});
  const FramePtr full = frame(1514);
  int sent = 0;
  for (int i = 0; i < 100; ++i) sent += link.pass(*full, 0).fate == Fate::sent ? 1 : 0;
  EXPECT_EQ(sent, 11);  // one on the wire, ten behind it
  EXPECT_EQ(link.pass(*full, 1'000'000'000).fate, Fate::sent);
}

TEST_F(LinkTest, FaultsHaveTheirSharesAndComeBackWithTheSeed) {
  const LinkSettings settings{
      .loss = 0.1, .duplication = 0.2, .reordering = 0.3, .corruption = 0.05, .reorder_ns = 1000};
  const FramePtr one = frame(200);
  const auto run = [&](std::uint64_t seed) {
    Link link(seed);
    link.set(settings);
    std::vector<std::uint64_t> seen(5);
    for (int i = 0; i < 20'000; ++i) {
      const Link::Passage passage = link.pass(*one, 0);
      seen[0] += passage.fate == Fate::lost;
      seen[1] += passage.twice;
      seen[2] += passage.overtaken;
      seen[3] += passage.corrupt_bit != 0;
      seen[4] = seen[4] * 31 + passage.due_ns + passage.corrupt_bit;
      if (passage.corrupt_bit != 0) {
        EXPECT_GT(passage.corrupt_bit, 14u * 8);
        EXPECT_LE(passage.corrupt_bit, 200u * 8);
      }
    }
    return seen;
  };
  const auto first = run(7);
  // Five standard deviations of 20,000 draws are at most 0.018.
  EXPECT_NEAR(static_cast<double>(first[0]) / 20'000, 0.1, 0.011);
  EXPECT_NEAR(static_cast<double>(first[1]) / 18'000, 0.2, 0.016);
  EXPECT_NEAR(static_cast<double>(first[2]) / 18'000, 0.3, 0.018);
  EXPECT_NEAR(static_cast<double>(first[3]) / 18'000, 0.05, 0.009);
  EXPECT_EQ(run(7), first);
  EXPECT_NE(run(8)[4], first[4]);
}

TEST_F(LinkTest, WhatTheSwitchMakesItselfMeetsNoFaults) {
  Link link;
  link.set({.loss = 1.0});
  const FramePtr one = frame(100);
  EXPECT_EQ(link.pass(*one, 0).fate, Fate::lost);
  one->control = true;
  EXPECT_EQ(link.pass(*one, 0).fate, Fate::sent);
}

TEST(ConfigFile, IsReadInFull) {
  const Config config = read_config_text(R"(
control = "/tmp/x.sock"
memory = "64MiB"
spin = "10us"
seed = 7
[[switch]]
name = "tor0"
latency = "20us"
[[switch.port]]
interface = "p0"
rate = "1gbit"
loss = "1%"
receive-loss = "2%"
[[switch]]
name = "spine"
[[link]]
between = ["tor0", "spine"]
latency = "5us"
)",
                                         "file");
  EXPECT_EQ(config.control, "/tmp/x.sock");
  EXPECT_EQ(config.memory_bytes, 64u << 20);
  EXPECT_EQ(config.spin_ns, 10'000u);
  EXPECT_EQ(config.seed, 7u);
  ASSERT_EQ(config.switches.size(), 2u);
  EXPECT_EQ(config.switches[0].latency_ns, 20'000u);
  ASSERT_EQ(config.switches[0].ports.size(), 1u);
  const LinkSettings& link = config.switches[0].ports[0].link;
  EXPECT_EQ(link.rate_bits, 1'000'000'000u);
  EXPECT_EQ(link.loss, 0.01);
  EXPECT_EQ(link.receive_loss, 0.02);
  ASSERT_EQ(config.links.size(), 1u);
  EXPECT_EQ(config.links[0].link.latency_ns, 5'000u);
}

TEST(ConfigFile, ErrorsNameTheLineAndTheRemedy) {
  const auto fault = [](const char* text) -> std::string {
    try {
      read_config_text(text, "file");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(fault("[[switch]]\nname = 'a'\nlatency = 'soon'"),
            "file:3: latency: 'soon' is not possible; write 20us");
  EXPECT_EQ(fault("[[switch]]\nname = 'a'\ncolour = 'red'"), "file:3: unknown setting colour");
  EXPECT_EQ(fault("[[switch]]\nlatency = '1us'"), "file:1: a switch needs a name");
  EXPECT_EQ(fault("seed = 1"), "file: there is no switch in it");
  EXPECT_EQ(fault("[[switch]]\nname = 'a'\n[[switch]]\nname = 'a'"),
            "file: two switches are called 'a'");
  const std::string pair = "[[switch]]\nname = 'a'\ncompute = 'tor'\n[[switch]]\nname = 'b'\n";
  const std::string aside = "[[link]]\nbetween = ['a', 'b']\ntraffic = 'in-network'\n";
  EXPECT_EQ(
      fault((pair + "compute = 'tor'\n" + aside).c_str()),
      "file: the link of 'a' and 'b' has traffic = \"in-network\": one of them needs compute = "
      "\"spine\" and the other one compute = \"tor\"");
  EXPECT_EQ(fault((pair + "compute = 'spine'\n" + aside + aside).c_str()), "");
  EXPECT_EQ(fault((aside + "traffic = 'all'\n").c_str()).substr(0, 7), "file:4:");
  EXPECT_EQ(fault("[[switch]]\nname = 'a'\n[[link]]\nbetween = ['a', 'b']"),
            "file: a link names 'b', which is no switch");
  EXPECT_EQ(
      fault("[[switch]]\nname = 'a'\n[[link]]\nbetween = ['a', 'a']"),
      "file: 'a' and 'a' are connected in two ways: frames would run in circles; a second spine "
      "has links with traffic = \"in-network\"");
  const std::string tor = "[[switch]]\nname = 'a'\ncompute = 'tor'\n";
  const std::string up = "[[switch.port]]\ninterface = 'p0'\nspine = '198.18.1.1'\n";
  const std::string more = "[[switch.port]]\ninterface = 'p1'\nspine = '198.18.1.2'\n";
  EXPECT_EQ(fault((tor + up + more + "traffic = 'in-network'\n").c_str()), "");
  EXPECT_EQ(fault((tor + up + more).c_str()),
            "file: 'a' has two spines for all traffic: frames would run in circles; all but one "
            "need traffic = \"in-network\"");
  EXPECT_EQ(fault((tor + up +
                   "[[switch.port]]\ninterface = 'p1'\nspine = '198.18.1.1'\n"
                   "traffic = 'in-network'\n")
                      .c_str()),
            "file: port 'p1' of 'a': the address of its spine is another switch's");
  EXPECT_EQ(
      fault((tor + "[[switch.port]]\ninterface = 'p0'\ntraffic = 'in-network'\n").c_str()),
      "file: port 'p0' of 'a': traffic = \"in-network\" needs the address of the spine there");
  EXPECT_EQ(fault(("[[switch]]\nname = 'a'\n" + up).c_str()),
            "file: port 'p0' of 'a': a spine is above switches with compute = \"tor\" only");
  EXPECT_TRUE(fault("x = = 1").starts_with("file:1: "));
}

TEST(ConfigFile, StructureIsFixedWhileTheSwitchRuns) {
  const Config one = read_config_text(
      "[[switch]]\nname = 'a'\n[[switch.port]]\ninterface = 'p0'\nrate = '1gbit'", "file");
  Config other = one;
  other.switches[0].latency_ns = 5;
  other.switches[0].ports[0].link.rate_bits = 7;
  EXPECT_EQ(fixed_difference(one, other), "");
  other.switches[0].ports[0].interface = "p1";
  EXPECT_EQ(fixed_difference(one, other), "the switches or their ports");
  other = one;
  other.switches[0].ports[0].spine = 1;
  EXPECT_EQ(fixed_difference(one, other), "the switches or their ports");
}

}  // namespace
}  // namespace od::fabric
