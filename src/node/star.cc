// Everybody sends to the centre and then receives what the centre has from all.
//
// No deadlock: a rank sends all of its part before it receives anything, and the centre receives
// all parts before it sends.
#include "node/star.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace od::node {
namespace {

// Well below the default size of a socket's buffer.
constexpr std::size_t kPacketBytes = 32 << 10;

// Waits until the socket is ready or at its end.
void await(int socket, short events) {
  pollfd poller = {socket, events, 0};
  poll(&poller, 1, -1);
}

bool send_all(int socket, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, kPacketBytes);
    const ssize_t sent = send(socket, data, part, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(part)) {
      data += part;
      bytes -= part;
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
      await(socket, POLLOUT);
    } else if (sent >= 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool receive_all(int socket, char* data, std::size_t bytes) {
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, kPacketBytes);
    const ssize_t received = recv(socket, data, part, MSG_DONTWAIT);
    if (received == static_cast<ssize_t>(part)) {
      data += part;
      bytes -= part;
    } else if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      await(socket, POLLIN);
    } else if (received >= 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

Star::Star(int rank, int centre, std::vector<int> sockets)
    : rank_(rank), centre_(centre), sockets_(std::move(sockets)) {}

Star::~Star() {
  for (const int socket : sockets_) {
    if (socket >= 0) close(socket);
  }
}

int Star::allgather(const void* send, void* recv, std::size_t bytes_per_rank) {
  char* const all = static_cast<char*>(recv);
  if (!centre()) {
    const int socket = sockets_[static_cast<std::size_t>(centre_)];
    const bool done = send_all(socket, static_cast<const char*>(send), bytes_per_rank) &&
                      receive_all(socket, all, bytes_per_rank * sockets_.size());
    return done ? 0 : -1;
  }
  for (std::size_t rank = 0; rank < sockets_.size(); ++rank) {
    char* const part = all + rank * bytes_per_rank;
    if (static_cast<int>(rank) == rank_) {
      std::memcpy(part, send, bytes_per_rank);
    } else if (!receive_all(sockets_[rank], part, bytes_per_rank)) {
      return -1;
    }
  }
  for (const int socket : sockets_) {
    if (socket >= 0 && !send_all(socket, all, bytes_per_rank * sockets_.size())) return -1;
  }
  return 0;
}

int Star::broadcast(void* data, std::size_t bytes) {
  auto* const bytes_of = static_cast<char*>(data);
  if (!centre()) {
    const int socket = sockets_[static_cast<std::size_t>(centre_)];
    if (rank_ == 0) return send_all(socket, bytes_of, bytes) ? 0 : -1;
    return receive_all(socket, bytes_of, bytes) ? 0 : -1;
  }
  if (rank_ != 0 && !receive_all(sockets_[0], bytes_of, bytes)) return -1;
  for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
    if (sockets_[rank] >= 0 && !send_all(sockets_[rank], bytes_of, bytes)) return -1;
  }
  return 0;
}

int Star::barrier() {
  const char mine = 0;
  std::vector<char> all(sockets_.size());
  return allgather(&mine, all.data(), 1);
}

}  // namespace od::node
