// What the cost model knows about a machine: LogGP parameters inside a node and between nodes.
#ifndef OVERDRIVE_COLL_PLAN_MODEL_MACHINE_H_
#define OVERDRIVE_COLL_PLAN_MODEL_MACHINE_H_

namespace od::coll {

// A message of b bytes takes overhead + latency + b * byte + overhead; its sender can send the next
// one after max(gap, overhead + b * byte).
struct Link {
  double latency_ns;
  double overhead_ns;  // of the processor, at either end
  double gap_ns;
  double byte_ns;

  // Of an empty message, until its receiver has it.
  double message_ns() const { return latency_ns + 2 * overhead_ns; }

  bool operator==(const Link&) const = default;
};

struct Machine {
  // Messages between ranks of a node. The figures are those of Overdrive's own point-to-point
  // between cores that do not share a cache (docs/measurements): 0.2 us from hand to hand.
  Link near{120, 40, 60, 0.12};
  // Between nodes; the ranks of a node share the bandwidth. A common 100 Gbit/s network.
  Link far{1500, 300, 250, 0.085};
  double add_byte_ns = 0.10;   // per byte of the result, operands in cache
  double copy_byte_ns = 0.08;  // per byte, inside a rank
  // From this size on a message waits for its receiver to be ready.
  double rendezvous_bytes = 64 * 1024;
  // Switches that add (in_network_node): so many nodes at each, and one above all. The way from a
  // node to its switch is half of `far`, that between switches takes so long in each direction,
  // with adding. 0: there are none, and what they would do is done otherwise.
  int switch_ports = 0;
  double switch_hop_ns = 500;

  bool operator==(const Machine&) const = default;
};

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_MODEL_MACHINE_H_
