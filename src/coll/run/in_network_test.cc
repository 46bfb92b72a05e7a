// Tests how the place of a switch is written, and which reductions switches know.
#include "coll/run/in_network.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coll/ops/kernels.h"

namespace od {
namespace {

using coll::ops::find_kernel;
using coll::ops::Kind;
using coll::ops::Op;

TEST(SwitchPlace, IsReadAsWritten) {
  SwitchPlace place;
  std::string reason;
  for (const char* none : {"", "off"}) {
    ASSERT_TRUE(SwitchPlace::parse(none, place, reason));
    EXPECT_FALSE(place.on());
  }
  ASSERT_TRUE(SwitchPlace::parse("auto", place, reason));
  EXPECT_EQ(place.kind, SwitchPlace::Kind::on_the_way);
  EXPECT_TRUE(place.interface.empty());
  ASSERT_TRUE(SwitchPlace::parse("auto:eth1", place, reason));
  EXPECT_EQ(place.interface, "eth1");
  ASSERT_TRUE(SwitchPlace::parse("10.0.0.1", place, reason));
  EXPECT_EQ(place.kind, SwitchPlace::Kind::at_address);
  EXPECT_EQ(place.address, (innetwork::Address{0x0a000001, 4791}));
  ASSERT_TRUE(SwitchPlace::parse("127.0.0.1:9", place, reason));
  EXPECT_EQ(place.address, (innetwork::Address{0x7f000001, 9}));
  EXPECT_EQ(place.own_ip(), 0x7f000001u);
}

TEST(SwitchPlace, WhatIsNoneIsRefusedAndOff) {
  for (const char* wrong : {"on", "autox", "10.0.0", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:70000",
                            "10.0.0.1:7x", "0.0.0.0", "::1", "host.example"}) {
    SwitchPlace place;
    std::string reason;
    EXPECT_FALSE(SwitchPlace::parse(wrong, place, reason)) << wrong;
    EXPECT_FALSE(place.on()) << wrong;
    EXPECT_FALSE(reason.empty()) << wrong;
  }
}

TEST(SwitchPlace, AnInterfaceThatIsNotThereHasNoAddress) {
  SwitchPlace place;
  std::string reason;
  ASSERT_TRUE(SwitchPlace::parse("auto:nosuch0", place, reason));
  EXPECT_EQ(place.own_ip(), 0u);
  const coll::Nodes nodes = coll::Nodes::in_blocks(2, 1);
  InNetwork group(nodes, 0, 1);
  EXPECT_EQ(group.claim(place, true).able, 0u);
  EXPECT_FALSE(group.leads());
}

TEST(WireReduction, IsKnownForWhatSwitchesCompute) {
  const auto sum = wire_reduction(find_kernel(Op::sum, Kind::float64));
  ASSERT_TRUE(sum.has_value());
  EXPECT_EQ(sum->operation, innetwork::Operation::sum);
  EXPECT_EQ(sum->type, innetwork::Type::float64);
  // Kernels that are the same for signed and unsigned values may be told as either.
  const auto both = wire_reduction(find_kernel(Op::band, Kind::uint16));
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->operation, innetwork::Operation::band);
  EXPECT_EQ(innetwork::type_bytes(static_cast<std::uint8_t>(both->type)), 2u);
  EXPECT_FALSE(wire_reduction(nullptr).has_value());
  EXPECT_FALSE(wire_reduction(find_kernel(Op::sum, Kind::long_double)).has_value());
  EXPECT_FALSE(wire_reduction(find_kernel(Op::minloc, Kind::double_int)).has_value());
  EXPECT_FALSE(wire_reduction(find_kernel(Op::sum, Kind::complex_double)).has_value());
}

TEST(InNetwork, AllLeadersMustBeAble) {
  const coll::Nodes nodes = coll::Nodes::in_blocks(5, 2);
  std::vector<InNetwork::Claim> claims(5);
  for (const std::size_t leader : {0, 2, 4}) claims[leader].able = 1;
  // The last node has one rank, so there is one leader whatever is asked for.
  const InNetwork group(nodes, 2, 2);
  EXPECT_EQ(group.leaders(), 1);
  EXPECT_TRUE(group.is_leader());
  EXPECT_FALSE(InNetwork(nodes, 3, 1).is_leader());
  EXPECT_TRUE(group.all_able(claims, nodes));
  claims[2].able = 0;
  claims[3].able = 1;  // no leader
  EXPECT_FALSE(group.all_able(claims, nodes));
  const coll::Nodes one_node = coll::Nodes::in_blocks(5, 5);
  claims[2].able = 1;
  EXPECT_FALSE(InNetwork(one_node, 0, 1).all_able(claims, one_node));
}

TEST(InNetwork, LeadersBySocketAreAsManyAsAllNodesHave) {
  const coll::Nodes nodes = coll::Nodes::in_blocks(8, 4);
  const auto sockets = [&](std::vector<std::int32_t> of_rank) {
    return InNetwork::common_sockets(of_rank, nodes);
  };
  EXPECT_EQ(sockets({0, 0, 1, 1, 0, 0, 1, 1}), 2);
  EXPECT_EQ(sockets({3, 3, 3, 3, 7, 7, 7, 7}), 1);
  EXPECT_EQ(sockets({0, 1, 2, 3, 0, 0, 1, 1}), 1);   // nodes differ
  EXPECT_EQ(sockets({0, 0, 1, 1, 0, 0, 1, -1}), 1);  // unknown
  std::vector<InNetwork::Claim> claims(8);
  const InNetwork group(nodes, 5, 2);
  EXPECT_TRUE(group.is_leader());
  for (const std::size_t leader : {0, 1, 4}) claims[leader].able = 1;
  EXPECT_FALSE(group.all_able(claims, nodes));
  claims[5].able = 1;
  EXPECT_TRUE(group.all_able(claims, nodes));
}

}  // namespace
}  // namespace od
