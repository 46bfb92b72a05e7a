// Joining a team, and the program's collectives as operations of a team.

#include "coll/run/team.h"

#include <algorithm>
#include <string>
#include <utility>

#include "coll/plan/hierarchy/node_steps.h"
#include "coll/run/collectives.h"
#include "observe/log.h"

namespace od {

using coll::Buffer;
using coll::Flow;
using coll::Part;
using coll::Place;
using coll::shm::Blocks;
using coll::shm::SlotLease;
using host::kSuccess;

CollectiveTeam::CollectiveTeam(Collectives& owner, Comm& comm, std::vector<int> members,
                               std::uint64_t context, std::uint32_t spare_slots)
    : owner_(owner),
      endpoint_(owner.endpoint),
      comm_(comm),
      members_(std::move(members)),
      context_(context),
      carrier_(endpoint_, comm_, members_, context_) {
  joining_.resize(members_.size());
  own_ = {owner_.slots->allocate(spare_slots), owner_.cache};
}

void CollectiveTeam::tell_members() {
  phase_ = Phase::joining;
  const p2p::LayoutRef& bytes = CollectiveBuffers::byte_layout();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const int rank = members_[i];
    if (rank == comm_.rank) {
      joining_[i] = own_;
      continue;
    }
    for (const RequestKind kind : {RequestKind::recv, RequestKind::send}) {
      void* const buffer = kind == RequestKind::recv ? &joining_[i] : &own_;
      Request* const message = endpoint_.internal_message(kind, comm_, context_, rank, 0, buffer,
                                                          sizeof(Joining), bytes);
      if (message == nullptr) continue;  // then this member has no slot for us
      messages_.push_back(message);
      if (kind == RequestKind::recv) {
        endpoint_.start_local_receive(*message);
      } else if (endpoint_.start_send(*message) != kSuccess) {
        message->complete = true;
      }
    }
  }
}

CollectiveTeam::~CollectiveTeam() {
  // A team that is still joining has been asked for by no call that is not done.
  for (Request* message : messages_) endpoint_.requests.release(*message);
  leave();
}

void CollectiveTeam::leave() {
  if (own_.lease.slot == SlotLease::kNone) return;
  if (team_ != nullptr) {
    owner_.slots->release(own_.lease, team_->exchanges(), team_->acknowledgements());
    team_.reset();
  } else {
    owner_.slots->release(own_.lease, 0, {});
  }
  own_.lease.slot = SlotLease::kNone;
}

bool CollectiveTeam::advance() {
  if (phase_ == Phase::joining) [[unlikely]]
    return join();
  return team_ != nullptr && team_->advance();
}

bool CollectiveTeam::join() {
  bool moved = false;
  for (std::size_t i = 0; i < messages_.size();) {
    if (!messages_[i]->complete) {
      ++i;
      continue;
    }
    endpoint_.requests.release(*messages_[i]);
    messages_[i] = messages_.back();
    messages_.pop_back();
    moved = true;
  }
  if (!messages_.empty()) return moved;
  const bool all = std::all_of(joining_.begin(), joining_.end(), [](const Joining& member) {
    return member.lease.slot != SlotLease::kNone;
  });
  if (all) {
    make_team();
    phase_ = Phase::ready;
  } else {
    ++endpoint_.counters.teams_refused;
    leave();
    phase_ = Phase::impossible;
  }
  for (CollectiveOp* op : waiting_) op->launch();
  waiting_ = {};
  return true;
}

void CollectiveTeam::make_team() {
  coll::shm::TeamSetup setup;
  setup.layout = &endpoint_.node->layout();
  setup.wake_mode = endpoint_.wake_mode;
  setup.tuning = owner_.tuning;
  setup.carrier = &carrier_;
  setup.in_groups = &endpoint_.counters.reductions_in_groups;
  setup.context = this;
  setup.corrupt = [](void* context, int member) {
    p2p::Endpoint& endpoint = static_cast<CollectiveTeam*>(context)->endpoint_;
    log(Level::kError,
        "rank %d (of this node's ranks of a communicator) shows another length in a reduction "
        "than the others expect, or its shared memory is damaged; ending the job: do all ranks "
        "give the same count?",
        member);
    endpoint.host.abort(1);
  };
  setup.distance = [](void* context, int member, const void* line) {
    const CollectiveTeam& team = *static_cast<CollectiveTeam*>(context);
    const int rank = team.members_[static_cast<std::size_t>(member)];
    const int index = team.comm_.local_index[static_cast<std::size_t>(rank)];
    p2p::Endpoint& endpoint = team.endpoint_;
    endpoint.transport->time_line(static_cast<std::uint32_t>(index), line,
                                  endpoint.settings.far_threshold_ns);
  };
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const int rank = members_[i];
    // This rank's own index is not in local_index where it has no local peer at all.
    const int index = rank == comm_.rank ? static_cast<int>(endpoint_.my_index)
                                         : comm_.local_index[static_cast<std::size_t>(rank)];
    if (rank == comm_.rank) setup.me = static_cast<int>(i);
    const node::Member& member = endpoint_.node->member(index);
    if (rank != comm_.rank) neighbour_ = static_cast<std::uint32_t>(index);
    setup.members.push_back({member.base, joining_[i].lease, member.reach, member.reach_bytes,
                             member.reaches_us, joining_[i].cache});
  }
  setup.tuning.oversubscribed = endpoint_.node->oversubscribed();
  setup.tuning.far = far_ = endpoint_.transport->far(neighbour_);
  team_ = std::make_unique<coll::shm::Team>(std::move(setup));
  ++endpoint_.counters.teams_made;
  if (log_enabled(Level::kDebug)) describe_team();
}

void CollectiveTeam::describe_team() const {
  if (owner_.tuning.driver == coll::shm::Driver::generic) {
    log(Level::kDebug, "collectives of %d ranks in shared memory: generic reductions",
        team_->size());
    return;
  }
  const coll::shm::Groups& groups = team_->groups();
  std::string sizes;
  for (int i = 0; i < groups.count(); ++i) {
    sizes += (i == 0 ? "" : "+") + std::to_string(groups.members(i).size());
  }
  log(Level::kDebug,
      "collectives of %d ranks in shared memory: segmented reductions, %d groups that share a "
      "cache "
      "(%s), %llu bytes of a segment each",
      team_->size(), groups.count(), sizes.c_str(),
      static_cast<unsigned long long>(team_->segment_slice_bytes()));
}

void CollectiveTeam::look_at_distance() {
  const bool far = endpoint_.transport->far(neighbour_);
  if (far == far_) return;
  far_ = far;
  team_->set_far(far);
}

bool CollectiveTeam::serves(const CollectiveCall& call) const {
  if (!coll::info(call.collective).reduces) return true;
  const std::int64_t bytes = call.recv_type->size;
  return bytes > 0 && static_cast<std::uint64_t>(bytes) <= team_->largest_element_bytes();
}

namespace {

std::byte* bytes_at(const CollectiveBuffers& buffers, Buffer buffer) {
  return reinterpret_cast<std::byte*>(buffers.address({0, 0, buffer}));
}

Blocks equal_blocks(std::byte* base, std::int64_t each, int count) {
  Blocks blocks;
  blocks.base = base;
  blocks.each = static_cast<std::uint64_t>(each);
  blocks.total = blocks.each * static_cast<std::uint64_t>(count);
  return blocks;
}

// Blocks wherever they lie; the arrays stay in `work`.
Blocks blocks_of(const CollectiveBuffers& buffers, Buffer buffer, int ranks,
                 std::vector<std::int64_t>& offsets, std::vector<std::int64_t>& sizes) {
  Blocks blocks;
  offsets.clear();
  sizes.clear();
  // Empty blocks may have no address.
  char* base = nullptr;
  for (int i = 0; i < ranks; ++i) {
    const Place place{0, i, buffer};
    sizes.push_back(buffers.units(coll::kWholeBlock, place));
    if (base == nullptr && sizes.back() != 0) base = buffers.address(place);
    offsets.push_back(sizes.back() != 0 ? buffers.address(place) - base : 0);
  }
  blocks.base = reinterpret_cast<std::byte*>(base);
  blocks.offsets = offsets.data();
  blocks.sizes = sizes.data();
  return blocks;
}

// Null stands for an input that lies in the output.
std::byte* input_of(const CollectiveCall& call, const CollectiveBuffers& buffers) {
  return call.in_place ? nullptr : bytes_at(buffers, Buffer::kInput);
}

void start_reduction(coll::shm::Team& team, TeamWork& work, const CollectiveCall& call,
                     const CollectiveBuffers& buffers, coll::shm::ReductionForm form) {
  coll::shm::Operation& op = work.operation;
  const coll::CollectiveInfo& info = coll::info(call.collective);
  std::byte* const input = input_of(call, buffers);
  std::byte* const output = bytes_at(buffers, Buffer::kOutput);
  const auto count = static_cast<std::uint64_t>(call.recv_count);
  const coll::shm::Combiner& combiner = buffers.combiner();
  if (info.rooted()) {
    team.reduce(op, call.root, input, output, count, combiner, form);
  } else if (info.flow == Flow::kPrefix) {
    info.takes_self ? team.scan(op, input, output, count, combiner)
                    : team.exscan(op, input, output, count, combiner);
  } else if (info.input == Part::kOne) {
    team.allreduce(op, input, output, count, combiner, form);
  } else {
    const std::int64_t extent = buffers.unit_bytes();
    Blocks send =
        equal_blocks(call.in_place ? output : input, call.recv_count * extent, team.size());
    if (!equal_counts(call.recv_blocks)) {
      work.send_offsets.clear();
      work.send_bytes.clear();
      std::int64_t at = 0;
      for (const BlockPlace& block : call.recv_blocks) {
        work.send_offsets.push_back(at);
        work.send_bytes.push_back(block.count * extent);
        at += block.count * extent;
      }
      send.offsets = work.send_offsets.data();
      send.sizes = work.send_bytes.data();
    }
    team.reduce_scatter(op, send, output, combiner);
  }
}

}  // namespace

coll::shm::ReductionForm reduction_form(const coll::Algorithm& algorithm) {
  using coll::NodeForm;
  using coll::shm::ReductionForm;
  switch (algorithm.node_form) {
    case NodeForm::automatic:
      return ReductionForm::automatic;
    case NodeForm::whole:
      return ReductionForm::whole;
    case NodeForm::slices:
      return ReductionForm::slices;
    case NodeForm::segments:
      return ReductionForm::segments;
    case NodeForm::groups:
      return ReductionForm::groups;
  }
  return ReductionForm::automatic;
}

void start_whole(coll::shm::Team& team, TeamWork& work, const CollectiveCall& call,
                 const CollectiveBuffers& buffers, coll::shm::ReductionForm form) {
  coll::shm::Operation& op = work.operation;
  const coll::CollectiveInfo& info = coll::info(call.collective);
  if (info.reduces) return start_reduction(team, work, call, buffers, form);
  if (info.output == Part::kNone) return team.barrier(op);
  const int ranks = team.size();
  const bool at_root = team.position() == call.root;
  const std::int64_t sent = call.send_type ? call.send_count * call.send_type->size : 0;
  const std::int64_t received = call.recv_type ? call.recv_count * call.recv_type->size : 0;
  std::byte* const output = bytes_at(buffers, Buffer::kOutput);
  if (info.input == Part::kNone) {
    return team.bcast(op, call.root, output, static_cast<std::uint64_t>(received));
  }
  // The blocks of one side, where this rank has them.
  const bool own_lists = info.counts != coll::Counts::kSame;
  const auto blocks = [&](Buffer buffer) {
    const bool sends = buffer == Buffer::kInput;
    if (!(sends ? info.has_input(at_root) : info.has_output(at_root))) return Blocks{};
    if (own_lists) {
      return blocks_of(buffers, buffer, ranks, sends ? work.send_offsets : work.recv_offsets,
                       sends ? work.send_bytes : work.recv_bytes);
    }
    return equal_blocks(bytes_at(buffers, buffer), sends ? sent : received, ranks);
  };
  if (info.input == Part::kEach && info.output == Part::kEach) {
    const Blocks to = blocks(Buffer::kOutput);
    return team.alltoall(op, call.in_place && !own_lists ? to : blocks(Buffer::kInput), to);
  }
  const Blocks each = blocks(info.scatters() ? Buffer::kInput : Buffer::kOutput);
  // This rank's own block; in place it is one of them.
  const auto bytes = static_cast<std::uint64_t>(info.scatters() ? received : sent);
  if (info.scatters()) {
    team.scatter(op, call.root, each, call.in_place ? nullptr : output, bytes);
  } else if (info.rooted()) {
    team.gather(op, call.root, input_of(call, buffers), bytes, each);
  } else {
    team.allgather(op, input_of(call, buffers), bytes, each);
  }
}

void start_node_step(coll::shm::Team& team, TeamWork& work, const coll::Step& step,
                     const CollectiveCall& call, const CollectiveBuffers& buffers,
                     coll::shm::ReductionForm form) {
  using coll::NodeWork;
  coll::shm::Operation& op = work.operation;
  const int leader = coll::node_leader(step);
  const bool leads = team.position() == leader;
  const std::int64_t units = step.count * buffers.units_per_unit();
  const std::int64_t bytes = units * buffers.unit_bytes();
  const NodeWork what = coll::node_work(step);
  const auto count = static_cast<std::uint64_t>(units);
  // Messages without content.
  if (step.count == 0) {
    if (what == NodeWork::kReduce) {
      team.signal_to(op, leader);
    } else {
      team.signal_from(op, leader);
    }
    return;
  }
  auto* const source = reinterpret_cast<std::byte*>(buffers.address(step.source));
  auto* const target = reinterpret_cast<std::byte*>(buffers.address(step.target));
  switch (what) {
    case NodeWork::kReduce:
      team.reduce(op, leader, source, leads ? target : nullptr, count, buffers.combiner(), form);
      return;
    case NodeWork::kBcast:
      team.bcast(op, leader, leads ? source : target, static_cast<std::uint64_t>(bytes));
      return;
    case NodeWork::kGather:
      team.gather(op, leader, source, static_cast<std::uint64_t>(bytes),
                  equal_blocks(target, bytes, leads ? team.size() : 0));
      return;
    case NodeWork::kScatter:
      team.scatter(op, leader, equal_blocks(source, bytes, leads ? team.size() : 0), target,
                   static_cast<std::uint64_t>(bytes));
      return;
    case NodeWork::kScan:
      team.scan(op, source, target, count, buffers.combiner());
      return;
    case NodeWork::kExscan:
      team.exscan(op, source, target, count, buffers.combiner());
      return;
    case NodeWork::kWhole:
      start_whole(team, work, call, buffers, form);
      return;
  }
}

}  // namespace od
