// Formats a message into a buffer on the stack and writes it with one system call.
#include "observe/log.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace od {
namespace internal {
constinit std::atomic<int> log_level{0};
}  // namespace internal

namespace {

constinit std::atomic<int> log_rank{-1};

constexpr std::size_t kLogLineBytes = 1024;

const char* level_word(Level level) {
  switch (level) {
    case Level::kError:
      return "error: ";
    case Level::kWarning:
      return "warning: ";
    default:
      return "";
  }
}

void write_all(const char* text, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(STDERR_FILENO, text, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads standard error; nothing sensible is left to do
    text += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

// How much the reader of standard error, if it is a pipe, a socket or a terminal, has not read yet;
// of a file or where the system does not tell, nothing.
int unread_bytes() {
  struct stat info {};
  if (fstat(STDERR_FILENO, &info) != 0) return 0;
  int bytes = 0;
  return ioctl(STDERR_FILENO, S_ISFIFO(info.st_mode) ? FIONREAD : TIOCOUTQ, &bytes) == 0 ? bytes
                                                                                         : 0;
}

}  // namespace

void log_setup(int rank, int verbosity) {
  log_rank.store(rank, std::memory_order_relaxed);  // a label; nothing is published with it
  internal::log_level.store(verbosity, std::memory_order_relaxed);
}

void log(Level level, const char* format, ...) {
  if (!log_enabled(level)) return;
  const int saved_errno = errno;
  char line[kLogLineBytes];
  const int rank = log_rank.load(std::memory_order_relaxed);
  int length = rank >= 0
                   ? std::snprintf(line, sizeof line, "overdrive[%d]: %s", rank, level_word(level))
                   : std::snprintf(line, sizeof line, "overdrive: %s", level_word(level));
  const auto prefix = static_cast<std::size_t>(std::max(length, 0));
  va_list arguments;
  va_start(arguments, format);
  length = std::vsnprintf(line + prefix, sizeof line - prefix, format, arguments);
  va_end(arguments);
  // vsnprintf tells what it would have written; one byte is left for the line break.
  std::size_t end =
      std::min(prefix + static_cast<std::size_t>(std::max(length, 0)), kLogLineBytes - 1);
  while (end > prefix && line[end - 1] == '\n') --end;
  std::replace(line + prefix, line + end, '\n', ' ');
  line[end++] = '\n';
  write_all(line, end);
  errno = saved_errno;
}

void log_wait_until_read() {
  constexpr int kMostLooks = 1000;
  constexpr useconds_t kBetweenLooksUs = 1000;
  const int saved_errno = errno;
  for (int look = 0; look < kMostLooks && unread_bytes() > 0; ++look) usleep(kBetweenLooksUs);
  errno = saved_errno;
}

}  // namespace od
