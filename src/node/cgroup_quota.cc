// Reads cpu.max (control groups version 2) or cpu.cfs_quota_us (version 1) of every ancestor.
#include "node/cgroup_quota.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace od::node {
namespace {

// The beginning of a small file, empty when it cannot be read.
std::string read_small_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[4096];
  const ssize_t bytes = read(fd, text, sizeof text);
  close(fd);
  return bytes > 0 ? std::string(text, static_cast<std::size_t>(bytes)) : std::string();
}

// Millicores from "quota period" in microseconds; 0 for "max", -1 or nonsense.
std::uint32_t millicores(const std::string& quota, const std::string& period) {
  const long long quota_us = std::atoll(quota.c_str());
  const long long period_us = std::atoll(period.c_str());
  if (quota_us <= 0 || period_us <= 0) return 0;
  const long long result = quota_us * 1000 / period_us;
  return result > UINT32_MAX ? 0 : static_cast<std::uint32_t>(result > 0 ? result : 1);
}

std::uint32_t limit_of_directory(const std::string& directory) {
  std::istringstream version2(read_small_file(directory + "/cpu.max"));
  std::string quota;
  std::string period;
  if (version2 >> quota >> period) return millicores(quota, period);
  return millicores(read_small_file(directory + "/cpu.cfs_quota_us"),
                    read_small_file(directory + "/cpu.cfs_period_us"));
}

void consider(const std::string& mount, std::string path, CgroupQuota* lowest) {
  for (;;) {
    const std::string directory = mount + path;
    const std::uint32_t limit = limit_of_directory(directory);
    if (limit != 0 && (lowest->millicores == 0 || limit < lowest->millicores)) {
      struct stat status = {};
      stat(directory.c_str(), &status);
      *lowest = {.group = status.st_ino, .millicores = limit};
    }
    const std::size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

}  // namespace

CgroupQuota cgroup_quota(const std::string& root, const std::string& membership) {
  CgroupQuota lowest;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    // hierarchy:controllers:path
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers == ",,") {
      consider(root, path, &lowest);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      consider(root + "/cpu", path, &lowest);
    }
  }
  return lowest;
}

CgroupQuota cgroup_quota_of_this_process() {
  return cgroup_quota("/sys/fs/cgroup", read_small_file("/proc/self/cgroup"));
}

}  // namespace od::node
