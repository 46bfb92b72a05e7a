// What a rank says about itself before a node is joined, and what can be concluded from everybody's
// statements: who may share memory with whom, and whether the processors suffice.
//
// All functions of several identities are pure: equal on all ranks, because the identities are.
#ifndef OVERDRIVE_NODE_IDENTITY_H_
#define OVERDRIVE_NODE_IDENTITY_H_

#include <cstdint>
#include <vector>

namespace od::node {

inline constexpr std::uint32_t kIdentityShares = 1;     // has a memfd and wants to share
inline constexpr std::uint32_t kIdentityListens = 2;    // has a socket that others may connect to
inline constexpr std::uint32_t kIdentityExpedited = 4;  // registered for expedited barriers

// Processors are counted modulo the width of the mask; beyond that the count is too low, which at
// worst makes ranks yield more than they need.
inline constexpr int kMaskWords = 16;

// Exchanged as bytes: no padding, no pointers.
struct Identity {
  std::uint64_t node_key;          // equal: same kernel, network namespace, user and version
  std::uint64_t host_key;          // equal: same kernel, hence the same processors
  std::uint64_t nonce[2];          // random; proves that a mapping is that of this rank's memory
  std::uint64_t socket_name;       // random; not the nonce, because everybody can see socket names
  std::uint64_t pid_namespace;     // 0: unknown
  std::uint64_t start_time;        // field 22 of /proc/self/stat; 0: unknown
  std::uint64_t file_limit_bytes;  // largest memfd that may be made
  std::uint64_t mapping_limit_bytes;  // for all regions together
  std::uint64_t quota_group;          // cgroup that limits processor time
  std::uint64_t reach_bytes;          // size of the reach file; 0: there is none
  std::int64_t space_id;              // by which peers can open its address space; 0: they cannot
  std::uint64_t space_proof;          // address at which they then find the nonce
  std::uint32_t quota_millicores;     // 0: no limit
  std::uint32_t free_descriptors;     // files that may still be opened
  std::uint32_t pid;
  std::int32_t memfd;
  std::uint32_t uid;
  std::uint32_t flags;
  std::int32_t reach_fd;  // number of the reach file's descriptor in the member
  std::uint32_t unused;
  std::uint64_t cpus[kMaskWords];
};
static_assert(sizeof(Identity) == (17 + kMaskWords) * 8);

// The identity of this process, except memfd and flags.
Identity identify(std::uint32_t version);

// `value` such that different inputs give different keys; never 0.
std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value);

// Ranks that may share memory with `rank`, ascending, itself included; empty when it shares
// nothing.
std::vector<int> sharing_candidates(const std::vector<Identity>& all, int rank);

// Whether the ranks on the host of `rank` have fewer processors than they are.
bool too_few_processors(const std::vector<Identity>& all, int rank);

// Start time (clock ticks since boot) of a process, 0 when /proc does not show it. `*ended` says
// that the process is a zombie or being removed.
std::uint64_t process_start_time(std::uint32_t pid, bool* ended);

// Whether /proc shows the processes of this one's pid namespace under the numbers they have there.
bool proc_shows_own_namespace();

// A descriptor that tells when the process has ended, or -1.
int open_pidfd(std::uint32_t pid);

// The pid that fdinfo shows for a pidfd: -1 when the process is gone, 0 when this process cannot
// see it; false when the descriptor is no pidfd.
bool pid_shown_by_pidfd(int pidfd, long* pid);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_IDENTITY_H_
