// Groups of leaders at a switch, and the program's collectives as operations of a group.
#include "coll/run/in_network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "observe/log.h"

namespace od {

using coll::Elsewhere;
using innetwork::Operation;
using innetwork::Type;

namespace {

// Packets of a leader, of which joining takes a round trip; more than a busy machine needs.
constexpr std::uint64_t kJoinNs = 1'000'000'000;
// A switch that says nothing for so long has gone.
constexpr std::uint64_t kGiveUpNs = 1'000'000'000;

bool read_ip(std::string_view text, std::uint32_t& ip) {
  in_addr address{};
  if (inet_pton(AF_INET, std::string(text).c_str(), &address) != 1) return false;
  ip = ntohl(address.s_addr);
  return ip != 0;
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) == static_cast<ssize_t>(sizeof number)) return number;
  return now_ns() * 0x9e3779b97f4a7c15u ^ static_cast<std::uint64_t>(getpid());
}

// The address that the kernel would send from.
std::uint32_t source_towards(innetwork::Address to) {
  const int own = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (own < 0) return 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(to.ip);
  address.sin_port = htons(to.port);
  socklen_t bytes = sizeof address;
  std::uint32_t found = 0;
  if (connect(own, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      getsockname(own, reinterpret_cast<sockaddr*>(&address), &bytes) == 0) {
    found = ntohl(address.sin_addr.s_addr);
  }
  close(own);
  return found;
}

std::uint32_t address_of(const std::string& interface) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return 0;
  std::uint32_t found = 0;
  for (const ifaddrs* one = all; one != nullptr && found == 0; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (!interface.empty() && interface != one->ifa_name) continue;
    found = ntohl(reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr);
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

bool SwitchPlace::parse(std::string_view text, SwitchPlace& place, std::string& reason) {
  place = {};
  if (text.empty() || text == "off") return true;
  constexpr std::string_view kAuto = "auto";
  if (text == kAuto || text.starts_with("auto:")) {
    place.kind = Kind::on_the_way;
    if (text.size() > kAuto.size()) place.interface = text.substr(kAuto.size() + 1);
    return true;
  }
  const std::size_t colon = text.find(':');
  unsigned port = innetwork::kUdpPort;
  if (colon != std::string_view::npos) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), port);
    if (error != std::errc() || end != digits.end() || port == 0 || port > 65535) {
      reason = "'" + std::string(digits) + "' is not a port";
      return false;
    }
  }
  if (!read_ip(text.substr(0, colon), place.address.ip)) {
    reason = "write off, auto, auto:INTERFACE, or an IPv4 address and perhaps a port";
    return false;
  }
  place.address.port = static_cast<std::uint16_t>(port);
  place.kind = Kind::at_address;
  return true;
}

std::uint32_t SwitchPlace::own_ip() const {
  return kind == Kind::at_address ? source_towards(address) : address_of(interface);
}

std::optional<WireReduction> wire_reduction(coll::ops::Kernel kernel) {
  using coll::ops::Kind;
  using coll::ops::Op;
  struct Row {
    coll::ops::Kernel kernel;
    WireReduction reduction;
  };
  static const std::vector<Row> rows = [] {
    constexpr std::pair<Op, Operation> kOps[] = {
        {Op::max, Operation::max},   {Op::min, Operation::min},   {Op::sum, Operation::sum},
        {Op::prod, Operation::prod}, {Op::land, Operation::land}, {Op::band, Operation::band},
        {Op::lor, Operation::lor},   {Op::bor, Operation::bor},   {Op::lxor, Operation::lxor},
        {Op::bxor, Operation::bxor}};
    constexpr std::pair<Kind, Type> kKinds[] = {
        {Kind::int8, Type::int8},      {Kind::uint8, Type::uint8},   {Kind::int16, Type::int16},
        {Kind::uint16, Type::uint16},  {Kind::int32, Type::int32},   {Kind::uint32, Type::uint32},
        {Kind::int64, Type::int64},    {Kind::uint64, Type::uint64}, {Kind::float32, Type::float32},
        {Kind::float64, Type::float64}};
    std::vector<Row> made;
    for (const auto& [op, operation] : kOps) {
      for (const auto& [kind, type] : kKinds) {
        const coll::ops::Kernel found = coll::ops::find_kernel(op, kind);
        if (found != nullptr) made.push_back({found, {operation, type}});
      }
    }
    return made;
  }();
  if (kernel == nullptr) return std::nullopt;
  for (const Row& row : rows) {
    if (row.kernel == kernel) return row.reduction;
  }
  return std::nullopt;
}

bool fits_switch(const CollectiveCall& call) {
  switch (call.collective) {
    case coll::Collective::kBarrier:
    case coll::Collective::kBcast:
      return true;
    case coll::Collective::kAllreduce:
    case coll::Collective::kReduce:
      return wire_reduction(call.reduction.kernel).has_value();
    default:
      return false;
  }
}

InNetwork::InNetwork(const coll::Nodes& nodes, int rank, int leaders)
    : leaders_(std::clamp(leaders, 1, nodes.least_per_node())), slice_(nodes.position_of(rank)) {}

int InNetwork::common_sockets(std::span<const std::int32_t> socket_of_rank,
                              const coll::Nodes& nodes) {
  int common = 0;
  for (int node = 0; node < nodes.count(); ++node) {
    std::vector<std::int32_t> found;
    for (const int rank : nodes.members(node)) {
      const std::int32_t socket = socket_of_rank[static_cast<std::size_t>(rank)];
      if (socket < 0) return 1;
      if (std::find(found.begin(), found.end(), socket) == found.end()) found.push_back(socket);
    }
    const int count = static_cast<int>(found.size());
    if (common != 0 && common != count) return 1;
    common = count;
  }
  return std::max(common, 1);
}

InNetwork::Claim InNetwork::claim(const SwitchPlace& place, bool leads) {
  Claim claim;
  if (!leads) return claim;
  claim.key = random_number();
  claim.group = static_cast<std::uint32_t>(random_number());
  static const std::uint64_t job = random_number();
  claim.job = job;
  claim.ip = place.own_ip();
  std::string error = "no interface with an IPv4 address is up";
  try {
    if (claim.ip != 0) endpoint_ = innetwork::Endpoint::open(claim.ip, 0, error);
  } catch (const std::system_error& failure) {
    error = failure.what();  // no thread
  }
  if (endpoint_ == nullptr) {
    log(Level::kWarning, "this rank cannot talk with a switch: %s", error.c_str());
    return claim;
  }
  endpoint_->set_spin_ns(0);
  claim.data_port = endpoint_->peer().data.port;
  claim.service_port = endpoint_->peer().service.port;
  claim.able = 1;
  return claim;
}

bool InNetwork::all_able(std::span<const Claim> claims, const coll::Nodes& nodes) const {
  for (int node = 0; node < nodes.count(); ++node) {
    for (const int leader : nodes.members(node).first(static_cast<std::size_t>(leaders_))) {
      if (claims[static_cast<std::size_t>(leader)].able == 0) return false;
    }
  }
  return nodes.count() > 1 && nodes.count() <= 0xffff;
}

void InNetwork::begin_join(std::span<const Claim> claims, const coll::Nodes& nodes, int rank,
                           const SwitchPlace& place, std::uint64_t context, int world_rank) {
  const auto claim_of = [&](int node) -> const Claim& {
    const int leader = nodes.members(node)[static_cast<std::size_t>(slice_)];
    return claims[static_cast<std::size_t>(leader)];
  };
  innetwork::LeaderSettings settings;
  settings.group = claim_of(0).group;
  settings.key = claim_of(0).key;
  settings.job = claim_of(0).job;
  settings.communicator = static_cast<std::uint32_t>(context ^ context >> 32);
  settings.world_rank = static_cast<std::uint32_t>(world_rank);
  settings.index = static_cast<std::uint16_t>(nodes.node_of(rank));
  for (int node = 0; node < nodes.count(); ++node) {
    const Claim& one = claim_of(node);
    settings.leaders.push_back({{one.ip, one.data_port}, {one.ip, one.service_port}});
  }
  settings.to_switch = place.address;
  settings.join_ns = kJoinNs;
  settings.give_up_ns = kGiveUpNs;
  endpoint_->begin_join(std::move(settings));
}

void InNetwork::settle(bool ready) {
  ready_ = ready;
  if (ready || endpoint_ == nullptr) return;
  endpoint_->leave();
  endpoint_.reset();
}

bool InNetwork::start(const coll::Step& step, const CollectiveCall& call, std::size_t units,
                      std::size_t unit_bytes, const char* source, char* target) {
  if (!ready_ || endpoint_ == nullptr || coll::elsewhere_slice(step) != slice_) return false;
  const std::size_t bytes = units * unit_bytes;
  if (bytes > innetwork::Leader::kMostBytes) return false;
  switch (coll::elsewhere_work(step)) {
    case Elsewhere::kCombine: {
      const std::optional<WireReduction> wire = wire_reduction(call.reduction.kernel);
      if (!wire || innetwork::type_bytes(static_cast<std::uint8_t>(wire->type)) != unit_bytes) {
        return false;
      }
      return endpoint_->start(wire->operation, wire->type, units, source, target);
    }
    case Elsewhere::kShow:
      // The program's buffer is not written to, not even with what it holds.
      aside_.resize(bytes);
      return endpoint_->start(Operation::bor, Type::uint8, bytes, source, aside_.data());
    case Elsewhere::kTake:
      aside_.assign(bytes, 0);
      return endpoint_->start(Operation::bor, Type::uint8, bytes, aside_.data(), target);
    case Elsewhere::kMeet:
      aside_.resize(1);
      return endpoint_->start(Operation::barrier, Type::uint8, 0, aside_.data(), aside_.data());
  }
  return false;
}

std::unique_ptr<innetwork::Endpoint> InNetwork::retire(observe::Counters& counters) {
  if (endpoint_ == nullptr) return nullptr;
  counters.switch_repeated += endpoint_->counters().repeated;
  if (ready_) endpoint_->leave();
  ready_ = false;
  return std::move(endpoint_);
}

void RetiredEndpoints::add(std::unique_ptr<innetwork::Endpoint> endpoint) {
  if (endpoint != nullptr) entries_.push_back({std::move(endpoint), now_ns()});
}

bool RetiredEndpoints::room(std::uint64_t now_ns) {
  while (!entries_.empty() && now_ns - entries_.front().since_ns > kKeptNs) {
    entries_.erase(entries_.begin());
  }
  return entries_.size() < kMost;
}

}  // namespace od
