// How much processor time the control groups of this process allow.
#ifndef OVERDRIVE_NODE_CGROUP_QUOTA_H_
#define OVERDRIVE_NODE_CGROUP_QUOTA_H_

#include <cstdint>
#include <string>

namespace od::node {

struct CgroupQuota {
  std::uint64_t group = 0;       // identifies the group whose limit is the lowest
  std::uint32_t millicores = 0;  // 0: no limit
};

// The lowest limit on the way from this process' group to the root. `root` is where the control
// group file systems are mounted, `membership` the text of /proc/self/cgroup.
CgroupQuota cgroup_quota(const std::string& root, const std::string& membership);
CgroupQuota cgroup_quota_of_this_process();

}  // namespace od::node

#endif  // OVERDRIVE_NODE_CGROUP_QUOTA_H_
