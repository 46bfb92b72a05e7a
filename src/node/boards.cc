// Both protocols as far as they are needed: to leave one number, and to look up others.
//
// PMI 1 is a text protocol of one line each way, "cmd=get kvsname=... key=...". Process managers
// keep what is put with them until the ranks' next barrier, which the host makes in MPI_Init, and
// they answer a look-up at once, also of what is not there.
// PMIx collects what was put before the host's fence in MPI_Init. Not everywhere does that fence
// bring it to all nodes (that of Open MPI 5 brings it to some); then the other node has to be
// asked, which takes the whole of a time limit where there is nothing. The structures below are
// those of its ABI, in which they do not change.
#include "node/boards.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "node/identity.h"

namespace od::node {
namespace {

constexpr char kKey[] = "overdrive.build";
// A process manager with thousands of processes may take its time; beyond this it does not answer.
constexpr int kAnswerLimitMs = 5000;

const char* variable(const char* const* environment, std::string_view name) {
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return *environment + name.size() + 1;
    }
  }
  return nullptr;
}

// The value of `name=` in an answer.
std::string field(const std::string& answer, std::string_view name) {
  std::size_t at = 0;
  while (at < answer.size()) {
    const std::size_t end = std::min(answer.find_first_of(" \n", at), answer.size());
    const std::string_view word = std::string_view(answer).substr(at, end - at);
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
      return std::string(word.substr(name.size() + 1));
    }
    at = end + 1;
  }
  return {};
}

bool succeeded(const std::string& answer) { return field(answer, "rc") == "0"; }

}  // namespace

HydraManager::HydraManager(const char* const* environment) {
  const char* const fd = variable(environment, "PMI_FD");
  // What of all process managers with PMI only Hydra and its descendants say.
  const bool hydra = variable(environment, "MPI_LOCALNRANKS") != nullptr;
  // Which protocol is spoken is the host's choice; only the usual one is known here.
  const bool other_protocol = variable(environment, "MPIR_CVAR_PMI_VERSION") != nullptr ||
                              variable(environment, "PMI_VERSION") != nullptr;
  if (fd == nullptr || !hydra || other_protocol) return;
  const char* const end = fd + std::strlen(fd);
  if (std::from_chars(fd, end, fd_).ptr != end || fd_ < 0) return;
  std::string answer;
  if (!ask("cmd=init pmi_version=1 pmi_subversion=1\n", &answer) || !succeeded(answer)) return;
  if (!ask("cmd=get_my_kvsname\n", &answer)) return;
  space_ = field(answer, "kvsname");
}

bool HydraManager::ask(const std::string& question, std::string* answer) const {
  answer->clear();
  if (send(fd_, question.data(), question.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(question.size())) {
    return false;
  }
  while (answer->empty() || answer->back() != '\n') {
    pollfd poller = {fd_, POLLIN, 0};
    if (poll(&poller, 1, kAnswerLimitMs) != 1) return false;
    char text[512];
    const ssize_t bytes = recv(fd_, text, sizeof text, MSG_DONTWAIT);
    if (bytes <= 0 || answer->size() > 4096) return false;
    answer->append(text, static_cast<std::size_t>(bytes));
  }
  return true;
}

void tell_spawned_apart(const char* const* environment, LaunchView& view) {
  if (!view.known || view.local_size < 2 || variable(environment, "PMI_SPAWNED") == nullptr) return;
  const HydraManager manager(environment);
  for (const char c : manager.space()) {
    view.job_key = mix_hash(view.job_key, static_cast<unsigned char>(c));
  }
  view.known = !manager.space().empty();
}

HydraBoard::HydraBoard(const char* const* environment, int rank, std::uint64_t build)
    : manager_(environment) {
  if (manager_.space().empty()) return;
  std::string answer;
  usable_ = manager_.ask("cmd=put kvsname=" + manager_.space() + " key=" + kKey + "." +
                             std::to_string(rank) + " value=" + std::to_string(build) + "\n",
                         &answer) &&
            succeeded(answer);
}

std::optional<std::uint64_t> HydraBoard::look_up(int rank) {
  std::string answer;
  if (!manager_.ask("cmd=get kvsname=" + manager_.space() + " key=" + kKey + "." +
                        std::to_string(rank) + "\n",
                    &answer) ||
      !succeeded(answer)) {
    return std::nullopt;
  }
  const std::string text = field(answer, "value");
  std::uint64_t build = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), build);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return build;
}

namespace {

struct PmixProcess {
  char job[256];
  std::uint32_t rank;
};

struct PmixValue {
  std::uint16_t type;
  union {
    bool flag;
    std::uint64_t number;
    char others[48];
  };
};

struct PmixInfo {
  char key[512];
  std::uint32_t flags;
  PmixValue value;
};

constexpr std::uint16_t kPmixBool = 1;
constexpr std::uint16_t kPmixInt = 6;
constexpr std::uint16_t kPmixUint64 = 15;
constexpr unsigned char kPmixGlobal = 3;

}  // namespace

PmixBoard::PmixBoard(const char* const* environment, std::uint64_t build) : build_(build) {
  if (const char* const job = variable(environment, "PMIX_NAMESPACE")) job_ = job;
}

void PmixBoard::publish(Put put, Get get) {
  if (job_.empty() || put == nullptr || get == nullptr || published_) return;
  PmixValue value = {};
  value.type = kPmixUint64;
  value.number = build_;
  get_ = get;
  published_ = put(kPmixGlobal, kKey, &value) == 0;
}

std::optional<std::uint64_t> PmixBoard::look_up(int rank) {
  std::optional<std::uint64_t> build = ask(rank, true);
  // One absent rank decides for all: the limit passes once.
  if (build || gave_up_) return build;
  build = ask(rank, false);
  gave_up_ = !build;
  return build;
}

std::optional<std::uint64_t> PmixBoard::ask(int rank, bool at_once) const {
  PmixProcess process = {};
  std::snprintf(process.job, sizeof process.job, "%s", job_.c_str());
  process.rank = static_cast<std::uint32_t>(rank);
  // Answers at once, also when nothing is known on this node; or waits for the other one.
  PmixInfo info = {};
  std::snprintf(info.key, sizeof info.key, "%s", at_once ? "pmix.immediate" : "pmix.timeout");
  info.value.type = at_once ? kPmixBool : kPmixInt;
  if (at_once) {
    info.value.flag = true;
  } else {
    info.value.number = kAnswerLimitMs / 1000;
  }
  void* found = nullptr;
  if (get_(&process, kKey, &info, 1, &found) != 0 || found == nullptr) return std::nullopt;
  const auto* const value = static_cast<const PmixValue*>(found);
  std::optional<std::uint64_t> build;
  if (value->type == kPmixUint64) build = value->number;
  std::free(found);
  return build;
}

}  // namespace od::node
