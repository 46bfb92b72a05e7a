// Opens first and judges what is open, so that nothing can be exchanged in between.
#include "config/trusted_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

namespace od::config {
namespace {

// As many symbolic links as the kernel follows.
constexpr int kMostLinks = 40;

// A rank writes its statistics in milliseconds, but may have to wait for a core first.
constexpr int kLockTries = 200;
constexpr timespec kBetweenTries{0, 5'000'000};

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

bool of_user_or_root(const struct stat& status) {
  return status.st_uid == 0 || status.st_uid == geteuid();
}

std::string because(const char* what) { return std::string(what) + ": " + strerror(errno); }

std::string size_text(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// A link counts if the user or root made it. Another owner's counts in a folder that is his and
// that only he can write: who names a path through it means what he put there.
bool link_counts(const struct stat& link, const struct stat& folder) {
  if (of_user_or_root(link)) return true;
  return link.st_uid == folder.st_uid && (folder.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// The parts of `path` that are still to go, the next one at the end.
void push_parts(std::vector<std::string>& parts, const std::string& path) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end > at) found.push_back(path.substr(at, end - at));
    at = end + 1;
  }
  parts.insert(parts.end(), found.rbegin(), found.rend());
}

// Walks along `path` part by part and judges every link. Returns what it names (opened with
// O_PATH), or -1 and the reason.
Descriptor walk(const std::string& path, std::string& error) {
  constexpr int kFlags = O_PATH | O_CLOEXEC | O_NOFOLLOW;
  std::vector<std::string> parts;
  push_parts(parts, path);
  Descriptor here(open(path[0] == '/' ? "/" : ".", kFlags));
  for (int links = 0; !parts.empty();) {
    const std::string part = std::move(parts.back());
    parts.pop_back();
    Descriptor next(openat(here.get(), part.c_str(), kFlags));
    struct stat status {};
    if (next.get() < 0 || fstat(next.get(), &status) != 0) {
      error = because("cannot be reached");
      return Descriptor();
    }
    if (!S_ISLNK(status.st_mode)) {
      here = std::move(next);
      continue;
    }
    struct stat folder {};
    char target[PATH_MAX];
    const ssize_t length = readlinkat(next.get(), "", target, sizeof target);
    if (length <= 0 || fstat(here.get(), &folder) != 0 || ++links > kMostLinks) {
      error = "cannot be reached: '" + part + "' is a symbolic link that leads nowhere";
      return Descriptor();
    }
    if (!link_counts(status, folder)) {
      error = "is reached through the symbolic link '" + part + "' of another user (uid " +
              std::to_string(status.st_uid) + "), which is not followed; give the path itself";
      return Descriptor();
    }
    push_parts(parts, std::string(target, static_cast<std::size_t>(length)));
    if (target[0] == '/') here = Descriptor(open("/", kFlags));
  }
  return here;
}

// What is wrong with a file that is read; empty if nothing.
std::string fault_of(const struct stat& status, const std::string& path, std::size_t max_bytes) {
  if (!S_ISREG(status.st_mode)) return "is not a regular file";
  if (!of_user_or_root(status)) {
    return "belongs to another user (uid " + std::to_string(status.st_uid) +
           "); only files of your own and of root count: to use it, copy it";
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%03o", static_cast<unsigned>(status.st_mode & 0777));
    return "can be written by others (mode " + std::string(mode) + "): run `chmod go-w " + path +
           "` if what it says is yours";
  }
  if (static_cast<std::size_t>(status.st_size) > max_bytes) {
    return "is larger than " + size_text(max_bytes);
  }
  return {};
}

// Up to one byte more than `max_bytes`.
std::string read_all(int fd, std::size_t max_bytes, std::string& error) {
  std::string text;
  char block[16384];
  while (text.size() <= max_bytes) {
    const ssize_t got = read(fd, block, std::min(sizeof block, max_bytes + 1 - text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = because("cannot be read");
    if (got <= 0) break;
    text.append(block, static_cast<std::size_t>(got));
  }
  if (text.size() > max_bytes) error = "is larger than " + size_text(max_bytes);
  return text;
}

// Waits until no other process writes the file, for a second at most; tells whether none does. File
// systems without locks are taken at their word that none does.
bool lock_alone(int fd) {
  for (int tries = 0; tries < kLockTries; ++tries) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) return true;
    nanosleep(&kBetweenTries, nullptr);
  }
  return false;
}

}  // namespace

FileText read_trusted_file(const std::string& path, std::size_t max_bytes, LastLink last_link) {
  FileText result;
  // O_NONBLOCK: opening a FIFO of that name must not hang the job.
  int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  if (last_link == LastLink::kRefused) flags |= O_NOFOLLOW;
  const Descriptor file(open(path.c_str(), flags));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return result;
    result.exists = true;
    const bool link = errno == ELOOP && last_link == LastLink::kRefused;
    result.error = link ? "is a symbolic link, which is not followed; copy the file"
                        : because("cannot be opened");
    return result;
  }
  result.exists = true;
  struct stat status {};
  if (fstat(file.get(), &status) != 0) {
    result.error = because("cannot be examined");
    return result;
  }
  result.error = fault_of(status, path, max_bytes);
  if (!result.error.empty()) return result;
  struct stat walked {};
  const Descriptor end = walk(path, result.error);
  if (end.get() < 0) return result;
  if (fstat(end.get(), &walked) != 0 || walked.st_dev != status.st_dev ||
      walked.st_ino != status.st_ino) {
    result.error = "was exchanged while it was opened";
    return result;
  }
  std::string text = read_all(file.get(), max_bytes, result.error);
  if (result.error.empty()) result.text = std::move(text);
  return result;
}

int open_trusted_output(const std::string& path, std::string& error) {
  const std::size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  struct stat status {};
  // Also has what is mounted on demand mounted before the walk, which would not.
  if (stat(folder.c_str(), &status) != 0) {
    error = strerror(errno);
    return -1;
  }
  if (name.empty()) {
    error = "it names a folder";
    return -1;
  }
  const Descriptor place = walk(folder, error);
  if (place.get() < 0) {
    error = "it " + error;
    return -1;
  }
  // O_NONBLOCK: a FIFO fails at once instead of waiting for a reader.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  Descriptor file(openat(place.get(), name.c_str(), kFlags, 0666));
  if (file.get() < 0) {
    error = errno == ELOOP ? "it is a symbolic link, which is not followed" : strerror(errno);
    return -1;
  }
  if (fstat(file.get(), &status) != 0) {
    error = strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    error = "it is not a regular file";
  } else if (status.st_uid != geteuid()) {
    error = "it is there and belongs to another user (uid " + std::to_string(status.st_uid) +
            "); choose another path";
  } else if (status.st_nlink != 1) {
    error = "it is there under several names (hard links); remove it or choose another path";
  } else if (!lock_alone(file.get())) {
    error = "another process is writing it; give each job a path of its own";
  } else if (ftruncate(file.get(), 0) != 0) {
    error = strerror(errno);
  }
  return error.empty() ? file.release() : -1;
}

std::string replace_file(const std::string& path, std::string_view text) {
  const std::string made = path + '.' + std::to_string(getpid());
  Descriptor file(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0) return strerror(errno);
  fchmod(file.get(), 0644);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(file.get(), text.data() + done, text.size() - done);
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  std::string error;
  if (done != text.size() || close(file.release()) != 0 ||
      rename(made.c_str(), path.c_str()) != 0) {
    error = strerror(errno);
    unlink(made.c_str());
  }
  return error;
}

}  // namespace od::config
