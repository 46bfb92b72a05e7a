// Time of one message in a collective, by the distance of the ranks: the building block of costs.
//
// Ranks are taken to lie on nodes in blocks, `per_node` on each: partners less than that apart are
// neighbours in a node as a rule.
#ifndef OVERDRIVE_COLL_PLAN_MODEL_ESTIMATE_H_
#define OVERDRIVE_COLL_PLAN_MODEL_ESTIMATE_H_

#include <algorithm>
#include <cmath>

#include "coll/plan/model/machine.h"
#include "coll/plan/shape.h"

namespace od::coll {

// Inside a node, up to this size blocks are copied into shared memory and out again.
inline constexpr double kCopiedBytes = 4096;

class Estimate {
 public:
  // `size_bytes`: the collective's message size.
  Estimate(const Machine& machine, Collective collective, int ranks, int per_node,
           double size_bytes)
      : machine_(machine),
        collective_(collective),
        ranks_(ranks),
        per_node_(per_node),
        size_bytes_(size_bytes) {}

  int ranks() const { return ranks_; }
  int per_node() const { return per_node_; }
  int nodes() const { return (ranks_ + per_node_ - 1) / per_node_; }
  // A rank's partners in its node, and those on other nodes.
  int near_partners() const { return std::min(ranks_, per_node_) - 1; }
  int far_partners() const { return ranks_ - 1 - near_partners(); }
  // Bytes of the block of one rank, where `bytes` is the collective's message size.
  double block(double bytes) const {
    const CollectiveInfo& kind = info(collective_);
    return !kind.reduces && kind.has_counts() ? bytes / ranks_ : bytes;
  }

  bool is_near(double distance) const { return ranks_ <= per_node_ || distance < per_node_; }
  const Link& link(double distance) const {
    return is_near(distance) ? machine_.near : machine_.far;
  }
  // A message to a rank `distance` away, when `flows` ranks of the node send at the same time.
  double hop(double bytes, double distance, int flows) const {
    const Link& l = link(distance);
    const double handshake = bytes >= machine_.rendezvous_bytes ? 2 * l.latency_ns : 0;
    const double way = transfer(bytes, distance, flows);
    return l.message_ns() + handshake + (copied_by_both(bytes) ? way / 4 : way);
  }
  // All ranks send at the same time.
  double all_hop(double bytes, double distance) const { return hop(bytes, distance, per_node_); }
  // How much longer bytes take that go both ways over one connection at once: over TCP what
  // confirms one direction waits behind the data of the other, where the network is slow enough
  // for that and there are many. (An allgather of 256 KiB on 4x2 over 1 Gbit/s takes 17 ms along a
  // ring and 25 in pairs; where links are not limited, 0.8 ns per byte, both take the same, and so
  // do halves and quarters of 64 KiB.)
  double both_ways(double bytes, double distance, int flows) const {
    if (is_near(distance) || bytes < machine_.rendezvous_bytes) return 0;
    const double more = std::min(0.4, 0.05 * link(distance).byte_ns);
    return more * transfer(bytes, distance, flows);
  }
  // All ranks send at the same time, in pairs.
  double exchange(double bytes, double distance) const {
    return all_hop(bytes, distance) + both_ways(bytes, distance, per_node_);
  }
  // How soon the next message can follow.
  double gap(double bytes, double distance, int flows = 1) const {
    const Link& l = link(distance);
    return std::max(l.gap_ns, l.overhead_ns + transfer(bytes, distance, flows));
  }
  // All ranks send to their neighbours: one message per node crosses its border.
  double ring(double bytes) const {
    return nodes() > 1 ? std::max(hop(bytes, 0, 1), hop(bytes, per_node_, 1)) : hop(bytes, 0, 1);
  }
  double ring_gap(double bytes) const {
    return nodes() > 1 ? std::max(gap(bytes, 0), gap(bytes, per_node_)) : gap(bytes, 0);
  }
  double add(double bytes) const { return bytes * machine_.add_byte_ns; }
  double copy(double bytes) const { return bytes * machine_.copy_byte_ns; }

 private:
  // Where one block crosses over between two ranks of a node and is sent whole, both have nothing
  // else to do and copy it together, or it goes through memory that passes to and fro between them:
  // a quarter of the time. Shorter ones are copied by one.
  bool copied_by_both(double bytes) const {
    if (ranks_ != 2 || per_node_ < 2 || bytes < size_bytes_) return false;
    // Measured with untouched and with rewritten buffers: 0.95 and 0.67 of the time of shared
    // memory with 64 KiB and 1 MiB, but 1.3 with untouched 10 KiB.
    constexpr double kExscanMinBytes = 32 << 10;
    if (collective_ == Collective::kExscan) return bytes > kExscanMinBytes;
    const CollectiveInfo& kind = info(collective_);
    const bool one_way = kind.rooted() && !kind.reduces && !kind.counts_are_local();
    return one_way && bytes > kCopiedBytes;
  }
  double transfer(double bytes, double distance, int flows) const {
    const Link& l = link(distance);
    if (is_near(distance)) return bytes * l.byte_ns;
    // Those of the other ranks leave the node before this one.
    return bytes * l.byte_ns + (flows - 1) * std::max(bytes * l.byte_ns, l.gap_ns);
  }

  const Machine& machine_;
  Collective collective_;
  int ranks_;
  int per_node_;
  double size_bytes_;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_MODEL_ESTIMATE_H_
