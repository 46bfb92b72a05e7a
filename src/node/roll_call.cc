// Leader and followers. Sockets tell presence by existing: a connection is accepted by the kernel,
// whether or not its owner has looked at it yet. Everybody's listening socket stays open until it
// knows the leader's verdict; its end is the end of its process.
#include "node/roll_call.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "node/descriptor_limit.h"
#include "node/identity.h"
#include "node/local_socket.h"

namespace od::node {
namespace {

constexpr char kSocketKind[] = "job-";
constexpr std::uint64_t kMagic = 0x6f642d6d75737472;  // changes with the messages below
constexpr unsigned kRetryMicroseconds = 2000;

std::string this_host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

void close_if_open(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// One message, whole; false at the end of the connection.
bool send_message(int socket, const void* data, std::size_t bytes) {
  for (;;) {
    if (send(socket, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes)) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd poller = {socket, POLLOUT, 0};
      poll(&poller, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
}

bool receive_message(int socket, void* data, std::size_t bytes) {
  for (;;) {
    const ssize_t received = recv(socket, data, bytes, MSG_DONTWAIT);
    if (received >= 0) return received == static_cast<ssize_t>(bytes);
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd poller = {socket, POLLIN, 0};
      poll(&poller, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
}

struct Verdict {
  std::uint64_t magic;
  std::uint32_t attendance;
  std::uint32_t with_star;
  char missing[960];
};

}  // namespace

struct RollCall::Card {
  std::uint64_t magic;
  std::uint64_t build;
  std::uint64_t job_key;
  std::int32_t world_rank;
  std::int32_t world_size;
  std::int32_t local_rank;
  std::int32_t local_size;
  std::uint32_t on_board;
  std::uint32_t unused;
  char version[32];
};

RollCall::RollCall(const LaunchView& view, std::uint64_t build, std::string version,
                   std::uint64_t absent_limit_ns)
    : view_(view), build_(build), version_(std::move(version)), absent_limit_ns_(absent_limit_ns) {}

RollCall::~RollCall() { close_if_open(&listener_); }

std::uint64_t RollCall::name_of(int local_rank) const {
  return mix_hash(view_.job_key, static_cast<std::uint64_t>(local_rank));
}

RollCall::Card RollCall::own_card(bool on_board) const {
  Card card = {};
  card.magic = kMagic;
  card.build = build_;
  card.job_key = view_.job_key;
  card.world_rank = view_.rank;
  card.world_size = view_.size;
  card.local_rank = view_.local_rank;
  card.local_size = view_.local_size;
  card.on_board = on_board ? 1 : 0;
  std::snprintf(card.version, sizeof card.version, "%s", version_.c_str());
  return card;
}

void RollCall::announce() {
  if (!view_.known || view_.local_size < 2 || listener_ >= 0) return;
  listener_ = listen_at(kSocketKind, name_of(view_.local_rank));
  if (listener_ < 0) announce_error_ = errno;
}

Muster RollCall::meet(int world_rank, int world_size, Board* board) {
  Muster muster;
  if (world_size == 1) {
    muster.attendance = Attendance::everybody;
    return muster;
  }
  // A launcher inside a launcher, a program that changes its environment: no evidence.
  if (!view_.known || view_.rank != world_rank || view_.size != world_size) return muster;
  if (view_.local_size > 1 && listener_ < 0) {
    muster.missing = std::string("no socket: ") + std::strerror(announce_error_);
    return muster;
  }
  const RaisedDescriptorLimit descriptors;
  const bool leads = view_.local_rank == 0;
  muster = leads ? lead(board) : follow(board);
  // Where a leader is missing the others see by the sockets who is not. The leader itself calls
  // nobody any more: who comes after its limit must not wait for it.
  if (leads || muster.attendance != Attendance::incomplete) close_if_open(&listener_);
  return muster;
}

// Connects to a follower and exchanges cards with it.
bool RollCall::greet(Follower& follower, int local_rank) const {
  if (follower.socket < 0) follower.socket = connect_at(kSocketKind, name_of(local_rank));
  const Card mine = own_card(false);
  Card card = {};
  const bool valid = follower.socket >= 0 && send_message(follower.socket, &mine, sizeof mine) &&
                     receive_message(follower.socket, &card, sizeof card) && card.magic == kMagic &&
                     card.job_key == view_.job_key && card.world_size == view_.size &&
                     card.local_size == view_.local_size && card.local_rank == local_rank &&
                     card.world_rank >= 0 && card.world_rank < view_.size &&
                     card.world_rank != view_.rank;
  if (valid) {
    follower.card = std::make_unique<Card>(card);
  } else {
    close_if_open(&follower.socket);
  }
  return valid;
}

// Finds out who is here and fetches their cards; false when that could not be tried. `*thrifty`:
// there are not enough descriptors for all connections at once, so none stays open.
bool RollCall::call_followers(std::vector<Follower>& followers, bool* thrifty) const {
  const std::uint64_t deadline_ns = now_ns() + absent_limit_ns_;
  for (;;) {
    int missing = 0;
    for (std::size_t i = 1; i < followers.size(); ++i) {
      Follower& follower = followers[i];
      if (!follower.missing) continue;
      follower.socket = connect_at(kSocketKind, name_of(static_cast<int>(i)));
      if (follower.socket < 0 && (errno == EMFILE || errno == ENFILE) && !*thrifty) {
        *thrifty = true;
        for (Follower& other : followers) close_if_open(&other.socket);
        follower.socket = connect_at(kSocketKind, name_of(static_cast<int>(i)));
      }
      if (follower.socket >= 0) {
        follower.missing = false;
        if (*thrifty) close_if_open(&follower.socket);
        continue;
      }
      if (errno != ECONNREFUSED && errno != EAGAIN) return false;
      ++missing;
    }
    if (missing == 0 || now_ns() > deadline_ns) break;
    usleep(kRetryMicroseconds);
  }
  for (std::size_t i = 1; i < followers.size(); ++i) {
    Follower& follower = followers[i];
    if (follower.missing) continue;
    follower.missing = !greet(follower, static_cast<int>(i));
    if (*thrifty) close_if_open(&follower.socket);
  }
  return true;
}

std::string RollCall::names_of_missing(const std::vector<Follower>& followers) const {
  std::string names;
  int listed = 0;
  const auto add = [&](const std::string& name) {
    if (++listed > 8) return;
    names += (names.empty() ? "" : ", ") + name;
  };
  if (view_.whole_job_is_local()) {
    std::vector<bool> here(static_cast<std::size_t>(view_.size), false);
    here[static_cast<std::size_t>(view_.rank)] = true;
    for (const Follower& follower : followers) {
      if (follower.card) here[static_cast<std::size_t>(follower.card->world_rank)] = true;
    }
    for (std::size_t rank = 0; rank < here.size(); ++rank) {
      if (!here[rank]) add("rank " + std::to_string(rank));
    }
  } else {
    for (std::size_t i = 1; i < followers.size(); ++i) {
      if (followers[i].missing) add("local rank " + std::to_string(i));
    }
  }
  if (listed > 8) names += " and " + std::to_string(listed - 8) + " others";
  return names.empty() ? names : names + " on " + this_host();
}

Muster RollCall::judge(const std::vector<Follower>& followers, Board* board) const {
  Muster muster;
  const bool several_nodes = !view_.whole_job_is_local();
  const bool shared = !several_nodes || (board != nullptr && board->usable());
  std::string names = names_of_missing(followers);
  if (!names.empty()) muster.missing = names + " without Overdrive";
  const auto also = [&](const std::string& what) {
    muster.missing += (muster.missing.empty() ? "" : "; ") + what;
  };
  std::vector<bool> seen(static_cast<std::size_t>(view_.size), false);
  seen[static_cast<std::size_t>(view_.rank)] = true;
  for (const Follower& follower : followers) {
    if (!follower.card) continue;
    const auto rank = static_cast<std::size_t>(follower.card->world_rank);
    if (follower.card->build != build_) {
      also("rank " + std::to_string(rank) + " on " + this_host() + " with another build (" +
           std::string(follower.card->version, strnlen(follower.card->version, 31)) + ", rank " +
           std::to_string(view_.rank) + " has " + version_ + ")");
    }
    if (several_nodes && shared && follower.card->on_board == 0) {
      also("rank " + std::to_string(rank) + " on " + this_host() +
           " has no access to the launcher's key-value store");
    }
    if (seen[rank]) also("two processes claim to be rank " + std::to_string(rank));
    seen[rank] = true;
  }
  if (several_nodes && shared) {
    int more = 0;
    for (std::size_t rank = 0; rank < seen.size(); ++rank) {
      if (seen[rank]) continue;
      const std::optional<std::uint64_t> build = board->look_up(static_cast<int>(rank));
      // One leader says it for the whole job.
      if (build && static_cast<int>(rank) < view_.rank) muster.speaks = false;
      if (build && *build == build_) continue;
      if (++more > 8) continue;
      also("rank " + std::to_string(rank) + (build ? " with another build" : " without Overdrive"));
    }
    if (more > 8) also(std::to_string(more - 8) + " others");
  }
  if (!muster.missing.empty()) {
    muster.attendance = shared ? Attendance::incomplete : Attendance::unspeakable;
  } else {
    muster.attendance = shared ? Attendance::everybody : Attendance::unknown;
  }
  return muster;
}

Muster RollCall::lead(Board* board) {
  std::vector<Follower> followers(static_cast<std::size_t>(view_.local_size));
  followers[0].missing = false;
  Muster muster;
  bool thrifty = false;
  if (call_followers(followers, &thrifty)) {
    muster = judge(followers, board);
  } else {
    muster.missing = std::string("no connection: ") + std::strerror(errno);
  }
  const bool with_star =
      muster.attendance == Attendance::everybody && view_.whole_job_is_local() && !thrifty;
  Verdict verdict = {};
  verdict.magic = kMagic;
  verdict.attendance = static_cast<std::uint32_t>(muster.attendance);
  verdict.with_star = with_star ? 1 : 0;
  std::snprintf(verdict.missing, sizeof verdict.missing, "%s", muster.missing.c_str());
  std::vector<int> sockets(static_cast<std::size_t>(view_.size), -1);
  for (std::size_t i = 1; i < followers.size(); ++i) {
    Follower& follower = followers[i];
    if (follower.card == nullptr) continue;
    if (thrifty) greet(follower, static_cast<int>(i));
    if (follower.socket < 0) continue;
    send_message(follower.socket, &verdict, sizeof verdict);
    if (with_star) {
      sockets[static_cast<std::size_t>(follower.card->world_rank)] = follower.socket;
    } else {
      close_if_open(&follower.socket);
    }
  }
  if (with_star) muster.star = std::make_unique<Star>(view_.rank, view_.rank, std::move(sockets));
  return muster;
}

// Everybody who is here finds the same, and keeps its socket: the lowest of them says it.
void RollCall::leaderless(Muster& muster) const {
  muster.attendance = Attendance::incomplete;
  std::string names;
  for (int i = 0; i < view_.local_size; ++i) {
    if (i == view_.local_rank) continue;
    int other = connect_at(kSocketKind, name_of(i));
    if (other < 0) {
      names += (names.empty() ? "" : ", ") +
               std::string(view_.whole_job_is_local() ? "rank " : "local rank ") +
               std::to_string(i);
    } else if (i < view_.local_rank) {
      muster.speaks = false;
    }
    close_if_open(&other);
  }
  muster.missing = names + " on " + this_host() + " without Overdrive";
}

Muster RollCall::follow(Board* board) {
  Muster muster;
  const std::uint64_t deadline_ns = now_ns() + absent_limit_ns_;
  // Never answered; tells that the leader is there, and by its end that it is not any more.
  int leader = -1;
  while ((leader = connect_at(kSocketKind, name_of(0))) < 0) {
    if (errno != ECONNREFUSED && errno != EAGAIN) {
      muster.missing = std::string("no connection: ") + std::strerror(errno);
      return muster;
    }
    if (now_ns() > deadline_ns) {
      leaderless(muster);
      if (!view_.whole_job_is_local() && (board == nullptr || !board->usable())) {
        muster.attendance = Attendance::unspeakable;
      }
      return muster;
    }
    usleep(kRetryMicroseconds);
  }
  int socket = -1;
  for (;;) {
    pollfd pollers[2] = {{listener_, POLLIN, 0}, {leader, POLLIN, 0}};
    poll(pollers, 2, -1);
    if (pollers[0].revents != 0) {
      socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      Card card = {};
      const Card mine = own_card(board != nullptr && board->usable());
      Verdict verdict = {};
      if (socket >= 0 && same_user(socket) && receive_message(socket, &card, sizeof card) &&
          card.magic == kMagic && card.job_key == view_.job_key && card.world_size == view_.size &&
          card.local_rank == 0 && send_message(socket, &mine, sizeof mine) &&
          receive_message(socket, &verdict, sizeof verdict) && verdict.magic == kMagic) {
        muster.attendance = static_cast<Attendance>(verdict.attendance);
        muster.speaks = false;
        muster.missing.assign(verdict.missing, strnlen(verdict.missing, sizeof verdict.missing));
        if (verdict.with_star != 0) {
          std::vector<int> sockets(static_cast<std::size_t>(view_.size), -1);
          sockets[static_cast<std::size_t>(card.world_rank)] = std::exchange(socket, -1);
          muster.star = std::make_unique<Star>(view_.rank, card.world_rank, std::move(sockets));
        }
        close_if_open(&socket);
        break;
      }
      close_if_open(&socket);  // somebody who only looked whether we are here
      continue;
    }
    if ((pollers[1].revents & (POLLHUP | POLLERR)) != 0) {
      // Gone without a word: it could not call us, or has died.
      muster.missing = "the first rank on " + this_host() + " did not call this one";
      break;
    }
  }
  close_if_open(&leader);
  return muster;
}

}  // namespace od::node
