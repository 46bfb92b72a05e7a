// Tells those who must know that the process has been forked: a child shares its parent's region of
// the node but is no rank, so in the child everything of ours has to become passive.
//
// Handlers run in the child before fork() returns, with one thread only and possibly with other
// threads' locks held for ever: they may store to memory of their own and nothing else. Processes
// that are made without fork's handlers (the bare system call) are still recognised by
// in_forked_child(); vfork and posix_spawn children run on the parent's memory until they exec and
// must not call us.
#ifndef OVERDRIVE_MEMORY_FORK_GUARD_H_
#define OVERDRIVE_MEMORY_FORK_GUARD_H_

namespace od::memory {

class ForkGuard {
 public:
  using InChild = void (*)();
  static constexpr int kMostHandlers = 16;

  // Calls `handler` in every child forked from now on, and in their children; in the order of
  // adding. The same handler is added once. False when there is no room or no memory for it.
  // Handlers cannot be removed: they must be code that stays loaded.
  static bool add(InChild handler);

  // Whether this process descends by fork from the one that called add() first; false before.
  static bool in_forked_child();
};

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_FORK_GUARD_H_
