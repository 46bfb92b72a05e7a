// Collects what identifies a process on its host from /proc, limits and affinity.
#include "node/identity.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "node/region_layout.h"
#include "topology/cpu_share.h"

namespace od::node {
namespace {

// Reads the beginning of a file as text; returns its length, 0 when it cannot be read.
std::size_t read_text(const char* path, char* text, std::size_t room) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t bytes = read(fd, text, room - 1);
  close(fd);
  const std::size_t length = bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
  text[length] = '\0';
  return length;
}

std::uint64_t hash_text(std::uint64_t hash, const char* text) {
  for (; *text != '\0'; ++text) hash = mix_hash(hash, static_cast<unsigned char>(*text));
  return hash;
}

std::uint64_t namespace_of_this_process(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 ? status.st_ino : 0;
}

std::uint64_t kernel_key() {
  char text[256];
  if (read_text("/proc/sys/kernel/random/boot_id", text, sizeof text) == 0) {
    // Without /proc the host name must do; the mapping itself decides in the end.
    text[0] = '\0';
    gethostname(text, sizeof text - 1);
    text[sizeof text - 1] = '\0';
  }
  return hash_text(1, text);
}

void fill_random(void* to, std::size_t bytes) {
  if (getrandom(to, bytes, 0) == static_cast<ssize_t>(bytes)) return;
  // Refused by a filter: unique is enough, credentials are checked besides.
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  std::uint64_t hash =
      mix_hash(static_cast<std::uint64_t>(now.tv_sec), static_cast<std::uint64_t>(now.tv_nsec));
  hash = mix_hash(hash, static_cast<std::uint64_t>(getpid()));
  hash = mix_hash(hash, reinterpret_cast<std::uintptr_t>(&now));
  for (std::size_t i = 0; i < bytes; ++i) {
    hash = mix_hash(hash, i);
    static_cast<unsigned char*>(to)[i] = static_cast<unsigned char>(hash >> 24);
  }
}

std::uint64_t mapping_limit() {
  // User space has 47 bits of addresses; a quarter of them leaves room for everybody else.
  constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 45;
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kAddressSpace;
  char text[256];
  std::uint64_t used = limit.rlim_cur / 2;
  if (read_text("/proc/self/statm", text, sizeof text) > 0) {
    used = std::strtoull(text, nullptr, 10) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  }
  // Half of what is left, and of that as little as will do (plan_sparing_region).
  return used >= limit.rlim_cur ? 0 : std::min(kAddressSpace, (limit.rlim_cur - used) / 2);
}

std::uint64_t file_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::uint64_t{1} << 62;
  }
  return limit.rlim_cur;
}

std::uint32_t free_descriptors() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  // Descriptors are given out lowest first: the next one tells about how many are in use.
  const int next = open("/", O_PATH | O_CLOEXEC);
  if (next < 0) return 0;
  close(next);
  const auto used = static_cast<std::uint64_t>(next);
  const std::uint64_t most = std::min<std::uint64_t>(limit.rlim_cur, 1u << 30);
  return most <= used ? 0 : static_cast<std::uint32_t>(most - used);
}

void fill_mask(std::uint64_t* words) {
  // Larger than any kernel's mask; the kernel refuses a smaller buffer than its own.
  constexpr int kMostProcessors = 1 << 16;
  cpu_set_t* set = CPU_ALLOC(kMostProcessors);
  if (set == nullptr) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(kMostProcessors);
  CPU_ZERO_S(bytes, set);
  if (sched_getaffinity(0, bytes, set) == 0) {
    for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, reinterpret_cast<const char*>(set) + i * sizeof word, sizeof word);
      words[i % kMaskWords] |= word;
    }
  }
  CPU_FREE(set);
}

}  // namespace

std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  // Multiply and fold, twice; constants are odd and have no structure (digits of e and of pi).
  hash = (hash ^ value) * 0xb7e151628aed2a6bu;
  hash ^= hash >> 32;
  hash *= 0x3243f6a8885a308du | 1;
  hash ^= hash >> 29;
  return hash == 0 ? 1 : hash;
}

std::uint64_t process_start_time(std::uint32_t pid, bool* ended) {
  char path[64];
  char text[1024];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  *ended = false;
  if (read_text(path, text, sizeof text) == 0) return 0;
  // The second field is the command in parentheses and may contain anything, also parentheses.
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] != ' ') return 0;
  char state = 0;
  long threads = 0;
  unsigned long long start = 0;
  // Fields 3 (state), 20 (threads) and 22 (start time).
  if (std::sscanf(at + 2,
                  "%c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld %*s %llu",
                  &state, &threads, &start) != 3) {
    return 0;
  }
  // A process whose first thread has ended while others run looks like a zombie but is not.
  *ended = state == 'X' || state == 'x' || (state == 'Z' && threads <= 1);
  // No process that runs is without threads: an emulator of user programs shows each its own file,
  // of its own making, with a time that others do not see.
  if (threads == 0 && !*ended && state != 'Z') return 0;
  return start;
}

bool proc_shows_own_namespace() {
  char text[32] = "";
  const ssize_t bytes = readlink("/proc/self", text, sizeof text - 1);
  return bytes > 0 && std::strtol(text, nullptr, 10) == getpid();
}

int open_pidfd(std::uint32_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
#else
  (void)pid;
  return -1;
#endif
}

bool pid_shown_by_pidfd(int pidfd, long* pid) {
  char path[64];
  char text[1024];
  std::snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
  if (read_text(path, text, sizeof text) == 0) return false;
  const char* line = std::strstr(text, "\nPid:");
  if (line == nullptr) return false;
  *pid = std::strtol(line + std::strlen("\nPid:"), nullptr, 10);
  return true;
}

Identity identify(std::uint32_t version) {
  Identity me = {};
  me.host_key = kernel_key();
  me.uid = geteuid();
  me.node_key = mix_hash(me.host_key, namespace_of_this_process("/proc/self/ns/net"));
  me.node_key = mix_hash(me.node_key, me.uid);
  me.node_key = mix_hash(me.node_key, version);
  fill_random(me.nonce, sizeof me.nonce);
  fill_random(&me.socket_name, sizeof me.socket_name);
  me.pid_namespace = namespace_of_this_process("/proc/self/ns/pid");
  me.pid = static_cast<std::uint32_t>(getpid());
  bool ended = false;
  me.start_time = process_start_time(me.pid, &ended);
  me.file_limit_bytes = file_limit();
  me.mapping_limit_bytes = mapping_limit();
  const topology::CpuQuota quota = topology::read_cpu_quota();
  me.quota_group = quota.group;
  // A limit that does not fit is none.
  me.quota_millicores =
      quota.milli_cpus > UINT32_MAX ? 0 : static_cast<std::uint32_t>(quota.milli_cpus);
  me.free_descriptors = free_descriptors();
  me.memfd = -1;
  fill_mask(me.cpus);
  return me;
}

std::vector<int> sharing_candidates(const std::vector<Identity>& all, int rank) {
  const Identity& me = all[static_cast<std::size_t>(rank)];
  std::vector<int> ranks;
  for (std::size_t i = 0; i < all.size() && ranks.size() < kMaxLocalRanks; ++i) {
    if (all[i].node_key == me.node_key && (all[i].flags & kIdentityShares) != 0) {
      ranks.push_back(static_cast<int>(i));
    }
  }
  // The surplus of a very large node stays with the host, as does who shares nothing.
  if (!std::binary_search(ranks.begin(), ranks.end(), rank)) ranks.clear();
  return ranks;
}

bool too_few_processors(const std::vector<Identity>& all, int rank) {
  using Mask = std::vector<std::uint64_t>;
  const std::uint64_t host = all[static_cast<std::size_t>(rank)].host_key;
  std::map<Mask, int> ranks_of_mask;
  std::map<std::uint64_t, std::pair<int, std::uint32_t>> ranks_of_quota;
  for (const Identity& identity : all) {
    if (identity.host_key != host) continue;
    ++ranks_of_mask[Mask(identity.cpus, identity.cpus + kMaskWords)];
    if (identity.quota_millicores != 0) {
      auto& [ranks, millicores] = ranks_of_quota[identity.quota_group];
      ++ranks;
      millicores = identity.quota_millicores;
    }
  }
  for (const auto& [group, use] : ranks_of_quota) {
    if (static_cast<std::uint32_t>(use.first) * 1000u > use.second) return true;
  }
  // Any set of processors that has to serve more ranks than it has members is too small. The sets
  // worth a look are the masks themselves and their union.
  std::set<Mask> sets;
  Mask all_processors(kMaskWords, 0);
  for (const auto& [mask, ranks] : ranks_of_mask) {
    sets.insert(mask);
    for (int i = 0; i < kMaskWords; ++i) {
      all_processors[static_cast<std::size_t>(i)] |= mask[static_cast<std::size_t>(i)];
    }
  }
  sets.insert(all_processors);
  for (const Mask& set : sets) {
    int processors = 0;
    for (const std::uint64_t word : set) processors += std::popcount(word);
    if (processors == 0) continue;  // unknown
    int ranks = 0;
    for (const auto& [mask, count] : ranks_of_mask) {
      bool inside = true;
      for (std::size_t i = 0; i < mask.size(); ++i) inside = inside && (mask[i] & ~set[i]) == 0;
      if (inside) ranks += count;
    }
    if (ranks > processors) return true;
  }
  return false;
}

}  // namespace od::node
