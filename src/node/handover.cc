// The star of sockets: non-blocking sequenced packets, one poll loop per side, hard time limits.
#include "node/handover.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "node/local_socket.h"

namespace od::node {
namespace {

// Generous for 64 ranks that start on two cores; a rank that needs longer stays with the host MPI.
constexpr std::uint64_t kLeaderLimitNs = 15'000'000'000;
// Longer than the leader's, so that a member never gives up on a leader that is about to deliver.
constexpr std::uint64_t kMemberLimitNs = 20'000'000'000;
constexpr int kMostBatch = 64;
// Files a rank may have opened meanwhile, and the sockets themselves.
constexpr std::uint32_t kSpareDescriptors = 16;

enum class Kind : std::uint16_t { memory, process, reach };
constexpr std::uint32_t kKinds = 3;

// What one member hands out, by kind; -1: nothing.
struct Descriptors {
  int fds[kKinds] = {-1, -1, -1};
};

struct Hello {
  std::uint64_t leader_nonce[2];
  std::uint64_t nonce[2];
  std::int32_t position;
  std::uint32_t descriptors;  // how many come along
  Kind kinds[kKinds];         // which ones, in this order
  std::uint16_t unused;
};

struct Entry {
  std::uint16_t position;
  Kind kind;
};

struct Batch {
  std::uint32_t count;  // 0: that was all
  Entry entries[kMostBatch];
};

// Waits for an event on `sockets` until the deadline; false when it has passed.
bool poll_until(std::vector<pollfd>& sockets, std::uint64_t deadline_ns) {
  for (;;) {
    const std::uint64_t now = now_ns();
    if (now >= deadline_ns) return false;
    const int milliseconds = static_cast<int>((deadline_ns - now) / 1'000'000) + 1;
    const int events = poll(sockets.data(), sockets.size(), milliseconds);
    if (events > 0) return true;
    if (events < 0 && errno != EINTR) return false;
  }
}

union ControlRoom {
  char bytes[CMSG_SPACE(sizeof(int) * kMostBatch)];
  cmsghdr alignment;
};

// Sends one packet with descriptors; 1 sent, 0 try again later, -1 the connection is useless.
int send_packet(int socket, const void* data, std::size_t bytes, const int* fds,
                std::size_t count) {
  iovec part = {const_cast<void*>(data), bytes};
  ControlRoom control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
  }
  for (;;) {
    if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 1;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: this user has more descriptors on their way than it may have open files; the
    // receivers are taking them out.
    const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS ||
                       errno == ENOBUFS || errno == ENOMEM;
    return later ? 0 : -1;
  }
}

// Receives one packet; its size, 0 at the end of the connection, -1 for nothing there or an error
// (`*again` tells which). Appends the descriptors that came along: fewer than were sent when this
// process may not open more.
ssize_t receive_packet(int socket, void* data, std::size_t bytes, std::vector<int>* fds,
                       bool* again) {
  iovec part = {data, bytes};
  ControlRoom control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  ssize_t received = 0;
  do {
    received = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  *again = received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  if (received < 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      fds->push_back(fd);
    }
  }
  return received;
}

void close_all(std::vector<int>* fds) {
  for (const int fd : *fds) {
    if (fd >= 0) close(fd);
  }
  fds->clear();
}

// Without its memory a member's other descriptors are of no use.
Descriptors own_descriptors(const Handover& handover) {
  if (handover.memfd < 0) return {};
  return {{handover.memfd, handover.pidfd, handover.reach}};
}

void deliver(const Handover& handover, int position, Kind kind, int fd) {
  if (kind == Kind::memory) {
    handover.deliver_memory(position, fd);
  } else if (kind == Kind::process) {
    handover.deliver_process(position, fd);
  } else if (kind == Kind::reach && handover.deliver_reach) {
    handover.deliver_reach(position, fd);
  } else {
    close(fd);
  }
}

// The leader's side: what it has of every member, and how far each has been served.
class Leader {
 public:
  explicit Leader(const Handover& handover)
      : handover_(handover),
        group_(*handover.group),
        members_(group_.size()),
        deadline_ns_(now_ns() + kLeaderLimitNs) {}

  void run() {
    collect();
    close(handover_.listener);
    offer(handover_.me, own_descriptors(handover_));
    distribute();
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].socket >= 0) close(members_[i].socket);
      if (static_cast<int>(i) == handover_.me) continue;
      for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
        const int fd = members_[i].own.fds[kind];
        if (fd >= 0) deliver(handover_, static_cast<int>(i), static_cast<Kind>(kind), fd);
      }
    }
  }

 private:
  struct MemberState {
    int socket = -1;
    Descriptors own;
    std::size_t next = 0;  // in what is offered
    bool served = false;
  };
  struct Offer {
    Entry entry;
    int fd;
  };

  void collect() {
    int missing = 0;
    for (std::size_t i = 0; i < group_.size(); ++i) {
      if (static_cast<int>(i) != handover_.me && (group_[i].flags & kIdentityListens) != 0) {
        ++missing;
      }
    }
    std::vector<int> strangers;  // connected, not yet introduced
    while (missing > 0) {
      std::vector<pollfd> sockets = {{handover_.listener, POLLIN, 0}};
      for (const int socket : strangers) sockets.push_back({socket, POLLIN, 0});
      if (!poll_until(sockets, deadline_ns_)) break;
      for (std::size_t i = sockets.size() - 1; i > 0; --i) {
        if (sockets[i].revents == 0) continue;
        if (greet(sockets[i].fd)) --missing;
        strangers.erase(strangers.begin() + static_cast<std::ptrdiff_t>(i - 1));
      }
      if (sockets[0].revents == 0) continue;
      const int socket =
          accept4(handover_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket < 0) {
        if (errno == EINTR || errno == EAGAIN || errno == ECONNABORTED) continue;
        break;  // no more descriptors, most likely
      }
      strangers.push_back(socket);
    }
    close_all(&strangers);
  }

  // Reads the hello of a connection; true when it belongs to a member that was still missing.
  bool greet(int socket) {
    Hello hello = {};
    std::vector<int> fds;
    bool again = false;
    const ssize_t bytes = receive_packet(socket, &hello, sizeof hello, &fds, &again);
    const Identity& me = group_[static_cast<std::size_t>(handover_.me)];
    const bool valid =
        bytes == sizeof hello && same_user(socket) && hello.leader_nonce[0] == me.nonce[0] &&
        hello.leader_nonce[1] == me.nonce[1] && hello.position >= 0 &&
        static_cast<std::size_t>(hello.position) < group_.size() &&
        hello.position != handover_.me && fds.size() <= kKinds && fds.size() == hello.descriptors;
    const auto position = static_cast<std::size_t>(valid ? hello.position : 0);
    if (!valid || members_[position].socket >= 0 || hello.nonce[0] != group_[position].nonce[0] ||
        hello.nonce[1] != group_[position].nonce[1]) {
      close_all(&fds);
      close(socket);
      return false;
    }
    members_[position].socket = socket;
    Descriptors& own = members_[position].own;
    for (std::size_t i = 0; i < fds.size(); ++i) {
      const auto kind = static_cast<std::uint32_t>(hello.kinds[i]);
      if (kind >= kKinds || own.fds[kind] >= 0) {
        close(fds[i]);
      } else {
        own.fds[kind] = fds[i];
      }
    }
    offer(hello.position, own);
    return true;
  }

  void offer(int position, const Descriptors& own) {
    const auto index = static_cast<std::uint16_t>(position);
    for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
      if (own.fds[kind] >= 0) offers_.push_back({{index, static_cast<Kind>(kind)}, own.fds[kind]});
    }
  }

  void distribute() {
    // Nobody gets more descriptors at once than the poorest may open.
    std::uint32_t room = kMostBatch;
    for (const Identity& identity : group_) room = std::min(room, identity.free_descriptors);
    const std::size_t batch = room > kSpareDescriptors ? room - kSpareDescriptors : 1;
    for (;;) {
      std::vector<pollfd> sockets;
      bool waiting_for_receivers = false;
      for (MemberState& member : members_) {
        if (member.socket < 0 || member.served) continue;
        const int result = serve(member, batch);
        if (result < 0) member.served = true;
        if (result == 0) {
          sockets.push_back({member.socket, POLLOUT, 0});
          waiting_for_receivers = true;
        }
        if (!member.served && result > 0) sockets.push_back({member.socket, POLLOUT, 0});
      }
      if (sockets.empty()) return;
      if (!poll_until(sockets, deadline_ns_)) return;
      // The socket may be writable and the send still refused (ETOOMANYREFS): do not spin on it.
      if (waiting_for_receivers) usleep(200);
    }
  }

  // Sends the next batch; as send_packet.
  int serve(MemberState& member, std::size_t most) {
    Batch batch = {};
    int fds[kMostBatch];
    const auto position = static_cast<std::size_t>(&member - members_.data());
    std::size_t next = member.next;
    for (; next < offers_.size() && batch.count < most; ++next) {
      if (offers_[next].entry.position == position) continue;
      fds[batch.count] = offers_[next].fd;
      batch.entries[batch.count] = offers_[next].entry;
      ++batch.count;
    }
    const int result = send_packet(member.socket, &batch, sizeof batch, fds, batch.count);
    if (result > 0) {
      member.next = next;
      member.served = batch.count == 0;
    }
    return result;
  }

  const Handover& handover_;
  const std::vector<Identity>& group_;
  std::vector<MemberState> members_;
  std::vector<Offer> offers_;
  const std::uint64_t deadline_ns_;
};

int connect_to_leader(const Identity& leader, std::uint64_t deadline_ns) {
  for (;;) {
    const int socket = connect_at("", leader.socket_name);
    if (socket >= 0 || errno != EAGAIN || now_ns() > deadline_ns) return socket;
    usleep(100);
  }
}

void run_member(const Handover& handover, int leader) {
  const std::vector<Identity>& group = *handover.group;
  const std::uint64_t deadline_ns = now_ns() + kMemberLimitNs;
  const Identity& boss = group[static_cast<std::size_t>(leader)];
  const int socket = connect_to_leader(boss, deadline_ns);
  if (socket < 0) return;
  const Identity& me = group[static_cast<std::size_t>(handover.me)];
  Hello hello = {.leader_nonce = {boss.nonce[0], boss.nonce[1]},
                 .nonce = {me.nonce[0], me.nonce[1]},
                 .position = handover.me,
                 .descriptors = 0,
                 .kinds = {},
                 .unused = 0};
  int fds[kKinds];
  const Descriptors own = own_descriptors(handover);
  for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
    if (own.fds[kind] < 0) continue;
    hello.kinds[hello.descriptors] = static_cast<Kind>(kind);
    fds[hello.descriptors++] = own.fds[kind];
  }
  int sent = 0;
  while ((sent = send_packet(socket, &hello, sizeof hello, fds, hello.descriptors)) == 0 &&
         now_ns() < deadline_ns) {
    usleep(200);
  }
  std::vector<pollfd> sockets = {{socket, POLLIN, 0}};
  while (sent > 0 && poll_until(sockets, deadline_ns)) {
    Batch batch = {};
    std::vector<int> received;
    bool again = false;
    const ssize_t bytes = receive_packet(socket, &batch, sizeof batch, &received, &again);
    if (again) continue;
    if (bytes != sizeof batch || batch.count == 0 || batch.count > kMostBatch) {
      close_all(&received);
      break;
    }
    // Descriptors that did not fit are missing at the end.
    for (std::size_t i = 0; i < received.size(); ++i) {
      const Entry entry = batch.entries[i];
      if (i >= batch.count || entry.position >= group.size()) {
        close(received[i]);
      } else {
        deliver(handover, entry.position, entry.kind, received[i]);
      }
    }
  }
  close(socket);
}

}  // namespace

int open_listener(std::uint64_t socket_name) { return listen_at("", socket_name); }

int handover_leader(const std::vector<Identity>& group) {
  for (std::size_t i = 0; i < group.size(); ++i) {
    // A socket, a memfd, a pidfd and a reach file of everybody.
    const std::size_t needed = 4 * group.size() + kSpareDescriptors;
    if ((group[i].flags & kIdentityListens) != 0 && group[i].free_descriptors >= needed) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

void run_handover(const Handover& handover) {
  const int leader = handover_leader(*handover.group);
  if (leader == handover.me) {
    Leader(handover).run();
    return;
  }
  if (handover.listener >= 0) close(handover.listener);
  const Identity& me = (*handover.group)[static_cast<std::size_t>(handover.me)];
  if (leader >= 0 && (me.flags & kIdentityListens) != 0) run_member(handover, leader);
}

int open_through_proc(const Identity& me, const Identity& peer, int fd) {
  if (me.pid_namespace == 0 || me.pid_namespace != peer.pid_namespace || fd < 0) return -1;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd/%d", peer.pid, fd);
  return open(path, O_RDWR | O_CLOEXEC);
}

}  // namespace od::node
