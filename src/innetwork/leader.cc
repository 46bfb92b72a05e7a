// Joins a group, computes with it, and settles losses.
#include "innetwork/leader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

namespace od::innetwork {

Leader::Leader(LeaderSettings settings, Send send)
    : settings_(std::move(settings)),
      send_(std::move(send)),
      queries_(settings_.leaders.size()),
      holder_(settings_.index) {}

Packet Leader::packet_of(Kind kind) const {
  Packet packet;
  packet.transport.opcode = settings_.reliable ? kRcSendOnly : kUdSendOnly;
  packet.transport.source_queue_pair = kLeaderQueuePair | (settings_.index & 0xffu);
  packet.common.kind = static_cast<std::uint8_t>(kind);
  packet.common.group = settings_.group;
  packet.common.key = settings_.key;
  packet.common.member = settings_.index;
  return packet;
}

Address Leader::switch_address() const {
  if (settings_.to_switch.ip != 0) return settings_.to_switch;
  // Whoever it is: the first switch on the way takes it.
  return {settings_.leaders[is_root() ? 1 : 0].data.ip, kUdpPort};
}

void Leader::fail(Cause cause) {
  state_ = State::failed;
  cause_ = cause;
  abandoned_ = true;
  due_ns_ = kNever;
}

void Leader::begin(std::uint64_t now_ns) {
  state_ = State::joining;
  retry_ns_ = settings_.retry_ns;
  deadline_ns_ = now_ns + settings_.join_ns;
  if (settings_.leaders.size() < 2) return fail(Cause::unsupported);
  send_query(now_ns);
}

// The root leader's goes to itself and no further than its switch, which learns by it where it is.
void Leader::send_query(std::uint64_t now_ns) {
  Packet packet = packet_of(Kind::query);
  ControlHeader& control = packet.control;
  control.operations = 0xffff;
  control.types = 0xffff;
  control.destination_ip = settings_.leaders[0].data.ip;
  control.destination_port = settings_.leaders[0].data.port;
  control.source_ip = settings_.leaders[settings_.index].data.ip;
  control.source_port = settings_.leaders[settings_.index].data.port;
  control.job = settings_.job;
  control.communicator = settings_.communicator;
  control.world_rank = settings_.world_rank;
  control.group_size = static_cast<std::uint16_t>(settings_.leaders.size());
  control.window = static_cast<std::uint16_t>(settings_.window);
  control.payload_bytes = static_cast<std::uint16_t>(settings_.payload_bytes);
  due_ns_ = now_ns + retry_ns_;
  retry_ns_ = std::min(2 * retry_ns_, settings_.longest_retry_ns);
  if (is_root() && settings_.to_switch.ip == 0) return;  // its packets would not leave the host
  ++counters_.sent;
  send_(switch_address(), packet, false);
}

void Leader::take_query(const Packet& packet, std::uint64_t now_ns) {
  const std::size_t index = packet.common.member;
  if (!is_root() || index == 0 || index >= queries_.size()) {
    ++counters_.unexpected;
    return;
  }
  if (decided_) return send_notify(index);  // it has missed the answer
  std::vector<ControlHeader>& ways = queries_[index].ways;
  const auto same = std::ranges::find(ways, packet.control.spine, &ControlHeader::spine);
  if (same != ways.end()) {
    *same = packet.control;
  } else if (ways.size() < kMostSpines) {
    ways.push_back(packet.control);
  }
  if (collecting_ || state_ != State::joining) return;
  bool above = false;
  for (std::size_t i = 1; i < queries_.size(); ++i) {
    if (queries_[i].ways.empty()) return;
    above = above || queries_[i].ways.front().spine != 0;
  }
  if (!above) return decide();
  collecting_ = true;
  due_ns_ = now_ns + kCollectNs;
}

// The one with the least load of those that serve every leader behind another switch than the root
// leader's; 0 if there is none. Of equal ones groups take different ones, since several may be made
// before a load is seen.
std::uint32_t Leader::choose_spine() const {
  struct Candidate {
    std::size_t leaders = 0;
    std::uint32_t load = 0;
  };
  std::map<std::uint32_t, Candidate> candidates;
  std::size_t behind_others = 0;
  for (const Query& query : queries_) {
    bool above = false;
    for (const ControlHeader& way : query.ways) {
      if (way.spine == 0) continue;
      above = true;
      if (way.cause != 0) continue;
      Candidate& candidate = candidates[way.spine];
      ++candidate.leaders;
      candidate.load = std::max(candidate.load, way.load);
    }
    behind_others += above ? 1 : 0;
  }
  std::vector<std::uint32_t> best;
  std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
  for (const auto& [spine, candidate] : candidates) {
    if (candidate.leaders != behind_others || candidate.load > least) continue;
    if (candidate.load < least) best.clear();
    least = candidate.load;
    best.push_back(spine);
  }
  return best.empty() ? 0 : best[settings_.group % best.size()];
}

// At the root leader, when all queries are there: says what was agreed.
void Leader::decide() {
  decided_ = true;
  const std::uint32_t chosen = choose_spine();
  for (std::size_t i = 1; i < queries_.size(); ++i) {
    const std::vector<ControlHeader>& ways = queries_[i].ways;
    const auto way = std::ranges::find(ways, chosen, &ControlHeader::spine);
    queries_[i].control = way != ways.end() ? *way : ways.front();
  }
  ControlHeader& agreed = agreed_;
  agreed = queries_[1].control;
  std::map<std::uint32_t, std::uint16_t> at;
  at[agreed.tor2] = 1;  // the root leader itself
  Cause cause = Cause::none;
  std::uint32_t spine = 0;
  for (std::size_t i = 1; i < queries_.size(); ++i) {
    const ControlHeader& one = queries_[i].control;
    agreed.operations &= one.operations;
    agreed.types &= one.types;
    agreed.window = std::min(agreed.window, one.window);
    agreed.payload_bytes = std::min(agreed.payload_bytes, one.payload_bytes);
    ++at[one.tor1];
    if (one.cause != 0) cause = static_cast<Cause>(one.cause);
    if (one.hops == 0 || one.tor1 == 0 || one.tor2 != agreed.tor2) cause = Cause::cannot_compute;
    if (one.tor1 != one.tor2) {
      if (one.spine == 0 || (spine != 0 && one.spine != spine)) cause = Cause::cannot_compute;
      spine = one.spine;
    }
  }
  if (agreed.window == 0 || agreed.payload_bytes < 8) cause = Cause::no_slots;
  agreed.spine = spine;
  agreed.cause = static_cast<std::uint8_t>(cause);
  tors_ = static_cast<std::uint16_t>(at.size());
  members_at_.assign(queries_.size(), at[agreed.tor2]);
  for (std::size_t i = 1; i < queries_.size(); ++i) members_at_[i] = at[queries_[i].control.tor1];
  for (std::size_t i = 1; i < queries_.size(); ++i) send_notify(i);
  if (cause != Cause::none) return fail(cause);
  window_ = std::bit_floor(std::uint32_t{agreed.window});
  payload_bytes_ = agreed.payload_bytes;
  state_ = State::ready;
  due_ns_ = kNever;
}

void Leader::send_notify(std::size_t index) {
  Packet packet = packet_of(Kind::notify);
  packet.common.member = static_cast<std::uint16_t>(index);
  ControlHeader& control = packet.control;
  control = agreed_;
  control.tor1 = queries_[index].control.tor1;
  control.tor1_members = members_at_[index];
  control.tor2_members = members_at_[0];
  control.tors = tors_;
  control.group_size = static_cast<std::uint16_t>(queries_.size());
  control.destination_rank = queries_[index].control.world_rank;
  control.destination_ip = settings_.leaders[index].data.ip;
  control.destination_port = settings_.leaders[index].data.port;
  control.source_ip = settings_.leaders[0].data.ip;
  control.source_port = settings_.leaders[0].data.port;
  ++counters_.sent;
  send_(settings_.to_switch.ip != 0 ? settings_.to_switch
                                    : Address{settings_.leaders[index].data.ip, kUdpPort},
        packet, false);
}

void Leader::take_notify(const Packet& packet) {
  if (is_root() || packet.common.member != settings_.index || state_ != State::joining) {
    ++counters_.unexpected;
    return;
  }
  agreed_ = packet.control;
  if (agreed_.cause != 0) return fail(static_cast<Cause>(agreed_.cause));
  window_ = std::bit_floor(std::uint32_t{agreed_.window});
  payload_bytes_ = agreed_.payload_bytes;
  if (window_ == 0 || payload_bytes_ < 8) return fail(Cause::no_slots);
  state_ = State::ready;
  due_ns_ = kNever;
}

std::size_t Leader::values_in(std::uint32_t packet) const {
  return std::min(per_packet_, count_ - packet * per_packet_);
}

bool Leader::start(Operation operation, Type type, std::size_t count, const void* in, void* out,
                   std::uint64_t now_ns) {
  if (state_ != State::ready) return false;
  const auto op = static_cast<std::uint8_t>(operation);
  const auto kind = static_cast<std::uint8_t>(type);
  width_ = type_bytes(kind);
  if (operation == Operation::barrier) count = 0;
  if ((agreed_.operations >> op & 1) == 0 || (agreed_.types >> kind & 1) == 0 || width_ == 0 ||
      count * width_ > kMostBytes) {
    return false;
  }
  count_ = count;
  per_packet_ = payload_bytes_ / width_;
  packets_ =
      static_cast<std::uint32_t>(std::max<std::size_t>(1, (count + per_packet_ - 1) / per_packet_));
  values_.operation = op;
  values_.type = kind;
  sent_ = 0;
  missing_ = packets_;
  arrived_.assign(packets_, false);
  const auto* const bytes = static_cast<const std::uint8_t*>(in);
  in_.assign(bytes, bytes + count * width_);
  result_.resize(count * width_);
  out_ = static_cast<std::uint8_t*>(out);
  state_ = State::busy;
  retry_ns_ = settings_.retry_ns;
  hears_of_switch(now_ns);
  if (abandoned_) {
    // Who has not heard of it would wait for this leader's values.
    settle(now_ns);
  } else {
    fill_window(now_ns);
  }
  return true;
}

void Leader::send_data(std::uint32_t number) {
  Packet packet = packet_of(Kind::data);
  packet.common.sequence = base_ + number;
  packet.transport.psn = base_ + number;
  packet.values = values_;
  packet.values.count = static_cast<std::uint16_t>(count_ == 0 ? 0 : values_in(number));
  packet.payload = std::span<const std::uint8_t>(in_).subspan(number * per_packet_ * width_,
                                                              packet.values.count * width_);
  ++counters_.sent;
  send_(switch_address(), packet, false);
}

// Number n may go when there is a result for n - W; those of earlier operations are all there.
void Leader::fill_window(std::uint64_t now_ns) {
  while (sent_ < packets_ && (sent_ < window_ || arrived_[sent_ - window_])) {
    send_data(sent_++);
  }
  due_ns_ = now_ns + retry_ns_;
}

// The switch lives: it is asked from now on for as long as at first.
void Leader::hears_of_switch(std::uint64_t now_ns) {
  deadline_ns_ = now_ns + settings_.give_up_ns;
  tries_in_vain_ = 0;
  asks_anew_ = false;
}

// Whether a silent switch is given up. Who did not look in the time that answers had to come asks
// as often again, once: so long as it did not ask, the switch had nothing to say.
bool Leader::gives_up(std::uint64_t now_ns) {
  if (now_ns < deadline_ns_ || tries_in_vain_ < kLeastTries) return false;
  if (asks_anew_ || now_ns - due_ns_ <= settings_.longest_retry_ns) return true;
  asks_anew_ = true;
  tries_in_vain_ = 0;
  retry_ns_ = settings_.retry_ns;
  return false;
}

void Leader::take_result(const Packet& packet, std::uint64_t now_ns) {
  const std::uint32_t number = packet.common.sequence - base_;
  if (state_ != State::busy || number >= packets_ || arrived_[number] || number >= sent_ ||
      packet.values.operation != values_.operation || packet.values.type != values_.type ||
      packet.values.count != (count_ == 0 ? 0 : values_in(number))) {
    ++counters_.unexpected;
    return;
  }
  ++counters_.results;
  arrived_[number] = true;
  if (!packet.payload.empty()) {
    std::memcpy(result_.data() + number * per_packet_ * width_, packet.payload.data(),
                packet.payload.size());
  }
  retry_ns_ = settings_.retry_ns;
  hears_of_switch(now_ns);
  if (--missing_ == 0) return finish();
  fill_window(now_ns);
}

void Leader::finish() {
  if (!result_.empty()) std::memcpy(out_, result_.data(), result_.size());
  kept_values_ = values_;
  std::swap(kept_, result_);
  kept_base_ = base_;
  kept_packets_ = packets_;
  kept_per_packet_ = per_packet_;
  base_ += packets_;
  state_ = State::ready;
  due_ns_ = kNever;
}

void Leader::advance(std::uint64_t now_ns) {
  if (now_ns < due_ns_) return;
  switch (state_) {
    case State::joining:
      if (collecting_) return decide();
      if (now_ns >= deadline_ns_) return fail(Cause::cannot_compute);
      send_query(now_ns);
      return;
    case State::busy:
      if (gives_up(now_ns)) return settle(now_ns);
      ++tries_in_vain_;
      retry_ns_ = std::min(2 * retry_ns_, settings_.longest_retry_ns);
      for (std::uint32_t i = 0; i < sent_; ++i) {
        if (arrived_[i]) continue;
        ++counters_.repeated;
        send_data(i);
      }
      due_ns_ = now_ns + retry_ns_;
      return;
    case State::settling:
      if (now_ns >= deadline_ns_) {
        ++counters_.settled_over_host;
        return fail(cause_);
      }
      ask(now_ns);
      return;
    default:
      due_ns_ = kNever;
      return;
  }
}

// Takes nothing from the switch any more.
void Leader::settle(std::uint64_t now_ns) {
  abandoned_ = true;
  if (cause_ == Cause::none) cause_ = Cause::cannot_compute;
  if (state_ != State::busy) return;
  state_ = State::settling;
  promised_.assign(settings_.leaders.size(), false);
  promised_[settings_.index] = true;
  holder_ = settings_.index;
  retry_ns_ = settings_.retry_ns;
  deadline_ns_ = now_ns + settings_.settle_ns;
  ask(now_ns);
}

void Leader::ask(std::uint64_t now_ns) {
  Packet packet = packet_of(Kind::ask);
  packet.transport.queue_pair = kLeaderQueuePair;
  const auto send_to = [&](std::size_t index, std::uint32_t number) {
    packet.common.sequence = base_ + number;
    ++counters_.sent;
    send_(settings_.leaders[index].service, packet, true);
  };
  if (holder_ != settings_.index) {
    for (std::uint32_t i = 0; i < packets_; ++i) {
      if (!arrived_[i]) send_to(holder_, i);
    }
  } else {
    const auto first =
        static_cast<std::uint32_t>(std::ranges::find(arrived_, false) - arrived_.begin());
    for (std::size_t i = 0; i < promised_.size(); ++i) {
      if (!promised_[i]) send_to(i, first);
    }
  }
  due_ns_ = now_ns + retry_ns_;
  retry_ns_ = std::min(2 * retry_ns_, settings_.longest_retry_ns);
}

void Leader::take_ask(const Packet& packet, Address from, std::uint64_t now_ns) {
  const std::size_t asker = packet.common.member;
  if (asker >= settings_.leaders.size() || !(settings_.leaders[asker].service == from)) {
    ++counters_.unexpected;
    return;
  }
  const std::uint32_t number = packet.common.sequence - kept_base_;
  Packet answer = packet_of(Kind::promise);
  answer.transport.queue_pair = kLeaderQueuePair;
  answer.common.sequence = packet.common.sequence;
  if (kept_packets_ > 0 && number < kept_packets_) {
    answer.common.kind = static_cast<std::uint8_t>(Kind::kept);
    answer.values = kept_values_;
    const std::size_t width = type_bytes(kept_values_.type);
    const std::size_t begin = std::min(number * kept_per_packet_ * width, kept_.size());
    const std::size_t bytes = std::min(kept_per_packet_ * width, kept_.size() - begin);
    answer.values.count = static_cast<std::uint16_t>(bytes / width);
    answer.payload = std::span<const std::uint8_t>(kept_).subspan(begin, bytes);
  } else if (packet.common.sequence - base_ > 0x7fffffff) {
    ++counters_.unexpected;  // of an operation that the asker cannot be in
    return;
  }
  ++counters_.sent;
  send_(from, answer, true);
  // Whoever has been asked knows that the switch has failed somebody.
  settle(now_ns);
}

void Leader::take_answer(const Packet& packet, std::uint64_t now_ns) {
  const std::size_t index = packet.common.member;
  const std::uint32_t number = packet.common.sequence - base_;
  if (state_ != State::settling || index >= promised_.size() || number >= packets_) {
    ++counters_.unexpected;
    return;
  }
  if (packet.common.kind == static_cast<std::uint8_t>(Kind::promise)) {
    promised_[index] = true;
    if (holder_ == settings_.index &&
        std::ranges::all_of(promised_, [](bool promised) { return promised; })) {
      ++counters_.settled_over_host;
      fail(cause_);
    }
    return;
  }
  if (packet.values.operation != values_.operation || packet.values.type != values_.type ||
      packet.values.count != (count_ == 0 ? 0 : values_in(number))) {
    ++counters_.unexpected;
    return;
  }
  if (!arrived_[number]) {
    arrived_[number] = true;
    if (!packet.payload.empty()) {
      std::memcpy(result_.data() + number * per_packet_ * width_, packet.payload.data(),
                  packet.payload.size());
    }
    if (--missing_ == 0) {
      ++counters_.settled_with_result;
      return finish();
    }
  }
  if (holder_ == settings_.index) {
    holder_ = index;
    ask(now_ns);  // for the others, at once
  }
}

void Leader::receive(const Packet& packet, Address from, std::uint64_t now_ns) {
  if (packet.common.group != settings_.group || packet.common.key != settings_.key) {
    ++counters_.unexpected;
    return;
  }
  switch (static_cast<Kind>(packet.common.kind)) {
    case Kind::query:
      return take_query(packet, now_ns);
    case Kind::notify:
      return take_notify(packet);
    case Kind::result:
      return take_result(packet, now_ns);
    case Kind::refuse:
      if (state_ != State::busy || packet.common.sequence - base_ >= packets_) {
        ++counters_.unexpected;
        return;
      }
      if (packet.refusal.cause == static_cast<std::uint8_t>(Cause::waiting)) {
        hears_of_switch(now_ns);  // another leader is late
        return;
      }
      cause_ = static_cast<Cause>(packet.refusal.cause);
      return settle(now_ns);
    case Kind::ask:
      return take_ask(packet, from, now_ns);
    case Kind::promise:
    case Kind::kept:
      if (packet.common.member >= settings_.leaders.size() ||
          !(settings_.leaders[packet.common.member].service == from)) {
        ++counters_.unexpected;
        return;
      }
      return take_answer(packet, now_ns);
    default:
      ++counters_.unexpected;
  }
}

void Leader::leave() {
  if (window_ == 0) return;
  Packet packet = packet_of(Kind::kill);
  packet.common.sequence = base_;
  send_(switch_address(), packet, false);
}

}  // namespace od::innetwork
