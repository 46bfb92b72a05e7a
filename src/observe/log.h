// Leveled messages to standard error: one line, one write, no allocation, errno untouched.
//
// The label (rank) and the level are those of the process; they are the only mutable state of this
// file, are set once when settings are known, and decide nothing but what is printed. Before
// log_setup() the label is empty and only errors are printed.
#ifndef OVERDRIVE_OBSERVE_LOG_H_
#define OVERDRIVE_OBSERVE_LOG_H_

#include <atomic>

namespace od {

enum class Level : int {
  kError = 0,    // something is wrong that the user must know
  kWarning = 1,  // also: what fell back to the host and why
  kInfo = 2,     // what was found and chosen at start
  kDebug = 3,    // each communicator that is served
};

namespace internal {
extern std::atomic<int> log_level;
}  // namespace internal

// `rank` < 0 means not known yet.
void log_setup(int rank, int verbosity);

inline bool log_enabled(Level level) {
  // Relaxed: a level that arrives late only prints or hides a line.
  return static_cast<int>(level) <= internal::log_level.load(std::memory_order_relaxed);
}

// printf-like; a line longer than 1 KiB is cut, line breaks inside become blanks.
[[gnu::format(printf, 2, 3)]] void log(Level level, const char* format, ...);

// To be called before the job is ended: waits until whoever reads standard error has read all that
// is in it, a second at most. Launchers may throw away what they have not read when they learn that
// a rank aborts; of jobs of four ranks under MPICH's, six in a hundred ended without the reason.
void log_wait_until_read();

// True for the first caller only: guards messages that would otherwise repeat.
inline bool first_time(std::atomic<bool>& said) {
  // Relaxed: nothing but the flag itself is shared.
  return !said.load(std::memory_order_relaxed) && !said.exchange(true, std::memory_order_relaxed);
}

}  // namespace od

// Like od::log, but at most once for each place in the source.
#define OD_LOG_ONCE(level, ...)                                  \
  do {                                                           \
    static constinit std::atomic<bool> od_said{false};           \
    if (::od::log_enabled(level) && ::od::first_time(od_said)) { \
      ::od::log(level, __VA_ARGS__);                             \
    }                                                            \
  } while (false)

#endif  // OVERDRIVE_OBSERVE_LOG_H_
