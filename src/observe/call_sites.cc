// Finds modules by the dynamic linker's list, and names by addr2line.
#include "observe/call_sites.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/json_text.h"

namespace od::observe {
namespace {

// What fits a screen; the files of ranks hold all.
constexpr std::size_t kMostShown = 20;
constexpr std::size_t kMostRanksShown = 16;
// addr2line reads all debugging information of a module: seconds for large ones. Longer than this
// MPI_Finalize does not wait for a report.
constexpr int kMostMilliseconds = 5000;

std::string own_path() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : std::string();
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void copy_text(char* target, std::size_t size, const std::string& text) {
  const std::size_t length = std::min(size - 1, text.size());
  std::memcpy(target, text.data(), length);
  target[length] = '\0';
}

bool same_place(const CallSite& a, const CallSite& b) {
  return a.offset == b.offset && std::strcmp(a.function, b.function) == 0 &&
         std::strcmp(a.module, b.module) == 0;
}

void longest_first(std::vector<CallSite>& sites) {
  std::sort(sites.begin(), sites.end(), [](const CallSite& a, const CallSite& b) {
    if (a.ns != b.ns) return a.ns > b.ns;
    const int order = std::strcmp(a.function, b.function);
    return order != 0 ? order < 0 : a.offset < b.offset;
  });
}

// Paths of the loaded modules by their file names.
std::map<std::string, std::string> module_paths() {
  std::map<std::string, std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const std::string path = info->dlpi_name[0] == '\0' ? own_path() : info->dlpi_name;
        static_cast<std::map<std::string, std::string>*>(data)->emplace(base_name(path), path);
        return 0;
      },
      &paths);
  return paths;
}

std::uint64_t now_ms() { return now_ns() / 1'000'000; }

// What a program prints, at most for the given time; it then ends. Without our library in it.
std::string output_of(std::vector<std::string> words, int milliseconds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int error =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  const std::uint64_t limit = now_ms() + static_cast<std::uint64_t>(std::max(0, milliseconds));
  while (error == 0) {
    const std::uint64_t now = now_ms();
    pollfd waited{ends[0], POLLIN, 0};
    char block[4096];
    if (now >= limit || poll(&waited, 1, static_cast<int>(limit - now)) <= 0) {
      kill(child, SIGKILL);
      text.clear();
      break;
    }
    const ssize_t got = read(ends[0], block, sizeof block);
    if (got <= 0) break;
    text.append(block, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  // A program that ignores its children has none to wait for.
  if (error == 0) waitpid(child, &status, 0);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// "solve at solver.c:42" from the two lines of addr2line, or nothing.
std::string place_text(const std::string& function, const std::string& line) {
  const std::string file = base_name(line.substr(0, line.find(" (discriminator")));
  const bool known_line = !file.empty() && file[0] != '?';
  if (function.empty() || function == "??") return known_line ? file : std::string();
  return known_line ? function + " at " + file : function;
}

double ms(std::uint64_t ns) { return static_cast<double>(ns) * 1e-6; }
double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

CallSite site_of(const char* function, std::uintptr_t address) {
  CallSite site;
  copy_text(site.function, sizeof site.function, function);
  site.address = address;
  Dl_info info{};
  link_map* map = nullptr;
  // One less: the call itself, where it is the last instruction of a function.
  const auto* place = reinterpret_cast<const void*>(address - 1);
  if (address != 0 && dladdr1(place, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0) {
    const std::string path = map->l_name[0] == '\0' ? own_path() : map->l_name;
    copy_text(site.module, sizeof site.module, base_name(path));
    site.offset = address - map->l_addr;
  } else if (address != 0) {
    // Code made at run time.
    copy_text(site.module, sizeof site.module, "?");
    site.offset = address;
  }
  return site;
}

std::vector<CallSite> call_sites(std::span<const CallTime> times, const char* const* names) {
  std::vector<CallSite> sites;
  for (const CallTime& time : times) {
    CallSite& site = sites.emplace_back(site_of(names[time.function], time.address));
    site.calls = time.calls;
    site.ns = time.ns;
    site.longest_ns = time.longest_ns;
  }
  longest_first(sites);
  return sites;
}

std::vector<CallSite> join_sites(std::span<const CallSite> all) {
  std::vector<CallSite> sites(all.begin(), all.end());
  std::erase_if(sites, [](const CallSite& site) { return site.calls == 0; });
  const auto before = [](const CallSite& a, const CallSite& b) {
    if (a.offset != b.offset) return a.offset < b.offset;
    const int order = std::strcmp(a.function, b.function);
    return order != 0 ? order < 0 : std::strcmp(a.module, b.module) < 0;
  };
  std::vector<CallSite> joined = add_equal(std::move(sites), before, same_place);
  longest_first(joined);
  return joined;
}

std::vector<std::string> describe_sites(std::span<const CallSite> sites) {
  std::vector<std::string> texts(sites.size());
  const std::map<std::string, std::string> paths = module_paths();
  std::map<std::string, std::vector<std::size_t>> of_module;
  for (std::size_t i = 0; i < sites.size(); ++i) of_module[sites[i].module].push_back(i);
  const std::uint64_t begin_ms = now_ms();
  for (const auto& [module, members] : of_module) {
    const auto path = paths.find(module);
    std::vector<std::string> found;
    if (path != paths.end()) {
      std::vector<std::string> words = {"addr2line", "-f", "-C", "-e", path->second};
      for (const std::size_t i : members) words.push_back(hex(sites[i].offset - 1));
      found = lines_of(output_of(words, kMostMilliseconds - static_cast<int>(now_ms() - begin_ms)));
    }
    for (std::size_t n = 0; n < members.size(); ++n) {
      const CallSite& site = sites[members[n]];
      std::string& text = texts[members[n]];
      if (module.empty()) {
        text = "(places without room in the table)";
        continue;
      }
      const std::string place =
          found.size() == 2 * members.size() ? place_text(found[2 * n], found[2 * n + 1]) : "";
      const std::string address = module + '+' + hex(site.offset);
      text = place.empty() ? address : place + " (" + address + ')';
    }
  }
  return texts;
}

std::string call_table(std::span<const RankTime> ranks, std::span<const CallSite> sites) {
  RankTime total;
  const auto part = [](const RankTime& rank) { return share(rank.mpi_ns, rank.elapsed_ns); };
  for (const RankTime& rank : ranks) {
    total.mpi_ns += rank.mpi_ns;
    total.elapsed_ns += rank.elapsed_ns;
  }
  if (total.mpi_ns == 0) return {};
  const auto less = [&](const RankTime& a, const RankTime& b) { return part(a) < part(b); };
  const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end(), less);
  char line[512];
  std::snprintf(line, sizeof line,
                " time in MPI: %.3f s of %.3f s of all ranks (%.1f %%), from %.1f %% (rank %d) to "
                "%.1f %% (rank %d)\n",
                ms(total.mpi_ns) * 1e-3, ms(total.elapsed_ns) * 1e-3, part(total), part(*least),
                static_cast<int>(least - ranks.begin()), part(*most),
                static_cast<int>(most - ranks.begin()));
  std::string text = line;
  for (std::size_t i = 0; ranks.size() <= kMostRanksShown && i < ranks.size(); ++i) {
    std::snprintf(line, sizeof line, "  rank %-4zu %10.3f s %6.1f %%\n", i,
                  ms(ranks[i].mpi_ns) * 1e-3, part(ranks[i]));
    text += line;
  }
  const std::span<const CallSite> shown = sites.first(std::min(kMostShown, sites.size()));
  const std::vector<std::string> places = describe_sites(shown);
  std::snprintf(line, sizeof line,
                " call sites, longest first\n  %-24s %12s %12s %7s %12s %12s  %s\n", "", "calls",
                "ms", "% MPI", "mean us", "longest us", "place");
  text += line;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const CallSite& site = shown[i];
    std::snprintf(line, sizeof line, "  %-24s %12llu %12.3f %7.1f %12.2f %12.1f  ", site.function,
                  static_cast<unsigned long long>(site.calls), ms(site.ns),
                  share(site.ns, total.mpi_ns), ms(site.ns) * 1e3 / static_cast<double>(site.calls),
                  ms(site.longest_ns) * 1e3);
    text += line + places[i] + '\n';
  }
  if (sites.size() > shown.size()) {
    std::snprintf(line, sizeof line, "  and %zu others\n", sites.size() - shown.size());
    text += line;
  }
  return text;
}

std::string call_json(std::span<const CallSite> sites, std::span<const std::string> places) {
  JsonWriter json;
  json.open_array();
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const CallSite& site = sites[i];
    json.open_object();
    if (i < places.size()) json.member("place", places[i]);
    json.member("function", site.function);
    json.member("module", site.module);
    json.member("offset", site.offset);
    json.member("calls", site.calls);
    json.member("ns", site.ns);
    json.member("longest_ns", site.longest_ns);
    json.close_object();
  }
  json.close_array();
  return json.take();
}

}  // namespace od::observe
