// Numbers the edges of a topology and writes the schedules of its collectives.

#include "coll/run/neighbourhood.h"

#include <map>
#include <utility>

#include "coll/run/call.h"

namespace od {

using coll::Buffer;
using coll::Schedule;
using coll::Step;
using coll::StepKind;

namespace {

std::vector<Neighbourhood::Edge> numbered(const std::vector<int>& peers) {
  std::map<int, std::uint32_t> seen;
  std::vector<Neighbourhood::Edge> edges;
  edges.reserve(peers.size());
  for (const int peer : peers) edges.push_back({peer, peer < 0 ? 0 : seen[peer]++});
  return edges;
}

}  // namespace

std::unique_ptr<Neighbourhood> Neighbourhood::graph(int rank, const std::vector<int>& sources,
                                                    const std::vector<int>& destinations) {
  return std::unique_ptr<Neighbourhood>(
      new Neighbourhood(rank, false, numbered(sources), numbered(destinations)));
}

std::unique_ptr<Neighbourhood> Neighbourhood::grid(int rank, const std::vector<int>& around) {
  std::vector<Edge> in;
  std::vector<Edge> out;
  bool is_plain = true;
  for (std::uint32_t side = 0; side < around.size(); ++side) {
    in.push_back({around[side], side ^ 1});
    out.push_back({around[side], side});
    if (around[side] >= 0 && around[side] == around[side ^ 1]) is_plain = false;
  }
  return std::unique_ptr<Neighbourhood>(
      new Neighbourhood(rank, is_plain, std::move(in), std::move(out)));
}

Neighbourhood::Neighbourhood(int rank, bool is_plain_grid, std::vector<Edge> in,
                             std::vector<Edge> out)
    : is_plain_grid_(is_plain_grid),
      in_(std::move(in)),
      out_(std::move(out)),
      same_block_(messages(rank, true)),
      own_blocks_(messages(rank, false)) {}

std::shared_ptr<const Schedule> Neighbourhood::messages(int rank, bool same_block) const {
  auto schedule = std::make_shared<Schedule>();
  const auto block = [](Buffer buffer, std::size_t number) {
    return coll::Place{0, static_cast<std::int32_t>(number), buffer};
  };
  const auto sent = [&](std::size_t k) { return block(Buffer::kInput, same_block ? 0 : k); };
  std::map<std::uint32_t, std::size_t> to_itself;
  for (std::size_t k = 0; k < out_.size(); ++k) {
    if (out_[k].peer == rank) to_itself[out_[k].ordinal] = k;
  }
  const auto add = [&](const Edge& edge, StepKind kind, coll::Place target, coll::Place source) {
    Step step;
    step.kind = kind;
    step.count = coll::kWholeBlock;
    step.target = target;
    step.source = source;
    step.peer = edge.peer;
    step.ordinal = edge.ordinal;
    if (edge.ordinal >= schedule->ordinals) schedule->ordinals = edge.ordinal + 1;
    schedule->steps.push_back(step);
  };
  for (std::size_t k = 0; k < in_.size(); ++k) {
    const coll::Place target = block(Buffer::kOutput, k);
    if (in_[k].is_nobody()) continue;
    if (in_[k].peer != rank) {
      add(in_[k], StepKind::kReceive, target, {});
    } else if (const auto found = to_itself.find(in_[k].ordinal); found != to_itself.end()) {
      add(in_[k], StepKind::kCopy, target, sent(found->second));
    }
  }
  for (std::size_t k = 0; k < out_.size(); ++k) {
    if (!out_[k].is_nobody() && out_[k].peer != rank) add(out_[k], StepKind::kSend, {}, sent(k));
  }
  // No step waits for another one.
  schedule->waits.assign(schedule->steps.size(), 0);
  schedule->first_follower.assign(schedule->steps.size() + 1, 0);
  return schedule;
}

const char* name_of(const CollectiveCall& call) {
  if (call.neighbours == nullptr) return coll::info(call.collective).name;
  switch (call.collective) {
    case coll::Collective::kAllgather:
      return "neighbor_allgather";
    case coll::Collective::kAllgatherv:
      return "neighbor_allgatherv";
    case coll::Collective::kAlltoall:
      return "neighbor_alltoall";
    case coll::Collective::kAlltoallv:
      return "neighbor_alltoallv";
    default:
      return "neighbor_alltoallw";
  }
}

}  // namespace od
