// Abstract addresses and credentials.
#include "node/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

namespace od::node {
namespace {

int new_socket() { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

socklen_t abstract_address(const char* kind, std::uint64_t name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  // A leading zero byte: the name is not in a file system and vanishes with the socket.
  const int length =
      std::snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "overdrive-%s%016llx",
                    kind, static_cast<unsigned long long>(name));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                static_cast<std::size_t>(length));
}

int close_with(int socket, int error) {
  close(socket);
  errno = error;
  return -1;
}

}  // namespace

int listen_at(const char* kind, std::uint64_t name) {
  const int socket = new_socket();
  if (socket < 0) return -1;
  sockaddr_un address;
  const socklen_t length = abstract_address(kind, name, &address);
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(socket, SOMAXCONN) != 0) {
    return close_with(socket, errno);
  }
  return socket;
}

int connect_at(const char* kind, std::uint64_t name) {
  const int socket = new_socket();
  if (socket < 0) return -1;
  sockaddr_un address;
  const socklen_t length = abstract_address(kind, name, &address);
  int result = 0;
  do {
    result = connect(socket, reinterpret_cast<sockaddr*>(&address), length);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return close_with(socket, errno);
  return same_user(socket) ? socket : close_with(socket, EACCES);
}

bool same_user(int socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace od::node
