// Reads control-group quotas and weighs the shares of a node's ranks against each other.
#include "topology/cpu_share.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <vector>

#include "topology/system_file.h"

namespace od::topology {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

bool has_word(std::string_view list, std::string_view word) {
  const auto words = split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// mountinfo writes blanks, tabs, line breaks and backslashes as three octal digits.
std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 4], code, 8).ptr == &text[i + 4]) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct Hierarchy {
  std::string mount_point;
  std::string mount_root;  // the group that is visible at the mount point
  std::string group;       // the process's group
  bool version2 = false;
};

// The hierarchies that can limit processors: those with the cpu controller and the unified one.
std::vector<Hierarchy> find_hierarchies(const std::string& root) {
  std::string group_v1;
  std::string group_v2;
  const std::string groups = read_system_file(root + "/proc/self/cgroup");
  for (const std::string_view line : split(groups, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) group_v2 = line.substr(second + 1);
    if (has_word(controllers, "cpu")) group_v1 = line.substr(second + 1);
  }
  std::vector<Hierarchy> found;
  const std::string mounts = read_system_file(root + "/proc/self/mountinfo");
  for (const std::string_view line : split(mounts, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    const auto left = split(line.substr(0, dash), ' ');
    const auto right = split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool version2 = right[0] == "cgroup2";
    if (!version2 && !(right[0] == "cgroup" && has_word(right[2], "cpu"))) continue;
    const std::string& group = version2 ? group_v2 : group_v1;
    if (group.empty()) continue;
    found.push_back({unescape(left[4]), unescape(left[3]), group, version2});
  }
  return found;
}

bool read_number(std::string_view text, std::int64_t& number) {
  return std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc{};
}

// Quota of one group in thousandths of a processor, 0 if it has none.
std::uint64_t group_quota(const std::string& directory, bool version2) {
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (version2) {
    const std::string text = read_system_file(directory + "/cpu.max");  // "max 100000"
    const std::size_t blank = text.find(' ');
    if (blank == text.npos || !read_number(text, quota) ||
        !read_number(std::string_view(text).substr(blank + 1), period)) {
      return 0;
    }
  } else if (!read_number(read_system_file(directory + "/cpu.cfs_quota_us"), quota) ||
             !read_number(read_system_file(directory + "/cpu.cfs_period_us"), period)) {
    return 0;
  }
  if (quota <= 0 || period <= 0) return 0;
  return std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(quota) * 1000 / static_cast<std::uint64_t>(period));
}

std::uint64_t directory_identity(const std::string& directory) {
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0) return 1;
  const auto device = static_cast<std::uint64_t>(status.st_dev);
  const auto inode = static_cast<std::uint64_t>(status.st_ino);
  return (device * 0x9E3779B97F4A7C15u ^ inode) | 1;  // never 0, which means "no quota"
}

}  // namespace

CpuQuota read_cpu_quota(const std::string& root) {
  CpuQuota tightest;
  for (const Hierarchy& hierarchy : find_hierarchies(root)) {
    std::string below = hierarchy.group;
    const std::string& visible = hierarchy.mount_root;
    if (visible != "/") {
      // In a container the mount shows a part of the tree only.
      const bool inside = below.compare(0, visible.size(), visible) == 0 &&
                          (below.size() == visible.size() || below[visible.size()] == '/');
      below = inside ? below.substr(visible.size()) : "";
    }
    if (below.find("/..") != below.npos) below.clear();  // a group outside our namespace
    while (!below.empty() && below.back() == '/') below.pop_back();
    while (true) {
      const std::string directory = root + hierarchy.mount_point + below;
      const std::uint64_t quota = group_quota(directory, hierarchy.version2);
      if (quota != 0 && (tightest.milli_cpus == 0 || quota < tightest.milli_cpus)) {
        tightest = {quota, directory_identity(directory)};
      }
      if (below.empty()) break;
      below.resize(below.rfind('/') == below.npos ? 0 : below.rfind('/'));
    }
  }
  return tightest;
}

CpuShare own_cpu_share() { return {own_affinity(), read_cpu_quota()}; }

NodeLoad node_load(std::span<const CpuShare> ranks, int online_cpus) {
  struct Group {
    CpuSet cpus;
    std::uint64_t milli_cpus = 0;
    int ranks = 0;
  };
  CpuSet everything;
  for (int cpu = 0; cpu < online_cpus; ++cpu) everything.add(cpu);
  std::map<std::uint64_t, Group> groups;  // by quota group; 0 = no quota
  CpuSet all;
  for (const CpuShare& share : ranks) {
    const CpuSet& cpus = share.affinity.empty() ? everything : share.affinity;
    Group& group = groups[share.quota.group];
    group.cpus |= cpus;
    group.milli_cpus = share.quota.milli_cpus;
    ++group.ranks;
    all |= cpus;
  }
  NodeLoad load;
  std::uint64_t sum = 0;
  for (const auto& [id, group] : groups) {
    auto usable = static_cast<std::uint64_t>(group.cpus.count());
    // Rounded down: ranks that spin on the last fraction of a processor would be throttled.
    if (id != 0) usable = std::min(usable, std::max<std::uint64_t>(1, group.milli_cpus / 1000));
    if (static_cast<std::uint64_t>(group.ranks) > usable) load.oversubscribed = true;
    sum += usable;
  }
  load.usable_cpus =
      static_cast<int>(std::min(sum, static_cast<std::uint64_t>(std::max(1, all.count()))));
  load.usable_cpus = std::max(1, load.usable_cpus);
  if (static_cast<int>(ranks.size()) > load.usable_cpus) load.oversubscribed = true;
  // Pinned ranks can crowd one processor while others are free.
  std::map<int, int> pinned;
  for (const CpuShare& share : ranks) {
    if (share.affinity.count() == 1 && ++pinned[share.affinity.first()] > 1) {
      load.oversubscribed = true;
    }
  }
  return load;
}

}  // namespace od::topology
