// Reading the environment with the C library alone.
#include "memory/heap/environment.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

namespace od::memory::heap {
namespace {

// What process managers set for every rank: PMI-1 and PMI-2 (Hydra, Slurm), PMIx (Open MPI 5,
// PRRTE, Slurm), Open MPI, Slurm, Intel MPI, MVAPICH, Cray PALS and ALPS, Flux, IBM JSM.
constexpr const char* kRankVariables[] = {"PMI_RANK",
                                          "PMI_FD",
                                          "PMI_ID",
                                          "PMIX_RANK",
                                          "OMPI_COMM_WORLD_RANK",
                                          "SLURM_PROCID",
                                          "PALS_RANKID",
                                          "ALPS_APP_PE",
                                          "MPI_LOCALRANKID",
                                          "MV2_COMM_WORLD_RANK",
                                          "FLUX_TASK_RANK",
                                          "JSM_NAMESPACE_RANK"};

// Bytes, with K, M, G or T and an optional B or iB; false if the text is something else.
bool read_size(const char* text, uint64_t* bytes) {
  if (text == nullptr || *text < '0' || *text > '9') return false;
  char* end = nullptr;
  const unsigned long long number = strtoull(text, &end, 10);
  while (*end == ' ') ++end;
  static constexpr char kUnits[] = "KMGT";
  unsigned shift = 0;
  if (*end != '\0' && *end != 'b' && *end != 'B') {
    const char upper = static_cast<char>(*end & ~0x20);
    const char* unit = strchr(kUnits, upper);
    if (unit == nullptr || upper == '\0') return false;
    shift = 10 * static_cast<unsigned>(unit - kUnits + 1);
    ++end;
    if (*end == 'i') ++end;
  }
  if (*end == 'b' || *end == 'B') ++end;
  if (*end != '\0' || (shift != 0 && number >> (64 - shift) != 0)) return false;
  *bytes = number << shift;
  return true;
}

bool is_yes(const char* text) {
  return text != nullptr && (strcasecmp(text, "1") == 0 || strcasecmp(text, "true") == 0 ||
                             strcasecmp(text, "yes") == 0 || strcasecmp(text, "on") == 0);
}

bool is_word(const char* text, const char* word) {
  return text != nullptr && strcasecmp(text, word) == 0;
}

}  // namespace

const char* find_variable(const char* const* environment, const char* name) {
  const size_t length = strlen(name);
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
      return *environment + length + 1;
    }
  }
  return nullptr;
}

HeapSettings read_heap_settings(const char* const* environment) {
  const auto variable = [&](const char* name) { return find_variable(environment, name); };
  HeapSettings settings;
  const char* reach = variable("OVERDRIVE_REACH");
  settings.off = is_yes(variable("OVERDRIVE_DISABLE")) || is_word(reach, "off");
  settings.disabled = settings.off || is_word(reach, "static");
  uint64_t bytes;
  if (read_size(variable("OVERDRIVE_REACH_MIN"), &bytes) && bytes >= 4096) {
    settings.min_bytes = bytes;
  }
  if (read_size(variable("OVERDRIVE_REACH_LIMIT"), &bytes)) settings.limit_bytes = bytes;
  if (read_size(variable("OVERDRIVE_REACH_KEEP"), &bytes)) settings.keep_bytes = bytes;
  const char* huge = variable("OVERDRIVE_REACH_HUGE");
  if (is_word(huge, "off")) settings.huge = HugeChoice::kOff;
  if (is_word(huge, "eager")) settings.huge = HugeChoice::kEager;
  return settings;
}

bool looks_like_rank(const char* const* environment) {
  for (const char* name : kRankVariables) {
    if (find_variable(environment, name) != nullptr) return true;
  }
  return false;
}

bool under_valgrind(const char* const* environment) {
  // Valgrind's own preloaded libraries are named vgpreload_*.
  const char* libraries = find_variable(environment, "LD_PRELOAD");
  return libraries != nullptr && strstr(libraries, "/vgpreload_") != nullptr;
}

}  // namespace od::memory::heap
