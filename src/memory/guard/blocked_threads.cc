// Reading the masks of all threads from /proc: see blocked_threads.h. By system calls: the C
// library's functions are this library's as well.
#include "memory/guard/blocked_threads.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace od::memory::guard {
namespace {

// One that runs may have been interrupted in such a moment and wait for a core.
constexpr int kLooks = 5;
constexpr int kLooksAtRunning = 100;
constexpr long kBetweenLooksNs = 4'000'000;

class File {
 public:
  File(int folder, const char* path, int how)
      : number_(static_cast<int>(syscall(SYS_openat, folder, path, O_RDONLY | O_CLOEXEC | how))) {}
  ~File() {
    if (number_ >= 0) syscall(SYS_close, number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

enum class State { kCanWait, kBlocked, kBlockedAndRunning };

// "Name:" stands in the first line, "SigBlk:" before whatever may be long.
State state_of(int tasks, const char* thread) {
  char path[sizeof(dirent64::d_name) + 8];
  snprintf(path, sizeof path, "%s/status", thread);
  const File file(tasks, path, 0);
  char text[4096];
  const long bytes = syscall(SYS_read, file.number(), text, sizeof text - 1);
  if (bytes <= 0) return State::kCanWait;  // it has ended
  text[bytes] = '\0';
  static constexpr char kOwn[] = "Name:\toverdrive";  // they touch nothing that is guarded
  if (strncmp(text, kOwn, sizeof kOwn - 1) == 0) return State::kCanWait;
  static constexpr char kBlocked[] = "\nSigBlk:\t";
  const char* const at = strstr(text, kBlocked);
  if (at == nullptr) return State::kCanWait;
  const uint64_t blocked = strtoull(at + sizeof kBlocked - 1, nullptr, 16);
  if ((blocked >> (SIGSEGV - 1) & 1) == 0) return State::kCanWait;
  return strstr(text, "\nState:\tS") == nullptr ? State::kBlockedAndRunning : State::kBlocked;
}

// The first that is blocked and sleeps, else one that is blocked.
pid_t look_once(State* state) {
  *state = State::kCanWait;
  pid_t found = 0;
  const File tasks(AT_FDCWD, "/proc/self/task", O_DIRECTORY);
  const auto own = static_cast<pid_t>(syscall(SYS_gettid));
  alignas(dirent64) char entries[4096];
  long bytes;
  while ((bytes = syscall(SYS_getdents64, tasks.number(), entries, sizeof entries)) > 0) {
    for (long at = 0; at < bytes;) {
      const auto* const entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const auto thread = static_cast<pid_t>(strtol(entry->d_name, nullptr, 10));
      if (thread <= 0 || thread == own) continue;
      const State its = state_of(tasks.number(), entry->d_name);
      if (its == State::kCanWait) continue;
      *state = its;
      found = thread;
      if (its == State::kBlocked) return found;
    }
  }
  return found;
}

}  // namespace

pid_t find_blocked_thread() {
  int sleeping = 0;
  for (int look = 0;; ++look) {
    State state;
    const pid_t found = look_once(&state);
    if (state == State::kCanWait) return 0;
    if (state == State::kBlocked) ++sleeping;
    if (sleeping == kLooks || look == kLooksAtRunning) return found;
    const timespec pause{0, kBetweenLooksNs};
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, nullptr);
  }
}

}  // namespace od::memory::guard
