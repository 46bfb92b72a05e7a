// Puts the fingerprint together from /proc, /sys and uname.
#include "topology/fingerprint.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "topology/machine.h"

namespace od::topology {
namespace {

// The first processor's paragraph; the kernel makes the text while it is read, so the rest costs
// nothing.
std::string first_of_cpuinfo(const std::string& root) {
  char text[4096];
  const int fd = open((root + "/proc/cpuinfo").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  const ssize_t got = read(fd, text, sizeof text);
  close(fd);
  return got > 0 ? std::string(text, static_cast<std::size_t>(got)) : std::string();
}

// The value of "key\t: value"; empty if there is none.
std::string value_of(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t colon = line.find(':');
    if (line.substr(0, key.size()) != key || colon == std::string_view::npos) continue;
    if (line.substr(key.size(), colon - key.size()).find_first_not_of(" \t") !=
        std::string_view::npos) {
      continue;
    }
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    if (start == std::string_view::npos) return {};
    return std::string(line.substr(start, line.find_last_not_of(" \t") + 1 - start));
  }
  return {};
}

std::string processor_name(const std::string& root, const utsname& system) {
  const std::string text = first_of_cpuinfo(root);
  std::string name = value_of(text, "model name");
  if (name.empty()) name = value_of(text, "cpu");  // POWER
  if (!name.empty()) return name;
  const std::string implementer = value_of(text, "CPU implementer");
  if (!implementer.empty()) return "ARM " + implementer + ' ' + value_of(text, "CPU part");
  return system.machine;
}

std::string size_text(std::uint64_t bytes) {
  if (bytes % (1u << 20) == 0) return std::to_string(bytes >> 20) + 'M';
  return std::to_string(bytes >> 10) + 'K';
}

}  // namespace

std::string fingerprint(const std::string& root) {
  utsname system{};
  uname(&system);
  std::string text = processor_name(root, system) + "; ";
  // Always the same processor: some machines have several kinds.
  std::string caches;
  for (const Cache& cache : read_cpu(std::max(0, online_cpus(root).first()), root).caches) {
    if (!caches.empty()) caches += ", ";
    caches += 'L' + std::to_string(cache.level) + ' ' + size_text(cache.size_bytes);
  }
  text += caches.empty() ? "caches unknown" : caches;
  text += std::string("; ") + system.sysname + ' ' + system.release;
  text += "; Overdrive " OVERDRIVE_VERSION;
  // It is written into a file between quotes.
  std::erase_if(text, [](unsigned char c) { return c == '"' || c == '\\' || c < ' '; });
  return text;
}

}  // namespace od::topology
