// Sockets by which the processes of a node find each other: named, but not in a file system, so
// that nothing is left behind; of the same user only.
#ifndef OVERDRIVE_NODE_LOCAL_SOCKET_H_
#define OVERDRIVE_NODE_LOCAL_SOCKET_H_

#include <cstdint>

namespace od::node {

// A listening socket of sequenced packets, non-blocking, or -1 (errno says why). `kind` keeps the
// names of different purposes apart.
int listen_at(const char* kind, std::uint64_t name);

// A non-blocking connection, or -1: errno is ECONNREFUSED when nobody listens, EAGAIN when the
// listener's queue is full for the moment, EACCES when the listener is another user's.
int connect_at(const char* kind, std::uint64_t name);

// Whether the other end is a process of this user.
bool same_user(int socket);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_LOCAL_SOCKET_H_
