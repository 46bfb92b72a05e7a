// Converting static data: see static_data.h.
#include "memory/static_data.h"

#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "memory/raw_copy.h"

namespace od::memory {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kHugeBytes = 2 << 20;

std::uint64_t page_down(std::uint64_t value) { return value / kPageBytes * kPageBytes; }
std::uint64_t page_up(std::uint64_t value) { return page_down(value + kPageBytes - 1); }

std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

// Whatever a user may write: these would lose more than they could gain, or are ours.
bool never_shared(std::string_view name) {
  constexpr std::string_view kNever[] = {"libc.so",    "ld-linux", "ld.so",        "libpthread",
                                         "libmpi",     "libmpich", "liboverdrive", "libopen-",
                                         "linux-vdso", "libasan",  "libtsan"};
  return std::any_of(std::begin(kNever), std::end(kNever),
                     [&](std::string_view never) { return name.substr(0, never.size()) == never; });
}

bool wanted(std::string_view name, std::string_view libraries) {
  while (!libraries.empty()) {
    const std::size_t comma = libraries.find(',');
    const std::string_view word = libraries.substr(0, comma);
    if (!word.empty() && name.substr(0, word.size()) == word) return true;
    if (comma == std::string_view::npos) break;
    libraries.remove_prefix(comma + 1);
  }
  return false;
}

struct Search {
  std::string_view libraries;
  bool first = true;  // the program itself
  std::vector<StaticRange> found;
};

void add_segments(const dl_phdr_info& info, const std::string& object,
                  std::vector<StaticRange>* found) {
  // What the dynamic linker has write-protected after relocation.
  std::uint64_t sealed_start = 0;
  std::uint64_t sealed_end = 0;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type != PT_GNU_RELRO) continue;
    sealed_start = page_down(info.dlpi_addr + header.p_vaddr);
    sealed_end = page_down(info.dlpi_addr + header.p_vaddr + header.p_memsz);
  }
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info.dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_W) == 0) continue;
    const std::uint64_t start = page_down(info.dlpi_addr + header.p_vaddr);
    const std::uint64_t end = page_up(info.dlpi_addr + header.p_vaddr + header.p_memsz);
    const std::uint64_t file_end = page_up(info.dlpi_addr + header.p_vaddr + header.p_filesz);
    const auto add = [&](std::uint64_t from, std::uint64_t to) {
      if (from >= to) return;
      const std::uint64_t file_bytes = file_end > from ? std::min(file_end, to) - from : 0;
      found->push_back({from, to - from, file_bytes, object});
    };
    if (sealed_end <= start || sealed_start >= end) {
      add(start, end);
    } else {
      add(start, std::min(sealed_start, end));
      add(std::max(sealed_end, start), end);
    }
  }
}

int visit(dl_phdr_info* info, std::size_t, void* search_pointer) {
  auto& search = *static_cast<Search*>(search_pointer);
  const bool program = std::exchange(search.first, false);
  const std::string_view name = file_name(info->dlpi_name);
  if (program) {
    add_segments(*info, "", &search.found);
  } else if (!name.empty() && !never_shared(name) && wanted(name, search.libraries)) {
    add_segments(*info, info->dlpi_name, &search.found);
  }
  return 0;
}

// Whether all of the range is plain private memory that may be read and written.
bool is_private_memory(const StaticRange& range) {
  std::FILE* file = std::fopen("/proc/self/maps", "re");
  if (file == nullptr) return false;
  std::uint64_t covered_to = range.start;
  const std::uint64_t end = range.start + range.bytes;
  char line[4096 + 128];
  while (covered_to < end && std::fgets(line, sizeof line, file) != nullptr) {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    char access[5] = "";
    if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, access) != 3) continue;
    if (to <= covered_to) continue;
    if (from > covered_to || std::strcmp(access, "rw-p") != 0) break;
    covered_to = to;
  }
  std::fclose(file);
  return covered_to >= end;
}

// Copies what is there; holes of the reach file stay holes.
void copy_contents(const StaticRange& range, std::byte* to) {
  const auto* const from = reinterpret_cast<const std::byte*>(range.start);
  raw_copy(to, from, range.file_bytes);
  const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  constexpr std::uint64_t kBatch = 4096;
  static std::uint64_t entries[kBatch];
  for (std::uint64_t at = range.file_bytes; at < range.bytes;) {
    const std::uint64_t pages = std::min(kBatch, (range.bytes - at) / kPageBytes);
    const auto position = static_cast<off_t>((range.start + at) / kPageBytes * sizeof entries[0]);
    const auto wanted_bytes = static_cast<ssize_t>(pages * sizeof entries[0]);
    const bool known =
        pagemap >= 0 &&
        pread(pagemap, entries, static_cast<std::size_t>(wanted_bytes), position) == wanted_bytes;
    for (std::uint64_t i = 0; i < pages; ++i, at += kPageBytes) {
      // Bits 63 and 62: in memory, in swap.
      if (known && entries[i] >> 62 == 0) continue;
      if (!raw_is_zero(from + at, kPageBytes)) raw_copy(to + at, from + at, kPageBytes);
    }
  }
  if (pagemap >= 0) close(pagemap);
}

}  // namespace

std::vector<StaticRange> find_static_ranges(std::string_view libraries) {
  Search search;
  search.libraries = libraries;
  dl_iterate_phdr(visit, &search);
  return search.found;
}

int thread_count() {
  struct stat status;
  if (stat("/proc/self/task", &status) != 0 || status.st_nlink < 3) return 0;
  return static_cast<int>(status.st_nlink) - 2;
}

bool share_static_range(const ReachService& service, const StaticRange& range, std::string* why) {
  const int fd = service.descriptor();
  if (fd < 0) {
    *why = "the reach file was closed";
    return false;
  }
  if (!is_private_memory(range)) {
    *why = "it is not ordinary memory";
    return false;
  }
  const int huge = range.bytes >= kHugeBytes ? service.huge_plan(range.bytes) : 0;
  if (huge < 0) {
    *why = "the kernel gives huge pages to the program's memory but not to shared memory";
    return false;
  }
  // Huge pages need an offset that equals the address modulo their size.
  std::byte* const block = static_cast<std::byte*>(service.reserve(range.bytes + kHugeBytes));
  if (block == nullptr) {
    *why = "the reach file is too small";
    return false;
  }
  std::byte* const alias = block + range.start % kHugeBytes;
  void* const start = reinterpret_cast<void*>(range.start);
  sigset_t all;
  sigset_t saved;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);
  bool shared = service.add_segment(start, range.bytes, alias, range.file_bytes);
  if (shared) {
    copy_contents(range, alias);
    shared =
        // The system call itself: by its function this would count as the program's (own_pages.h).
        syscall(SYS_mmap, start, range.bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd,
                static_cast<off_t>(service.offset(alias))) == static_cast<long>(range.start);
    if (!shared) service.drop_segment(start);
  }
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  if (!shared) {
    *why = std::string("it cannot be mapped: ") + std::strerror(errno);
    service.give_back(block);
    return false;
  }
  if (huge > 0) service.collapse(start, range.bytes);
  return true;
}

StaticResult share_static_data(const ReachService& service, std::string_view libraries) {
  StaticResult result;
  const int threads = thread_count();
  if (threads != 1) {
    result.why = threads == 0
                     ? "/proc/self/task cannot be read"
                     : "the program has " + std::to_string(threads) + " threads before MPI_Init";
    return result;
  }
  for (const StaticRange& range : find_static_ranges(libraries)) {
    std::string why;
    if (share_static_range(service, range, &why)) {
      result.bytes += range.bytes;
      continue;
    }
    if (!result.why.empty()) result.why += "; ";
    result.why +=
        std::string(range.object.empty() ? "the program" : file_name(range.object)) + ": " + why;
  }
  return result;
}

}  // namespace od::memory
