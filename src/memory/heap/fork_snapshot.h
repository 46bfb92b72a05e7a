// Makes fork() what it is without shared memory: the child gets copies of everything shared.
//
//   parent, before   the allocator's locks are taken: its records must be consistent in the child;
//                    what is in use is copied into private memory
//   child            moves these copies over the shared ranges
//   parent, after    drops them, also when fork() has failed; gives the locks back
// The parent makes the copies, so it need not wait for its child to run: that would cost two
// changes of process, which on a busy machine take longer than everything else. Other threads and
// the peers go on writing meanwhile, so a copy is not taken at one instant; what a program may look
// at in a child of several threads does not depend on that. The handlers are registered early and
// therefore run last before the fork and first after it. system(), popen() and posix_spawn() call
// no handlers and need none.
//
// Where there is too little memory for the copies they are written to a nameless file on a disk,
// which the child maps. Where there is no room there either, fork() fails as it does without memory
// (fork_fits); a child that comes into being all the same, by a way that cannot fail, ends at once.
// A child never sees what its parent does later.
#ifndef OVERDRIVE_MEMORY_HEAP_FORK_SNAPSHOT_H_
#define OVERDRIVE_MEMORY_HEAP_FORK_SNAPSHOT_H_

#include "memory/heap/arena.h"
#include "memory/heap/budget.h"
#include "memory/heap/span_allocator.h"
#include "memory/reach_map.h"

namespace od::memory::heap {

struct SharedMemory {
  Arena* arena;
  SpanAllocator* spans;
  const ReachMap* map;
  const Budget* budget;
  void (*in_child)();  // after everything has become private
};

// Once per process; the objects stay where they are. False if no handler can be registered.
bool snapshot_on_fork(const SharedMemory& memory);

// Whether a fork now has the memory that it needs; false: a message has said so, once.
bool fork_fits();

// How many forks had something to copy.
uint64_t fork_count();

}  // namespace od::memory::heap

#endif  // OVERDRIVE_MEMORY_HEAP_FORK_SNAPSHOT_H_
