// A stand-in for libxpmem on machines without the kernel module: the same functions, with which one
// process really loads from and stores to the private memory of another.
//
// What the module does in the kernel is done between the processes here. Windows are empty at
// first. The first access to a page is a SIGSEGV, whose handler asks the owner for the page: it
// sends a signal, and the owner's handler moves that page and a few behind it, content and all,
// into a memfd and maps them again in their place. Then they are mapped in the window as well, and
// both see every store of the other. In the memfd a page has the offset that it has as an address
// in the owner.
//
// As with the module: windows may have holes; touching one, or memory that is not private and
// writable, is a SIGBUS; processes of another user, segments that are gone and processes that have
// died are refused; a child of fork has no windows and owns no segment; unmapping a window other
// than by xpmem_detach is an error of the caller (here it goes unnoticed).
// Not as with the module: a page that the owner has unmapped stays what it was in windows that have
// it, so the tests let allocators keep their memory; a child of fork shares the pages that have
// been attached; other threads of the owner must not store to a page in the moment when it is
// moved.
//
// XPMEM_STAND_IN=missing: as where there is no device. =refuse: attaching fails, except for the
// first page, by which a segment shows whose it is. =lie: segments cannot show their memory.
#include "xpmem.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  kPage = 4096,
  kMostSegments = 1024,
  kMostWindows = 65536,
  kEager = 64 * 1024,
  kMoved = 4 * 4096
};
static const uint64_t kFileBytes = (uint64_t)1 << 47;
static const uint64_t kMagic = 0x6465616e69707321;
static const uint64_t kPatienceNs = 20000000000u;
static const int kSignal = 50;  // a real-time signal that nobody uses

// At the beginning of the memfd: no process has memory at address 0.
struct Control {
  uint64_t magic;
  int32_t owner;
  int32_t thread;
  uint32_t lock;    // of those who ask
  uint32_t asked;   // counts requests
  uint32_t served;  // counts answers
  uint32_t gone;
  uint64_t page;   // request: first page
  uint64_t bytes;  // request: most bytes; answer: how many there are from `page` on
};

struct Segment {  // as a process that attaches knows it
  struct Control* control;
  int fd;
  bool shown;  // something of it has been attached
};
struct Window {
  char* start;
  size_t bytes;
  uint64_t offset;
  int segment;
};

static struct Control* own;
static int own_fd = -1;
static pid_t own_pid;
static struct Segment segments[kMostSegments];
static int segment_count;
static struct Window windows[kMostWindows];
static int window_count;
static struct sigaction before;
static pid_t handler_pid;

static bool mode_is(const char* name) {
  const char* mode = getenv("XPMEM_STAND_IN");
  return mode != NULL && strcmp(mode, name) == 0;
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// --- the owner -----------------------------------------------------------------------------------

static uint64_t read_hex(const char** at) {
  uint64_t value = 0;
  for (;; ++*at) {
    const char c = **at;
    if (c >= '0' && c <= '9') {
      value = value * 16 + (uint64_t)(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + (uint64_t)(c - 'a') + 10;
    } else {
      return value;
    }
  }
}

// Makes a stack reach below `start`: the part of it that grows must stay the lowest one. Whatever a
// sanitizer takes that memory for, it is only touched.
__attribute__((noinline, no_sanitize("address"))) static void grow_stack_below(uint64_t start) {
  *(volatile char*)(start - 16 * kPage);
}

// Moves [start, end) into the memfd.
static bool move(uint64_t start, uint64_t end, int access, bool stack) {
  if (stack) grow_stack_below(start);
  for (uint64_t at = start; at < end;) {
    const ssize_t done = syscall(SYS_pwrite64, own_fd, (void*)at, end - at, at);
    if (done <= 0) return false;
    at += (uint64_t)done;
  }
  return syscall(SYS_mmap, start, end - start, access, MAP_SHARED | MAP_FIXED, own_fd, start) ==
         (long)start;
}

// Makes the page of a request one of the memfd; how many bytes from it on then are. No library
// function here: whatever was interrupted may be in the middle of it.
static uint64_t serve(uint64_t page, uint64_t most) {
  static char text[1 << 16];
  struct stat file;
  if (fstat(own_fd, &file) != 0) return 0;
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return 0;
  uint64_t reached = page;
  size_t held = 0;
  bool more = true;
  while (more && reached < page + most) {
    const ssize_t got = read(maps, text + held, sizeof text - 1 - held);
    if (got <= 0) break;
    held += (size_t)got;
    text[held] = '\0';
    const char* line = text;
    const char* next;
    for (; more && (next = strchr(line, '\n')) != NULL; line = next + 1) {
      // start-end rwxp offset major:minor inode name
      const char* at = line;
      const uint64_t from = read_hex(&at);
      ++at;
      const uint64_t to = read_hex(&at);
      if (to <= reached) continue;
      const char* flags = at + 1;
      at = flags + 5;
      read_hex(&at);
      at += 1;
      read_hex(&at);
      at += 1;
      read_hex(&at);
      at += 1;
      uint64_t inode = 0;
      for (; *at >= '0' && *at <= '9'; ++at) inode = inode * 10 + (uint64_t)(*at - '0');
      const bool ours = flags[3] == 's' && inode == file.st_ino && strstr(at, "memfd:") != NULL &&
                        strstr(at, "memfd:") < next;
      if (from > reached || reached >= page + most) {
        more = false;
      } else if (ours) {
        reached = to;
      } else if (reached > page || flags[3] != 'p' || flags[0] != 'r' || flags[1] != 'w') {
        more = false;  // only what is near to what was asked for is moved
      } else {
        const int access = PROT_READ | PROT_WRITE | (flags[2] == 'x' ? PROT_EXEC : 0);
        const char* stack = strstr(at, "[stack]");
        uint64_t end = page + (most < kMoved ? most : kMoved);
        if (end > to) end = to;
        more = move(page, end, access, stack != NULL && stack < next && from == page);
        if (more) reached = end;
        // The next page may have been moved before; the list is out of date, but not there.
        if (reached < to) more = false;
      }
    }
    held -= (size_t)(line - text);
    memmove(text, line, held);
  }
  close(maps);
  return reached - page < most ? reached - page : most;
}

static void on_request(int signal) {
  (void)signal;
  const int error = errno;
  if (own != NULL && own_pid == getpid()) {
    const uint32_t asked = __atomic_load_n(&own->asked, __ATOMIC_ACQUIRE);
    if (asked != __atomic_load_n(&own->served, __ATOMIC_RELAXED)) {
      own->bytes = serve(own->page, own->bytes);
      __atomic_store_n(&own->served, asked, __ATOMIC_RELEASE);
    }
  }
  errno = error;
}

int xpmem_version(void) {
  if (!mode_is("missing")) return 0x26003;
  errno = ENOENT;
  return -1;
}

xpmem_segid_t xpmem_make(void* start, size_t bytes, int permit_type, void* permit_value) {
  if (mode_is("missing") || start != NULL || bytes != XPMEM_MAXADDR_SIZE ||
      permit_type != XPMEM_PERMIT_MODE || ((uintptr_t)permit_value & ~(uintptr_t)0777) != 0) {
    errno = EINVAL;
    return -1;
  }
  if (own == NULL || own_pid != getpid()) {
    const int low = memfd_create("xpmem-stand-in", MFD_CLOEXEC);
    own_fd = fcntl(low, F_DUPFD_CLOEXEC, 500);
    if (own_fd < 0) own_fd = low;
    if (own_fd != low) close(low);
    if (own_fd < 0 || ftruncate(own_fd, (off_t)kFileBytes) != 0) return -1;
    void* memory = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, own_fd, 0);
    if (memory == MAP_FAILED) return -1;
    own = memory;
    own_pid = getpid();
    stack_t alternate;
    if (sigaltstack(NULL, &alternate) == 0 && (alternate.ss_flags & SS_DISABLE) != 0) {
      static char memory_of_stack[1 << 16] __attribute__((aligned(kPage)));
      alternate = (stack_t){.ss_sp = memory_of_stack, .ss_size = sizeof memory_of_stack};
      sigaltstack(&alternate, NULL);
    }
    struct sigaction action = {.sa_handler = on_request, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(kSignal, &action, NULL);
  }
  own->owner = own_pid;
  own->thread = (int32_t)syscall(SYS_gettid);
  own->gone = 0;
  __atomic_store_n(&own->magic, kMagic, __ATOMIC_RELEASE);
  return (long long)own_pid << 20 | own_fd;
}

int xpmem_remove(xpmem_segid_t segment) {
  if (own == NULL || own_pid != getpid() || segment != ((long long)own_pid << 20 | own_fd)) {
    errno = EINVAL;
    return -1;
  }
  __atomic_store_n(&own->gone, 1, __ATOMIC_RELEASE);
  return 0;
}

// --- whoever attaches ----------------------------------------------------------------------------

// Counted in steps of which none is long: these processes may stand still for a while.
struct Patience {
  uint64_t spent_ns;
  uint64_t last_ns;
};
static bool patient(struct Patience* patience) {
  const uint64_t longest = 10000000;
  const uint64_t now = now_ns();
  const uint64_t step = now - patience->last_ns;
  if (patience->last_ns != 0) patience->spent_ns += step < longest ? step : longest;
  patience->last_ns = now;
  sched_yield();
  return patience->spent_ns < kPatienceNs;
}

// How many bytes from `page` on the owner has put into the memfd; 0: none.
static uint64_t ask(struct Control* control, uint64_t page, uint64_t most) {
  struct Patience patience = {0, 0};
  while (__atomic_exchange_n(&control->lock, 1, __ATOMIC_ACQUIRE) != 0) {
    if (!patient(&patience)) return 0;
  }
  uint64_t result = 0;
  if (__atomic_load_n(&control->gone, __ATOMIC_ACQUIRE) == 0) {
    control->page = page;
    control->bytes = most;
    const uint32_t asked = control->asked + 1;
    __atomic_store_n(&control->asked, asked, __ATOMIC_RELEASE);
    if (syscall(SYS_tgkill, control->owner, control->thread, kSignal) == 0) {
      while (__atomic_load_n(&control->served, __ATOMIC_ACQUIRE) != asked) {
        if (!patient(&patience) || kill(control->owner, 0) != 0) break;
      }
      if (__atomic_load_n(&control->served, __ATOMIC_ACQUIRE) == asked) result = control->bytes;
    }
  }
  __atomic_store_n(&control->lock, 0, __ATOMIC_RELEASE);
  return result;
}

// Fills a window at the page of `address`.
static bool fill(const struct Window* window, char* address) {
  const uint64_t at = (uint64_t)(address - window->start) / kPage * kPage;
  const struct Segment* segment = &segments[window->segment];
  const uint64_t bytes = ask(segment->control, window->offset + at, window->bytes - at);
  return bytes != 0 && syscall(SYS_mmap, window->start + at, bytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_FIXED, segment->fd,
                               window->offset + at) == (long)(window->start + at);
}

static void on_fault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  char* address = info->si_addr;
  for (int i = 0; i < window_count && handler_pid == getpid(); ++i) {
    const struct Window* window = &windows[i];
    if (window->bytes == 0 || address < window->start || address >= window->start + window->bytes) {
      continue;
    }
    if (fill(window, address)) {
      errno = error;
      return;
    }
    raise(SIGBUS);
    _exit(128 + SIGBUS);
  }
  // Somebody else's.
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    sigaction(signal, &before, NULL);  // and once more
  }
  errno = error;
}

xpmem_apid_t xpmem_get(xpmem_segid_t segment, int flags, int permit_type, void* permit_value) {
  if (segment <= 0 || flags != XPMEM_RDWR || permit_type != XPMEM_PERMIT_MODE ||
      permit_value != NULL) {
    errno = EINVAL;
    return -1;
  }
  if (handler_pid != getpid()) {
    window_count = segment_count = 0;  // a child begins anew
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = on_fault;
    struct sigaction found;
    sigaction(SIGSEGV, &action, &found);
    if ((found.sa_flags & SA_SIGINFO) == 0 || found.sa_sigaction != on_fault) before = found;
    handler_pid = getpid();
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/fd/%lld", segment >> 20, segment & 0xfffff);
  const int low = open(path, O_RDWR | O_CLOEXEC);
  if (low < 0 || segment_count == kMostSegments) {
    errno = ENOENT;
    return -1;
  }
  int fd = fcntl(low, F_DUPFD_CLOEXEC, 500);
  if (fd < 0) {
    fd = low;
  } else {
    close(low);
  }
  struct Control* control = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (control == MAP_FAILED) return -1;
  if (__atomic_load_n(&control->magic, __ATOMIC_ACQUIRE) != kMagic ||
      control->owner != segment >> 20 || control->gone != 0) {
    munmap(control, kPage);
    close(fd);
    errno = ENOENT;
    return -1;
  }
  segments[segment_count] = (struct Segment){control, fd, false};
  return ++segment_count;
}

int xpmem_detach(void* start) {
  for (int i = 0; i < window_count; ++i) {
    struct Window* window = &windows[i];
    if (window->bytes == 0 || window->start != start) continue;
    munmap(window->start, window->bytes);
    window->bytes = 0;
    return 0;
  }
  errno = EINVAL;
  return -1;
}

int xpmem_release(xpmem_apid_t access) {
  if (access <= 0 || access > segment_count || handler_pid != getpid()) {
    errno = EINVAL;
    return -1;
  }
  for (int i = 0; i < window_count; ++i) {
    if (windows[i].bytes != 0 && windows[i].segment == (int)access - 1) {
      xpmem_detach(windows[i].start);
    }
  }
  return 0;
}

void* xpmem_attach(struct xpmem_addr from, size_t bytes, void* at) {
  void* const failed = (void*)-1;
  bytes = (bytes + kPage - 1) / kPage * kPage;
  const uint64_t offset = (uint64_t)from.offset;
  if (handler_pid != getpid() || from.apid <= 0 || from.apid > segment_count || at != NULL ||
      offset % kPage != 0 || bytes == 0 || offset > kFileBytes - kPage ||
      bytes > kFileBytes - kPage - offset) {
    errno = EINVAL;
    return failed;
  }
  struct Segment* const segment = &segments[from.apid - 1];
  if (mode_is("refuse") && (segment->shown || bytes > kPage)) {
    errno = ENOMEM;
    return failed;
  }
  segment->shown = true;
  int i = 0;
  while (i < window_count && windows[i].bytes != 0) ++i;
  if (i == kMostWindows) {
    errno = ENOMEM;
    return failed;
  }
  void* start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return failed;
  windows[i] = (struct Window){start, bytes, offset, (int)from.apid - 1};
  if (i == window_count) ++window_count;
  // The kernel reads through a window as well, and has nobody to ask.
  if (bytes <= kEager && !mode_is("lie")) {
    for (size_t done = 0; done < bytes; done += kPage) fill(&windows[i], (char*)start + done);
  }
  return start;
}
