// Pins a rank (setting `pin`) before its program starts, so that the memory it touches first lies
// on its own NUMA node and the threads that it starts inherit its processors.
//
// What the job may use on this node is what the launcher's own process here may use: a rank may
// have been bound by default to less. Where the launcher was told how to bind, its binding stays,
// unless `:force` asks otherwise; Slurm's daemons may use more than the job, so below Slurm it is
// what the rank itself may use. Nothing here allocates.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/pin_request.h"
#include "memory/heap/environment.h"
#include "node/launch_variables.h"
#include "process.h"
#include "topology/pin_plan.h"

namespace od::loader {
namespace {

using topology::CpuSet;

// The kernel refuses masks shorter than its own.
constexpr size_t kMaskBytes = 8192 / 8;

bool GetAffinity(pid_t process, CpuSet* set) {
  alignas(cpu_set_t) unsigned char mask[kMaskBytes];
  if (sched_getaffinity(process, sizeof mask, reinterpret_cast<cpu_set_t*>(mask)) != 0) {
    return false;
  }
  *set = {};
  for (int cpu = 0; cpu < topology::kMaxCpus; ++cpu) {
    if ((mask[cpu / 8] >> (cpu % 8) & 1) != 0) set->add(cpu);
  }
  return true;
}

bool SetAffinity(const CpuSet& set) {
  alignas(cpu_set_t) unsigned char mask[kMaskBytes] = {};
  for (int cpu = set.first(); cpu >= 0; cpu = set.next(cpu)) {
    mask[cpu / 8] = static_cast<unsigned char>(mask[cpu / 8] | 1u << (cpu % 8));
  }
  return sched_setaffinity(0, sizeof mask, reinterpret_cast<cpu_set_t*>(mask)) == 0;
}

// "0-3,8"; ends in dots where there is no room.
void Format(const CpuSet& set, char* text, size_t bytes) {
  size_t used = 0;
  text[0] = '\0';
  for (int first = set.first(); first >= 0;) {
    int last = first;
    while (set.contains(last + 1)) ++last;
    const char* const comma = used == 0 ? "" : ",";
    const int length = first == last
                           ? snprintf(text + used, bytes - used, "%s%d", comma, first)
                           : snprintf(text + used, bytes - used, "%s%d-%d", comma, first, last);
    if (length < 0 || used + static_cast<size_t>(length) + 4 >= bytes) {
      strcpy(text + used, "...");
      return;
    }
    used += static_cast<size_t>(length);
    first = set.next(last);
  }
}

// Goes through the strings, each ended by a NUL, of a file in /proc.
template <typename Visit>
bool ForEachString(pid_t process, const char* file, Visit visit) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", process, file);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char word[512];  // only the beginning of longer ones matters
  size_t length = 0;
  char block[4096];
  bool going = true;
  for (ssize_t got; going && (got = read(fd, block, sizeof block)) > 0;) {
    for (ssize_t i = 0; going && i < got; ++i) {
      if (length < sizeof word) word[length] = block[i];
      if (block[i] != '\0') {
        ++length;
        continue;
      }
      word[sizeof word - 1] = '\0';
      going = visit(word);
      length = 0;
    }
  }
  close(fd);
  return true;
}

bool StartsWith(const char* text, const char* start) {
  return strncmp(text, start, strlen(start)) == 0;
}

pid_t ParentOf(pid_t process) {
  pid_t parent = 0;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", process);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[512];
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length > 0) {
    text[length] = '\0';
    // "pid (name) state parent": the name may hold anything.
    const char* const end = strrchr(text, ')');
    if (end != nullptr && strlen(end) > 4) parent = atoi(end + 4);
  }
  return parent;
}

// The launcher's process that has started this rank: the first above it that is no rank of the same
// number itself (a shell script that starts the program is one). 0: not to be found.
pid_t LauncherProcess(const char* mark, const char* value) {
  constexpr int kMostSteps = 16;
  char entry[128];
  snprintf(entry, sizeof entry, "%s=%s", mark, value);
  pid_t process = getppid();
  for (int i = 0; i < kMostSteps && process > 1; ++i) {
    bool same_rank = false;
    const bool readable = ForEachString(process, "environ", [&](const char* word) {
      same_rank = strcmp(word, entry) == 0;
      return !same_rank;
    });
    if (!readable || !same_rank) return process;
    process = ParentOf(process);
  }
  return process > 1 ? process : 0;
}

// Whether this process belongs to a launcher; these may have the variables of ranks.
bool IsLauncher() {
  static constexpr const char* kNames[] = {"orted",   "prted",  "mpirun",    "mpiexec", "prterun",
                                           "orterun", "hydra_", "pmi_proxy", "srun"};
  char name[32] = "";
  const int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t length = read(fd, name, sizeof name - 1);
  close(fd);
  if (length <= 0) return false;
  for (const char* start : kNames) {
    if (StartsWith(name, start)) return true;
  }
  return false;
}

bool Binds(const char* policy) {
  return policy != nullptr && policy[0] != '\0' && !StartsWith(policy, "none");
}

// What has told the launcher how to bind, or null; `buffer` may hold it.
const char* ExplicitBinding(const char* const* environment, pid_t launcher, bool bound,
                            const char* mark, char* buffer, size_t bytes) {
  const auto variable = [&](const char* name) {
    return memory::heap::find_variable(environment, name);
  };
  if (strcmp(mark, "SLURM_PROCID") == 0) {
    return Binds(variable("SLURM_CPU_BIND_TYPE")) ? "Slurm's --cpu-bind" : nullptr;
  }
  if (strcmp(mark, "PMI_RANK") == 0) {
    // Intel's binds by itself, and by these when asked to; the others only when asked to.
    if (variable("I_MPI_HYDRA_UUID") != nullptr) {
      static constexpr const char* kPins[] = {"I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST",
                                              "I_MPI_PIN_PROCS", "I_MPI_PIN_ORDER"};
      for (const char* name : kPins) {
        if (variable(name) != nullptr) return name;
      }
      return nullptr;
    }
    return bound ? "the options of mpiexec" : nullptr;
  }
  const char* const policy = variable("OMPI_MCA_hwloc_base_binding_policy");
  if (policy != nullptr) return Binds(policy) ? "--bind-to" : nullptr;
  const char* const mapping = variable("OMPI_MCA_rmaps_base_mapping_policy");
  if (mapping != nullptr && strstr(mapping, "PE=") != nullptr) return "--map-by ...:PE=";
  if (variable("OMPI_MCA_rmaps_rank_file_path") != nullptr) return "--rankfile";
  // Newer ones hand nothing down, but where they are the parent their command line tells.
  const char* found = nullptr;
  bool value_follows = false;
  ForEachString(launcher, "cmdline", [&](const char* word) {
    if (value_follows) {
      value_follows = false;
      if (!Binds(word)) {
        found = nullptr;
        return false;
      }
    }
    static constexpr const char* kOptions[] = {"--bind-to", "-bind-to",  "--rankfile", "-rankfile",
                                               "-rf",       "--cpu-set", "--cpu-list"};
    for (const char* option : kOptions) {
      if (strcmp(word, option) != 0) continue;
      snprintf(buffer, bytes, "%s", option);
      found = buffer;
      value_follows = true;
    }
    if (strstr(word, ":pe=") != nullptr || strstr(word, ":PE=") != nullptr) {
      snprintf(buffer, bytes, "--map-by %.40s", word);
      found = buffer;
    }
    return true;
  });
  return found;
}

// The threads that OpenMP will use, 1 if that is not said.
int Threads(const char* const* environment) {
  const char* const text = memory::heap::find_variable(environment, "OMP_NUM_THREADS");
  const int threads = text == nullptr ? 1 : atoi(text);
  return threads < 1 || threads > topology::kMaxCpus ? 1 : threads;
}

// Everything that is not as asked is said by the node's first rank, since the user has asked.
void Refuse(const node::LocalPlace& place, const char* request, const char* why,
            const char* remedy) {
  if (place.rank != 0) return;
  const char* const parts[] = {"pin=", request, " has no effect: ", why, remedy, nullptr};
  Say(parts);
}

void Pin(const char* const* environment, const char* text) {
  config::PinRequest request;
  // What is wrong with the text is reported with the other settings, in MPI_Init.
  if (config::parse_pin(text, &request) != nullptr) return;
  if (request.policy == config::PinPolicy::kNone || IsLauncher()) return;
  const node::LocalPlace place = node::local_place(node::Variables(environment));
  if (place.mark == nullptr) {
    const char* const parts[] = {"pin=", text,
                                 " has no effect: this launcher does not tell a rank ",
                                 "its number on the node in a way that is known", nullptr};
    if (memory::heap::looks_like_rank(environment) && Verbosity() >= 1) Say(parts);
    return;
  }
  const char* const number = memory::heap::find_variable(environment, place.mark);
  const pid_t launcher = number == nullptr ? 0 : LauncherProcess(place.mark, number);
  CpuSet own;
  if (!GetAffinity(0, &own)) return Refuse(place, text, "the kernel does not tell affinities", "");
  CpuSet allowed = own;
  if (launcher != 0 && (request.force || strcmp(place.mark, "SLURM_PROCID") != 0)) {
    GetAffinity(launcher, &allowed);
  }
  char option[96];
  const char* const binding =
      ExplicitBinding(environment, launcher, !(own == allowed), place.mark, option, sizeof option);
  if (binding != nullptr && !request.force) {
    char why[160];
    snprintf(why, sizeof why, "the launcher was told how to bind, by %s", binding);
    return Refuse(place, text, why, "; leave that out, or add :force to pin");
  }
  topology::PinTopology topology;
  if (!topology::read_pin_topology("", &topology)) {
    return Refuse(place, text, "/sys does not describe the processors", "");
  }
  const topology::PinPlace found = topology::place_rank(topology, allowed, request, place.rank,
                                                        place.size, Threads(environment));
  if (found.problem != nullptr) {
    char cpus[256];
    char remedy[320];
    Format(allowed, cpus, sizeof cpus);
    snprintf(remedy, sizeof remedy, "; it may use %s", cpus);
    const char* const parts[] = {"pin=", text,   " has no effect on local rank ",
                                 number, ": ",   found.problem,
                                 remedy, nullptr};
    return Say(parts);
  }
  if (!SetAffinity(found.cpus)) {
    return Refuse(place, text, "the kernel refuses: ", strerror(errno));
  }
  if (Verbosity() < 2) return;
  char before[256];
  char now[256];
  Format(own, before, sizeof before);
  Format(found.cpus, now, sizeof now);
  const char* const parts[] = {"rank ", number, " pinned to ", now, "; the launcher gave it ",
                               before,  nullptr};
  Say(parts);
}

bool g_pinned;

}  // namespace

void PinOnce(const char* const* environment) {
  if (g_pinned || environment == nullptr) return;
  g_pinned = true;
  const char* const text = memory::heap::find_variable(environment, "OVERDRIVE_PIN");
  if (text == nullptr) return;
  const int error = errno;
  Pin(environment, text);
  errno = error;
}

namespace {

// Where nothing has been allocated before.
__attribute__((constructor(101))) void PinAtStart(int, char**, char** environment) {
  PinOnce(environment);
}

}  // namespace
}  // namespace od::loader
