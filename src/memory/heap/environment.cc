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

// Bytes, with an optional fraction and K, M, G or T and an optional B or iB; false if the text is
// something else or too large.
bool read_size(const char* text, uint64_t* bytes) {
  if (text == nullptr) return false;
  while (*text == ' ') ++text;
  uint64_t whole = 0;
  uint64_t fraction = 0;
  uint64_t fraction_scale = 1;
  const auto is_digit = [&text] { return *text >= '0' && *text <= '9'; };
  if (!is_digit()) return false;
  for (; is_digit(); ++text) {
    if (__builtin_mul_overflow(whole, 10, &whole) ||
        __builtin_add_overflow(whole, *text - '0', &whole)) {
      return false;
    }
  }
  if (*text == '.') {
    ++text;
    if (!is_digit()) return false;
    for (; is_digit(); ++text) {
      if (fraction_scale >= 1'000'000'000) continue;
      fraction = fraction * 10 + static_cast<uint64_t>(*text - '0');
      fraction_scale *= 10;
    }
  }
  while (*text == ' ') ++text;
  unsigned shift = 0;
  static constexpr char kUnits[] = "KMGT";
  if (const char* unit = *text != '\0' ? strchr(kUnits, *text & ~0x20) : nullptr;
      unit != nullptr && *unit != '\0') {
    shift = 10 * static_cast<unsigned>(unit - kUnits + 1);
    ++text;
    if ((text[0] == 'i' || text[0] == 'I') && (text[1] == 'b' || text[1] == 'B')) ++text;
  }
  if (*text == 'b' || *text == 'B') ++text;
  while (*text == ' ') ++text;
  if (*text != '\0' || (shift != 0 && whole >> (64 - shift) != 0)) return false;
  __extension__ using Wide = unsigned __int128;
  *bytes = (whole << shift) + static_cast<uint64_t>((Wide{fraction} << shift) / fraction_scale);
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
