// The settings of the heap, read from the environment without the settings table: the heap is at
// work long before anything else of ours is loaded, in processes that never call MPI too.
//
// Names, notation and defaults are those of src/config/settings_table.h; a test compares them.
#ifndef OVERDRIVE_MEMORY_HEAP_ENVIRONMENT_H_
#define OVERDRIVE_MEMORY_HEAP_ENVIRONMENT_H_

#include <stdint.h>

namespace od::memory::heap {

enum class HugeChoice : uint8_t { kAuto, kOff, kEager };

struct HeapSettings {
  bool disabled = false;  // OVERDRIVE_DISABLE, or OVERDRIVE_REACH = off or static
  bool off = false;       // OVERDRIVE_DISABLE, or OVERDRIVE_REACH = off
  uint64_t min_bytes = 32 << 10;
  uint64_t limit_bytes = 0;  // 0: by the machine's memory
  uint64_t keep_bytes = 0;   // 0: by the machine's memory
  HugeChoice huge = HugeChoice::kAuto;
};

// `environment` as `environ`; values that cannot be read count as not set (MPI_Init reports them).
HeapSettings read_heap_settings(const char* const* environment);

// Whether a launcher has started this process, or its parent, as a rank of a parallel job.
bool looks_like_rank(const char* const* environment);

// Whether the process runs under valgrind: it has to follow every page of an arena that is larger
// than the machine.
bool under_valgrind(const char* const* environment);

// The value of a variable, or null.
const char* find_variable(const char* const* environment, const char* name);

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_ENVIRONMENT_H_
