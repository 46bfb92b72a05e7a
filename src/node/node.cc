// A joined node: test separation, liveness of members, returning memory.
//
// Liveness never trusts a number alone: a pid must still have the start time it had when it joined,
// and a pidfd must still be one of that process, because programs close descriptors they do not
// know.
#include "node/node.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/round.h"
#include "node/identity.h"
#include "node/region.h"

namespace od::node {
namespace {

// Whether the descriptor still is the pidfd that was opened for the member: fdinfo then shows the
// pid that it showed when the node was joined, or -1 when the process is gone.
bool still_pidfd_of(const Member& member) {
  long pid = 0;
  return pid_shown_by_pidfd(member.pidfd, &pid) && (pid == member.pidfd_shows || pid == -1);
}

bool pidfd_ended(const Member& member) {
  pollfd poller = {member.pidfd, POLLIN, 0};
  // Readable: the process has ended, or the number now belongs to some other file.
  return poll(&poller, 1, 0) == 1 && (poller.revents & POLLIN) != 0 && still_pidfd_of(member);
}

}  // namespace

Node::~Node() {
  for (const Member& member : members_) {
    unmap_region(member.base, layout_);
    if (&member != &members_[static_cast<std::size_t>(my_index_)]) {
      unmap_reach_file(member.reach, member.reach_bytes);
    }
    if (member.pidfd >= 0 && still_pidfd_of(member)) close(member.pidfd);
  }
}

bool Node::separated(int a, int b) const {
  if (a == b) return false;
  if (all_separated_) return true;
  return !separated_.empty() &&
         std::binary_search(separated_.begin(), separated_.end(),
                            std::pair<int, int>(std::min(a, b), std::max(a, b)));
}

bool Node::dead(int index) const {
  const Member& peer = member(index);
  if (index == my_index_) return false;
  // Pairs with the peer's release store when it leaves.
  const std::uint32_t phase = peer.header->phase.load(std::memory_order_acquire);
  if (phase == static_cast<std::uint32_t>(RankPhase::left)) return false;
  if (peer.start_time != 0) {
    bool ended = false;
    const std::uint64_t start_time = process_start_time(peer.pid, &ended);
    if (start_time == peer.start_time) return ended;
    if (start_time != 0) return true;  // the pid has been given to another process
    // Not shown: either gone or /proc cannot be read at the moment (no free descriptor).
    return kill(static_cast<pid_t>(peer.pid), 0) != 0 && errno == ESRCH;
  }
  return peer.pidfd >= 0 && pidfd_ended(peer);
}

void Node::punch(std::uint64_t offset, std::uint64_t bytes) {
  if (offset > layout_.total_bytes || bytes > layout_.total_bytes - offset) return;
  const std::uint64_t first = round_up(offset, kPageBytes);
  const std::uint64_t end = round_down(offset + bytes, kPageBytes);
  if (first >= end) return;
  std::byte* const start = member(my_index_).base + first;
  // Removes the pages from the file, for all who map it; private memory needs the other call.
  if (madvise(start, end - first, MADV_REMOVE) != 0) madvise(start, end - first, MADV_DONTNEED);
}

}  // namespace od::node
