// Path `kernel`: the receiver reads the sender's buffer with process_vm_readv.
//
// Where the first attempt is refused the peer is read this way never again.

#include <errno.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "memory/copy.h"
#include "observe/log.h"
#include "p2p/delivery.h"
#include "p2p/links.h"
#include "p2p/path/rows.h"
#include "p2p/path/side.h"
#include "p2p/payload.h"

namespace od::p2p {

bool kernel_offer(Links& links, std::uint32_t peer, const Payload& payload, std::uint64_t,
                  std::uint64_t* source_address) {
  if (!links[peer].offer_worthwhile()) return false;
  *source_address = reinterpret_cast<std::uintptr_t>(payload.contiguous);
  return true;
}

bool kernel_readable(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor&, DirectRead*) {
  return !side.links[peer].kernel_refused;
}

bool kernel_read(ReceiveSide& side, std::uint32_t peer, const StreamDescriptor& descriptor,
                 Request& receive, DirectRead* read) {
  const std::uint64_t limit = std::min(descriptor.bytes, static_cast<std::uint64_t>(receive.bytes));
  const std::uint64_t wanted = side.verify ? descriptor.bytes : limit;
  char* to = nullptr;
  std::unique_ptr<char[]> aside;
  if (wanted > limit || !is_contiguous(*receive.layout, receive.address, receive.count, &to)) {
    aside.reset(new (std::nothrow) char[wanted]);
    if (aside == nullptr) return false;
    to = aside.get();
  }
  Link& link = side.links[peer];
  const node::Member& member = side.links.node().member(static_cast<int>(peer));
  // Without a start time in our /proc the number may mean another process here.
  if (member.start_time == 0) {
    link.kernel_refused = true;
    return false;
  }
  const auto pid = static_cast<pid_t>(member.pid);
  std::uint64_t position = 0;
  while (position < wanted) {
    iovec local{to + position, wanted - position};
    iovec remote{reinterpret_cast<void*>(descriptor.source_address + position), wanted - position};
    const ssize_t moved = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (moved <= 0) {
      link.kernel_refused = true;
      OD_LOG_ONCE(Level::kInfo,
                  "reading another process through the kernel is not permitted (%s); messages take "
                  "shared cells instead",
                  std::strerror(moved < 0 ? errno : EFAULT));
      return false;
    }
    position += static_cast<std::uint64_t>(moved);
  }
  if (side.verify) read->checksum = memory::checksum_update(memory::kChecksumStart, to, wanted);
  read->delivered = aside != nullptr ? side.delivery.deliver(aside.get(), descriptor.bytes, receive)
                                     : host::kSuccess;
  ++side.counters.receives_kernel;
  return true;
}

}  // namespace od::p2p
