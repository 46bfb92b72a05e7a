// Slices of the kernel's scheduler, by its system calls: the C library has no function for them.
#include "base/short_slices.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace od {
namespace {

constexpr std::uint64_t kSliceNs = 100'000;  // the least that the system takes

// As <linux/sched/types.h> has it, which older systems lack; the first version's 48 bytes.
struct SchedulerAttributes {
  std::uint32_t size;
  std::uint32_t policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime_ns;
  std::uint64_t deadline_ns;
  std::uint64_t period_ns;
};
static_assert(sizeof(SchedulerAttributes) == 48);

}  // namespace

void ask_for_short_slices() {
  SchedulerAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER && attributes.policy != SCHED_BATCH) return;
  attributes.size = sizeof(attributes);
  attributes.runtime_ns = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace od
