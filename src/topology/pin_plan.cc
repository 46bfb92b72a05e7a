// Places ranks: cores in the order of the machine's tree, dealt out by policy.
#include "topology/pin_plan.h"

#include <algorithm>

namespace od::topology {
namespace {

using config::PinPolicy;
using config::PinRequest;

// A run of processors that lie next to each other in the order of the tree.
struct Run {
  std::int16_t start = 0;
  std::int16_t count = 0;
};

// The allowed processors, socket by socket, NUMA node by NUMA node, cache by cache, core by core.
struct Tree {
  std::array<std::int16_t, kMaxCpus> order;
  std::array<Run, kMaxCpus> cores;
  int cpu_count = 0;
  int core_count = 0;

  Tree(const PinTopology& topology, const CpuSet& allowed) {
    for (int cpu = allowed.first(); cpu >= 0; cpu = allowed.next(cpu)) {
      if (topology.cpus[static_cast<std::size_t>(cpu)].online) {
        order[static_cast<std::size_t>(cpu_count++)] = static_cast<std::int16_t>(cpu);
      }
    }
    std::sort(order.begin(), order.begin() + cpu_count, [&](std::int16_t a, std::int16_t b) {
      const PinTopology::Cpu& left = topology.cpus[static_cast<std::size_t>(a)];
      const PinTopology::Cpu& right = topology.cpus[static_cast<std::size_t>(b)];
      if (left.socket != right.socket) return left.socket < right.socket;
      if (left.numa != right.numa) return left.numa < right.numa;
      if (left.cache != right.cache) return left.cache < right.cache;
      if (left.core != right.core) return left.core < right.core;
      return a < b;
    });
    core_count = runs(topology, &PinTopology::Cpu::core, &cores);
  }

  // The groups of a kind in the order of the tree; returns how many.
  int runs(const PinTopology& topology, std::int16_t PinTopology::Cpu::*group,
           std::array<Run, kMaxCpus>* found) const {
    int count = 0;
    std::int16_t last = -1;
    for (int i = 0; i < cpu_count; ++i) {
      const auto cpu = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
      if (topology.cpus[cpu].*group != last) {
        last = topology.cpus[cpu].*group;
        (*found)[static_cast<std::size_t>(count++)] = {static_cast<std::int16_t>(i), 0};
      }
      ++(*found)[static_cast<std::size_t>(count - 1)].count;
    }
    return count;
  }

  const Run& core(int index) const { return cores[static_cast<std::size_t>(index)]; }

  void add(int start, int count, CpuSet* set) const {
    for (int i = start; i < start + count; ++i) set->add(order[static_cast<std::size_t>(i)]);
  }
  void add_cores(int first, int count, CpuSet* set) const {
    for (int i = first; i < first + count; ++i) add(core(i).start, core(i).count, set);
  }
  // What one of `sharing` ranks gets of a core: hardware threads of its own where they suffice.
  void add_part_of_core(int index, int slot, int sharing, CpuSet* set) const {
    const Run& run = core(index);
    if (sharing > run.count) return add(run.start, run.count, set);
    const int from = run.count * slot / sharing;
    add(run.start + from, run.count * (slot + 1) / sharing - from, set);
  }
};

// Blocks of cores in an order in which each lies as far from the one before as it can.
class Scattered {
 public:
  Scattered(const PinTopology& topology, const Tree& tree, int width) {
    Path last{};
    int socket = -1;
    int numa = -1;
    int cache = -1;
    for (int first = 0; first + width <= tree.core_count; first += width) {
      const auto at = static_cast<std::size_t>(tree.core(first).start);
      const auto cpu = static_cast<std::size_t>(tree.order[at]);
      const PinTopology::Cpu& place = topology.cpus[cpu];
      Path path = last;
      if (place.socket != socket) {
        path = {static_cast<std::int16_t>(socket < 0 ? 0 : last.socket + 1), 0, 0, 0, 0};
      } else if (place.numa != numa) {
        path = {last.socket, static_cast<std::int16_t>(last.numa + 1), 0, 0, 0};
      } else if (place.cache != cache) {
        path = {last.socket, last.numa, static_cast<std::int16_t>(last.cache + 1), 0, 0};
      } else {
        ++path.core;
      }
      socket = place.socket;
      numa = place.numa;
      cache = place.cache;
      path.first = static_cast<std::int16_t>(first);
      last = path;
      paths_[static_cast<std::size_t>(count_++)] = path;
    }
    std::sort(paths_.begin(), paths_.begin() + count_, [](const Path& a, const Path& b) {
      if (a.core != b.core) return a.core < b.core;
      if (a.cache != b.cache) return a.cache < b.cache;
      if (a.numa != b.numa) return a.numa < b.numa;
      return a.socket < b.socket;
    });
  }
  // The first core of a block.
  int first(int block) const { return paths_[static_cast<std::size_t>(block)].first; }

 private:
  // Which socket, which NUMA node of that, which cache of that, which block of that.
  struct Path {
    std::int16_t socket;
    std::int16_t numa;
    std::int16_t cache;
    std::int16_t core;
    std::int16_t first;
  };
  std::array<Path, kMaxCpus> paths_;
  int count_ = 0;
};

void place_on_cores(const PinTopology& topology, const Tree& tree, PinPolicy policy, int rank,
                    int ranks, int threads, CpuSet* set) {
  const int cores = tree.core_count;
  if (ranks > cores) {
    if (policy == PinPolicy::kScatter) {
      const Scattered scattered(topology, tree, 1);
      const int sharing = ranks / cores + (rank % cores < ranks % cores ? 1 : 0);
      return tree.add_part_of_core(scattered.first(rank % cores), rank / cores, sharing, set);
    }
    const auto first_rank = [&](long core) {
      return static_cast<int>((core * ranks + cores - 1) / cores);
    };
    const long core = long{rank} * cores / ranks;
    const int first = first_rank(core);
    return tree.add_part_of_core(static_cast<int>(core), rank - first, first_rank(core + 1) - first,
                                 set);
  }
  const int width = std::clamp(threads, 1, cores / ranks);
  if (policy == PinPolicy::kScatter) {
    const Scattered scattered(topology, tree, width);
    tree.add_cores(scattered.first(rank), width, set);
  } else if (policy == PinPolicy::kCompact) {
    tree.add_cores(rank * width, width, set);
  } else {
    tree.add_cores(static_cast<int>(long{rank} * cores / ranks), width, set);
  }
}

std::int16_t PinTopology::Cpu::*group_of(PinPolicy policy) {
  switch (policy) {
    case PinPolicy::kCache:
      return &PinTopology::Cpu::cache;
    case PinPolicy::kNuma:
      return &PinTopology::Cpu::numa;
    default:
      return &PinTopology::Cpu::socket;
  }
}

PinPlace place_by_list(const PinTopology& topology, const CpuSet& allowed,
                       const PinRequest& request, int local_rank) {
  PinPlace place;
  if (local_rank >= config::pin_list_size(request.list)) {
    place.problem = "the list has fewer places than the node has ranks";
    return place;
  }
  CpuSet asked;
  config::pin_list_place(
      request.list, local_rank,
      [](void* set, int processor) { static_cast<CpuSet*>(set)->add(processor); }, &asked);
  for (int cpu = asked.first(); cpu >= 0; cpu = asked.next(cpu)) {
    if (allowed.contains(cpu) && topology.cpus[static_cast<std::size_t>(cpu)].online) {
      place.cpus.add(cpu);
    } else {
      place.problem = "the list names processors that the job may not use here";
    }
  }
  return place;
}

}  // namespace

void PinTopology::complete() {
  std::int16_t lowest = -1;
  for (int i = kMaxCpus - 1; i >= 0; --i) {
    if (cpus[static_cast<std::size_t>(i)].online) lowest = static_cast<std::int16_t>(i);
  }
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    Cpu& cpu = cpus[i];
    if (!cpu.online) continue;
    if (cpu.core < 0) cpu.core = static_cast<std::int16_t>(i);
    if (cpu.socket < 0) cpu.socket = lowest;
    if (cpu.numa < 0) cpu.numa = cpu.socket;
    if (cpu.cache < 0) cpu.cache = cpu.numa;
  }
}

PinPlace place_rank(const PinTopology& topology, const CpuSet& allowed, const PinRequest& request,
                    int local_rank, int local_size, int threads) {
  PinPlace place;
  if (request.policy == PinPolicy::kList) {
    return place_by_list(topology, allowed, request, local_rank);
  }
  const Tree tree(topology, allowed);
  if (tree.cpu_count == 0 || local_rank < 0 || local_rank >= local_size) {
    place.problem = "no processor is left to the job here";
    return place;
  }
  switch (request.policy) {
    case PinPolicy::kNone:
    case PinPolicy::kList:
      place.cpus = allowed;
      break;
    case PinPolicy::kCompact:
    case PinPolicy::kScatter:
    case PinPolicy::kCore:
      place_on_cores(topology, tree, request.policy, local_rank, local_size, threads, &place.cpus);
      break;
    case PinPolicy::kCache:
    case PinPolicy::kNuma:
    case PinPolicy::kSocket: {
      std::array<Run, kMaxCpus> groups;
      const int count = tree.runs(topology, group_of(request.policy), &groups);
      const long index = long{local_rank} * count / local_size;
      const Run& group = groups[static_cast<std::size_t>(index)];
      tree.add(group.start, group.count, &place.cpus);
      break;
    }
  }
  return place;
}

int count_cores(const PinTopology& topology, const CpuSet& cpus) {
  CpuSet cores;
  for (int cpu = cpus.first(); cpu >= 0; cpu = cpus.next(cpu)) {
    cores.add(topology.cpus[static_cast<std::size_t>(cpu)].core);
  }
  return cores.count();
}

}  // namespace od::topology
