// Reads and writes the file; what it says is coll/plan/select/learnt.h.
#include "engine/learnt_file.h"

#include <cstddef>
#include <ctime>
#include <utility>

#include "config/trusted_file.h"
#include "engine/rank_state.h"
#include "observe/log.h"
#include "observe/stats.h"
#include "topology/fingerprint.h"

namespace od {
namespace {

// `Open MPI v4.1.4`, as `overdrive tune` names it.
std::string title(std::string_view host_version) {
  return observe::title_of(host_version.substr(0, host_version.find_first_of(",\n")));
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  char text[16] = "";
  if (gmtime_r(&now, &day) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d", &day);
  return text;
}

}  // namespace

bool keeps_learnt(const config::Settings& settings) {
  return settings.collectives && settings.learn != config::LearnMode::kOff &&
         config::OutputType::names_output(settings.learn_file);
}

LearntFile read_learnt(const std::string& path, std::string_view host_version) {
  constexpr std::size_t kMostBytes = 16 << 20;
  LearntFile read;
  config::FileText file = config::read_trusted_file(path, kMostBytes, config::LastLink::kFollowed);
  if (!file.exists) return read;
  const auto refuse = [&](const std::string& why) {
    read.content = {};
    read.issue = "learn_file " + path + ' ' + why +
                 "; it is neither used nor changed: remove it, or name another one with "
                 "`learn_file`";
  };
  if (!file.text) {
    refuse(file.error);
    return read;
  }
  read.content = coll::parse_tuning(*file.text, path, topology::fingerprint());
  if (read.content.foreign) {
    refuse("was written on another kind of machine, or by another version of Overdrive");
  } else if (!read.content.issues.empty()) {
    refuse("has a mistake: " + read.content.issues.front());
  } else if (read.content.host != title(host_version)) {
    refuse("was written over '" + read.content.host + "', and this is '" + title(host_version) +
           "'");
  } else {
    read.text = std::move(*file.text);
  }
  return read;
}

void keep_learnt(RankState& s) {
  if (s.collectives.learnt == nullptr) return;
  coll::LearntChoices& choices = *s.collectives.learnt;
  if (s.world->collectives != nullptr) s.world->collectives->tell_learnt(choices);
  for (const auto& [pointer, comm] : s.comms) {
    if (comm->collectives != nullptr) comm->collectives->tell_learnt(choices);
  }
  if (choices.empty()) return;
  const std::string& path = s.settings.learn_file;
  const LearntFile earlier = read_learnt(path, s.host.version_text);
  if (!earlier.issue.empty()) {
    // At the start somebody has been told.
    if (!s.collectives.learnt_refused) log(Level::kError, "%s", earlier.issue.c_str());
    return;
  }
  choices.keep(earlier.content);
  const std::string text =
      choices.text(topology::fingerprint(), title(s.host.version_text), today());
  const std::string error = config::replace_file(path, text);
  if (error.empty()) return;
  log(Level::kError, "learn_file %s cannot be written: %s; what was learnt is lost", path.c_str(),
      error.c_str());
}

}  // namespace od
