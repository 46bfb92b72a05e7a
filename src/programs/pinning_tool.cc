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

#include "base/json_text.h"
#include "config/pin_request.h"
#ifdef OVERDRIVE_HWLOC
#include "programs/hwloc_library.h"
#endif
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

void read_sysfs(Machine& found) {
  found.source = "sysfs";
  if (!topology::read_pin_topology("", &found.topology)) {
    found.error = "/sys does not describe the processors";
  }
}

#ifdef OVERDRIVE_HWLOC

void mark_all(PinTopology& topology, const programs::HwlocLibrary& hwloc, hwloc_topology_t machine,
              hwloc_obj_type_t type, std::int16_t PinTopology::Cpu::*member) {
  hwloc.objects(machine, type, [&](const hwloc_obj& object) {
    int lowest = -1;
    int cpu = hwloc.first(object.cpuset);
    for (; cpu >= 0 && cpu < topology::kMaxCpus; cpu = hwloc.next(object.cpuset, cpu)) {
      PinTopology::Cpu& entry = topology.cpus[static_cast<std::size_t>(cpu)];
      if (!entry.online) continue;
      if (lowest < 0) lowest = cpu;
      entry.*member = static_cast<std::int16_t>(lowest);
    }
  });
}

void read_hwloc(Machine& found, const programs::HwlocLibrary& hwloc) {
  hwloc_topology_t machine;
  if (hwloc.init(&machine) != 0 || hwloc.load(machine) != 0) {
    found.error = "hwloc cannot read the machine; look at HWLOC_SYNTHETIC and HWLOC_XMLFILE";
    return;
  }
  found.source = "hwloc";
  found.real = hwloc.is_this_system(machine) != 0;
  hwloc.objects(machine, HWLOC_OBJ_PU, [&](const hwloc_obj& cpu) {
    if (cpu.os_index < topology::kMaxCpus) found.topology.cpus[cpu.os_index].online = true;
  });
  mark_all(found.topology, hwloc, machine, HWLOC_OBJ_CORE, &PinTopology::Cpu::core);
  mark_all(found.topology, hwloc, machine, HWLOC_OBJ_PACKAGE, &PinTopology::Cpu::socket);
  mark_all(found.topology, hwloc, machine, HWLOC_OBJ_NUMANODE, &PinTopology::Cpu::numa);
  bool third = false;
  hwloc.objects(machine, HWLOC_OBJ_L3CACHE, [&](const hwloc_obj&) { third = true; });
  mark_all(found.topology, hwloc, machine, third ? HWLOC_OBJ_L3CACHE : HWLOC_OBJ_L2CACHE,
           &PinTopology::Cpu::cache);
  found.topology.complete();
  hwloc.destroy(machine);
}

#endif

// By hwloc where it is, else as ranks read it: only hwloc knows other machines than this one.
void read_machine(Machine& found) {
#ifdef OVERDRIVE_HWLOC
  programs::HwlocLibrary hwloc;
  if (hwloc.open()) return read_hwloc(found, hwloc);
#endif
  for (const char* const name : {"HWLOC_SYNTHETIC", "HWLOC_XMLFILE"}) {
    if (std::getenv(name) == nullptr) continue;
    found.error = std::string(name) +
                  " is set, but hwloc 2 is not installed here: install it, or "
                  "unset " +
                  name;
    return;
  }
  read_sysfs(found);
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
  options.sysfs ? read_sysfs(machine) : read_machine(machine);
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
