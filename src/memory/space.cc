// Exposing the own address space, judging which memory can be attached, and opening a peer's.
#include "memory/space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/populate.h"
#include "base/round.h"
#include "memory/heap/environment.h"
#include "observe/log.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace od::memory {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

// What peers look at. On a page of its own: nobody else's writes are in the way of whoever maps it.
struct alignas(kPageBytes) Proof {
  std::uint64_t words[kPageBytes / sizeof(std::uint64_t)];
};
constinit Proof the_proof = {};

// Whether the kernel can get every page of the range for writing. It decides by the same rules when
// XPMEM attaches a page for somebody: what passes here does not end a peer with SIGBUS, whether it
// is read-only, beyond the end of a file, or memory of a device.
bool populate(const void* address, std::uint64_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t first = round_down(start, kPageBytes);
  const std::uintptr_t end = round_up(start + bytes, kPageBytes);
  const int before = errno;
  int result;
  do {
    result = madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_WRITE);
  } while (result != 0 && errno == EINTR);
  errno = before;
  return result == 0;
}

// Ranges of which every page has been asked for. A page costs 80 ns, so later only the first and
// the last one are: what becomes of a buffer (freed, mapped anew, protected) becomes of its ends as
// well.
class Verified {
 public:
  bool check(const void* address, std::uint64_t bytes) {
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    for (Range& range : ranges_) {
      if (start < range.start || start + bytes > range.end) continue;
      if (populate(address, 1) && populate(static_cast<const char*>(address) + bytes - 1, 1)) {
        return true;
      }
      range = {};
    }
    if (!populate(address, bytes)) return false;
    ranges_[next_++ % ranges_.size()] = {start, start + bytes};
    return true;
  }
  void clear() { ranges_ = {}; }

 private:
  struct Range {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
  };
  std::array<Range, 64> ranges_;
  std::size_t next_ = 0;
};

// Process-wide by nature, like the address space it describes. Written while the process starts and
// ends as a rank.
struct State {
  OwnSpace own;
  std::string why = "switched off";
  pid_t owner = 0;
  Verified verified;  // by one thread at a time, see space_place()
};
State& state() {
  // Never destroyed: MPI_Finalize may be called by a destructor.
  static State* const the_state = new State;
  return *the_state;
}

// Reads through the kernel, which says EFAULT where a load would be a signal.
bool read_safely(const std::byte* from, void* to, std::size_t bytes) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
  const auto wanted = static_cast<ssize_t>(bytes);
  const bool done = write(ends[1], from, bytes) == wanted && read(ends[0], to, bytes) == wanted;
  close(ends[0]);
  close(ends[1]);
  return done;
}

}  // namespace

void begin_space(bool wanted, const SpaceCalls* calls) {
  State& s = state();
  if (s.own.id != 0) return;
  s.own = {};
  s.why = "switched off";
  if (!wanted) return;
  if (calls == nullptr && *xpmem_not_built() != '\0') {
    s.why = xpmem_not_built();
    return;
  }
  if (sysconf(_SC_PAGESIZE) != static_cast<long>(kPageBytes)) {
    s.why = "pages of another size than 4 KiB";
    return;
  }
  if (heap::under_valgrind(environ)) {
    s.why = "the process runs under valgrind";
    return;
  }
  if (!advice_is_judged(&the_proof)) {
    s.why = "an emulator answers for the kernel: nobody can tell which memory can be attached";
    return;
  }
  if (!populate(&the_proof, sizeof the_proof)) {
    s.why = "the kernel cannot tell which memory can be attached (needs Linux 5.14)";
    return;
  }
  if (calls == nullptr) calls = xpmem_calls(&s.why);
  if (calls == nullptr) return;
  const std::int64_t id = calls->expose();
  if (id <= 0) {
    s.why = std::string("the address space cannot be exposed: ") + std::strerror(errno);
    return;
  }
  s.own = {.id = id, .proof = the_proof.words, .calls = calls};
  s.owner = getpid();
  s.why.clear();
}

void end_space() {
  State& s = state();
  // A forked child has nothing of its own to withdraw.
  if (s.own.id != 0 && s.owner == getpid()) s.own.calls->withdraw(s.own.id);
  s.own = {};
  s.verified.clear();
  s.why = "the rank has left";
}

const OwnSpace& own_space() { return state().own; }
const std::string& space_why() { return state().why; }

std::uint64_t space_place(const void* address, std::uint64_t bytes) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  State& s = state();
  if (s.own.id == 0 || start >= kAddressLimit || bytes > kAddressLimit - start || bytes == 0 ||
      !s.verified.check(address, bytes)) {
    return kUnreachable;
  }
  return kAddressMark | start;
}

std::int64_t open_space(std::int64_t id, std::uint64_t proof, const std::uint64_t* nonce) {
  const SpaceCalls* const calls = state().own.calls;
  if (calls == nullptr || id <= 0 || proof >= kAddressLimit || proof % kPageBytes != 0) return 0;
  const std::int64_t handle = calls->open(id);
  if (handle <= 0) {
    OD_LOG_ONCE(Level::kInfo, "the address space of a local rank cannot be opened: %s",
                std::strerror(errno));
    return 0;
  }
  bool proven = false;
  if (std::byte* const page = calls->attach(handle, proof, kPageBytes)) {
    std::uint64_t words[2];
    proven = read_safely(page, words, sizeof words) && std::memcmp(words, nonce, sizeof words) == 0;
    calls->detach(page);
  }
  if (proven) return handle;
  OD_LOG_ONCE(Level::kInfo,
              "the address space of a local rank can be opened but does not show its memory");
  calls->close(handle);
  return 0;
}

void close_space(std::int64_t handle) {
  const State& s = state();
  if (handle > 0 && s.own.calls != nullptr && s.owner == getpid()) s.own.calls->close(handle);
}

}  // namespace od::memory
