// overdrive-pinning: prints as JSON where ranks would be pinned on this machine, or on another that
// hwloc knows by HWLOC_SYNTHETIC or HWLOC_XMLFILE.
//
// Options: --ranks N on this node (default: one for each core), --pin TEXT as of the setting
// (default: none), --threads N of each rank (default: OMP_NUM_THREADS), --allowed LIST of
// processors (default: this process's own), --sysfs to read the machine as ranks do, and not by
// hwloc. Exit status 0, or 2 for a wrong option or a machine that cannot be read.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#ifdef OVERDRIVE_HWLOC
#include <hwloc.h>
#endif

#include "base/json_text.h"
#include "config/pin_request.h"
#include "topology/cpu_set.h"
#include "topology/crowding.h"
#include "topology/pin_plan.h"

namespace od {
namespace {

using topology::CpuSet;
using topology::PinTopology;

struct Machine {
  PinTopology topology;
  bool real = true;    // this one
  std::string source;  // who has read it
  std::string error;
};

#ifdef OVERDRIVE_HWLOC

void mark(PinTopology& topology, hwloc_const_bitmap_t set, std::int16_t PinTopology::Cpu::*member) {
  int lowest = -1;
  int cpu = hwloc_bitmap_first(set);
  for (; cpu >= 0 && cpu < topology::kMaxCpus; cpu = hwloc_bitmap_next(set, cpu)) {
    PinTopology::Cpu& entry = topology.cpus[static_cast<std::size_t>(cpu)];
    if (!entry.online) continue;
    if (lowest < 0) lowest = cpu;
    entry.*member = static_cast<std::int16_t>(lowest);
  }
}

void mark_all(PinTopology& topology, hwloc_topology_t machine, hwloc_obj_type_t type,
              std::int16_t PinTopology::Cpu::*member) {
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(machine, type, object)) != nullptr) {
    mark(topology, object->cpuset, member);
  }
}

void read_hwloc(Machine& found) {
  hwloc_topology_t machine;
  if (hwloc_topology_init(&machine) != 0 || hwloc_topology_load(machine) != 0) {
    found.error = "hwloc cannot read the machine; look at HWLOC_SYNTHETIC and HWLOC_XMLFILE";
    return;
  }
  found.source = "hwloc";
  found.real = hwloc_topology_is_thissystem(machine) != 0;
  hwloc_obj_t cpu = nullptr;
  while ((cpu = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_PU, cpu)) != nullptr) {
    if (cpu->os_index < topology::kMaxCpus) found.topology.cpus[cpu->os_index].online = true;
  }
  mark_all(found.topology, machine, HWLOC_OBJ_CORE, &PinTopology::Cpu::core);
  mark_all(found.topology, machine, HWLOC_OBJ_PACKAGE, &PinTopology::Cpu::socket);
  mark_all(found.topology, machine, HWLOC_OBJ_NUMANODE, &PinTopology::Cpu::numa);
  const bool third = hwloc_get_nbobjs_by_type(machine, HWLOC_OBJ_L3CACHE) > 0;
  mark_all(found.topology, machine, third ? HWLOC_OBJ_L3CACHE : HWLOC_OBJ_L2CACHE,
           &PinTopology::Cpu::cache);
  found.topology.complete();
  hwloc_topology_destroy(machine);
}

#endif

void read_sysfs(Machine& found) {
  found.source = "sysfs";
  if (!topology::read_pin_topology("", &found.topology)) {
    found.error = "/sys does not describe the processors";
  }
}

struct Options {
  int ranks = 0;
  int threads = 1;
  std::string pin = "none";
  std::string allowed;
  bool sysfs = false;
};

bool read_number(const char* text, int most, int* number) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < 1 || value > most) return false;
  *number = static_cast<int>(value);
  return true;
}

bool read_options(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--sysfs") {
      options->sysfs = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* const value = argv[++i];
    constexpr int kMostRanks = 1 << 20;
    if (name == "--ranks") {
      if (!read_number(value, kMostRanks, &options->ranks)) return false;
    } else if (name == "--threads") {
      if (!read_number(value, topology::kMaxCpus, &options->threads)) return false;
    } else if (name == "--pin") {
      options->pin = value;
    } else if (name == "--allowed") {
      options->allowed = value;
    } else {
      return false;
    }
  }
  return true;
}

void write_machine(JsonWriter& json, const Machine& machine, const CpuSet& allowed) {
  json.member("source", machine.source);
  json.member("real", machine.real);
  json.member("allowed", topology::format_cpu_list(allowed));
  json.key("cpus");
  json.open_array();
  for (std::size_t i = 0; i < machine.topology.cpus.size(); ++i) {
    const PinTopology::Cpu& cpu = machine.topology.cpus[i];
    if (!cpu.online) continue;
    json.open_object();
    json.member("cpu", static_cast<int>(i));
    json.member("core", int{cpu.core});
    json.member("cache", int{cpu.cache});
    json.member("numa", int{cpu.numa});
    json.member("socket", int{cpu.socket});
    json.close_object();
  }
  json.close_array();
}

int run(int argc, char** argv) {
  Options options;
  options.threads = topology::openmp_threads(std::getenv("OMP_NUM_THREADS"));
  config::PinRequest request;
  if (!read_options(argc, argv, &options)) {
    std::fprintf(stderr,
                 "usage: overdrive-pinning [--ranks N] [--pin TEXT] [--threads N] "
                 "[--allowed LIST] [--sysfs]\n");
    return 2;
  }
  if (const char* const problem = config::parse_pin(options.pin, &request)) {
    std::fprintf(stderr, "'%s' %s\n", options.pin.c_str(), problem);
    return 2;
  }
  Machine machine;
#ifdef OVERDRIVE_HWLOC
  options.sysfs ? read_sysfs(machine) : read_hwloc(machine);
#else
  read_sysfs(machine);
#endif
  if (!machine.error.empty()) {
    std::fprintf(stderr, "%s\n", machine.error.c_str());
    return 2;
  }
  CpuSet online;
  for (int i = 0; i < topology::kMaxCpus; ++i) {
    if (machine.topology.cpus[static_cast<std::size_t>(i)].online) online.add(i);
  }
  CpuSet allowed = online;
  if (!options.allowed.empty()) {
    allowed = topology::parse_cpu_list(options.allowed);
  } else if (machine.real) {
    allowed = topology::own_affinity();
  }
  if (options.ranks == 0) options.ranks = topology::count_cores(machine.topology, allowed);

  JsonWriter json;
  json.open_object();
  write_machine(json, machine, allowed);
  json.member("pin", options.pin);
  json.member("threads", options.threads);
  json.key("ranks");
  json.open_array();
  std::vector<topology::RankPlace> places;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const topology::PinPlace place = topology::place_rank(machine.topology, allowed, request, rank,
                                                          options.ranks, options.threads);
    json.open_object();
    json.member("rank", rank);
    json.member("cpus", topology::format_cpu_list(place.cpus));
    json.member("problem", place.problem == nullptr ? "" : place.problem);
    json.close_object();
    places.push_back({rank, place.problem == nullptr ? place.cpus : allowed});
  }
  json.close_array();
  json.key("warnings");
  json.open_array();
  for (const std::string& warning :
       topology::crowding(machine.topology, allowed, places, options.threads)) {
    json.value(warning);
  }
  json.close_array();
  json.close_object();
  std::puts(json.take().c_str());
  return 0;
}

}  // namespace
}  // namespace od

int main(int argc, char** argv) { return od::run(argc, argv); }
