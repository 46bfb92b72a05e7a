// Hands the descriptors of all regions of a node to all its ranks, through a star of sockets.
//
// The lowest rank that has a socket and room for everybody's descriptors is the leader. Everybody
// else connects to its abstract socket, sends its own descriptors (SCM_RIGHTS) and receives those
// of all others in batches. The socket is opened before the exchange in which its name is told, so
// nobody has to wait for it to appear. Both sides check the other's credentials, and a hello must
// show the leader's nonce, which only the job knows. All waits are bounded; whoever is missing at
// the end is simply not delivered.
#ifndef OVERDRIVE_NODE_HANDOVER_H_
#define OVERDRIVE_NODE_HANDOVER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "node/identity.h"

namespace od::node {

// A listening socket with a random name, or -1. Nobody but this user can get anything from it.
int open_listener(std::uint64_t socket_name);

struct Handover {
  const std::vector<Identity>* group = nullptr;  // by position
  int me = 0;                                    // position of this process
  int listener = -1;                             // its open_listener(); closed by run_handover()
  int memfd = -1;                                // what it hands out; -1: nothing
  int pidfd = -1;                                // its own pidfd, or -1
  int reach = -1;                                // its reach file, or -1
  // Called once per descriptor that arrives; the callee owns it.
  std::function<void(int position, int memfd)> deliver_memory;
  std::function<void(int position, int pidfd)> deliver_process;
  std::function<void(int position, int reach)> deliver_reach;
};

// Position of the leader, or -1 when nobody can be; equal on all ranks.
int handover_leader(const std::vector<Identity>& group);

void run_handover(const Handover& handover);

// Opens a peer's descriptor number `fd`, its memfd or its reach file, through /proc; -1 when pid
// namespaces differ or the kernel refuses.
int open_through_proc(const Identity& me, const Identity& peer, int fd);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_HANDOVER_H_
