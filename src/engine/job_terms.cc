// The text is a list of fields, each preceded by its length: values may contain anything.
#include "engine/job_terms.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "coll/plan/select/tuning_file.h"
#include "engine/learnt_file.h"
#include "node/identity.h"
#include "overlap/trace.h"
#include "topology/fingerprint.h"

namespace od {
namespace {

constexpr std::string_view kTuningText = "tuning text";
constexpr std::string_view kTuningIssue = "tuning issue";
constexpr std::string_view kLearntText = "learnt text";
constexpr std::string_view kTraceText = "overlap trace";

bool is_rule(std::string_view variable) {
  return variable.starts_with("OVERDRIVE_ADJUST_") || variable.starts_with("I_MPI_ADJUST_");
}

void put(std::string& text, std::string_view field) {
  text += std::to_string(field.size());
  text += ':';
  text += field;
}

class Fields {
 public:
  explicit Fields(std::string_view text) : left_(text) {}
  std::optional<std::string_view> next() {
    std::size_t bytes = 0;
    const char* const end = left_.data() + left_.size();
    const auto parsed = std::from_chars(left_.data(), end, bytes);
    if (parsed.ec != std::errc{} || parsed.ptr == end || *parsed.ptr != ':') return std::nullopt;
    left_.remove_prefix(static_cast<std::size_t>(parsed.ptr + 1 - left_.data()));
    if (bytes > left_.size()) return std::nullopt;
    const std::string_view field = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return field;
  }

 private:
  std::string_view left_;
};

}  // namespace

std::string tuning_path(const config::Settings& settings, std::string_view host_version) {
  if (!settings.collectives || settings.tuning == "off") return {};
  if (settings.tuning != "auto") return settings.tuning;
  const std::string folder = config::standard_paths(environ).calibration_file;
  const std::size_t slash = folder.rfind('/');
  if (slash == std::string::npos) return {};
  // The first line up to a comma, in small letters, with a hyphen for whatever a file's name should
  // not have: `Open MPI v4.1.4` is open-mpi-v4.1.4 (cli/overdrive/tune/command.py).
  host_version = host_version.substr(0, host_version.find_first_of(",\n"));
  std::string name;
  for (const char letter : host_version) {
    const bool upper = letter >= 'A' && letter <= 'Z';
    const bool kept = upper || letter == '.' || (letter >= 'a' && letter <= 'z') ||
                      (letter >= '0' && letter <= '9');
    if (kept) {
      name += upper ? static_cast<char>(letter - 'A' + 'a') : letter;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  if (!name.empty() && name.back() == '-') name.pop_back();
  if (name.empty()) return {};
  const std::string path = folder.substr(0, slash) + "/tuning-" + name + ".json";
  return access(path.c_str(), F_OK) == 0 ? path : std::string{};
}

JobTerms own_terms(const config::Settings& settings, std::string_view host_version) {
  JobTerms terms;
  for (auto& variable : coll::Selection::environment()) {
    if (is_rule(variable.first)) terms.rules.push_back(std::move(variable));
  }
  std::sort(terms.rules.begin(), terms.rules.end());
  const config::OverlapMode overlap = settings.overlap;
  if (settings.collectives &&
      (overlap == config::OverlapMode::kOn || overlap == config::OverlapMode::kAuto)) {
    std::string note;
    terms.trace_text = overlap::read_trace(settings.overlap_trace, note);
    if (!note.empty()) terms.notes.push_back(std::move(note));
  }
  if (keeps_learnt(settings)) {
    LearntFile learnt = read_learnt(settings.learn_file, host_version);
    terms.learnt_text = std::move(learnt.text);
    if (!learnt.issue.empty()) terms.issues.push_back(std::move(learnt.issue));
  }
  const std::string path = tuning_path(settings, host_version);
  if (path.empty()) return terms;
  std::optional<std::string> text = coll::read_tuning_text(path, terms.issues);
  if (!text) return terms;
  const coll::TuningFile file = coll::parse_tuning(*text, path, topology::fingerprint());
  if (file.issues.empty()) {
    terms.tuning_text = std::move(*text);
  } else {
    // An update of the kernel is nobody's mistake: a file that was found by itself stops no job.
    (file.foreign && settings.tuning == "auto" ? terms.notes : terms.issues) = file.issues;
  }
  return terms;
}

std::string terms_text(const config::Settings& settings, const JobTerms& terms) {
  std::string text;
  for (const config::SettingInfo& info : config::setting_infos()) {
    if (!info.agreed) continue;
    put(text, info.name);
    put(text, info.value_text(settings));
  }
  for (const auto& [name, value] : terms.rules) {
    put(text, name);
    put(text, value);
  }
  put(text, kTuningText);
  put(text, terms.tuning_text);
  put(text, kLearntText);
  put(text, terms.learnt_text);
  put(text, kTraceText);
  put(text, terms.trace_text);
  for (const std::string& issue : terms.issues) {
    put(text, kTuningIssue);
    put(text, issue);
  }
  return text;
}

std::vector<std::string> take_terms(const std::string& text, config::Settings& settings,
                                    JobTerms& terms) {
  std::vector<std::string> different;
  JobTerms taken;
  Fields fields(text);
  while (const auto name = fields.next()) {
    const auto value = fields.next();
    if (!value) break;
    if (*name == kTuningText) {
      taken.tuning_text = *value;
    } else if (*name == kLearntText) {
      taken.learnt_text = *value;
    } else if (*name == kTraceText) {
      taken.trace_text = *value;
    } else if (*name == kTuningIssue) {
      taken.issues.emplace_back(*value);
    } else if (is_rule(*name)) {
      taken.rules.emplace_back(*name, *value);
    } else {
      for (const config::SettingInfo& info : config::setting_infos()) {
        if (*name != info.name || info.value_text(settings) == *value) continue;
        different.emplace_back(*name);
        std::string reason;
        info.assign(settings, *value, reason);
      }
    }
  }
  for (const auto& rule : terms.rules) {
    if (std::find(taken.rules.begin(), taken.rules.end(), rule) == taken.rules.end()) {
      different.push_back(rule.first);
    }
  }
  if (!terms.tuning_text.empty() && terms.tuning_text != taken.tuning_text) {
    different.emplace_back("the tuning file's text");
  }
  if (!terms.learnt_text.empty() && terms.learnt_text != taken.learnt_text) {
    different.emplace_back("the text of learn_file");
  }
  if (!terms.trace_text.empty() && terms.trace_text != taken.trace_text) {
    different.emplace_back("the trace of the program");
  }
  terms = std::move(taken);
  return different;
}

TermsClaim claim_of(const std::string& text, std::size_t complaints, bool fit) {
  std::uint64_t hash = 1;
  for (const char c : text) hash = node::mix_hash(hash, static_cast<unsigned char>(c));
  return {hash, text.size(), complaints, fit ? 1u : 0u};
}

}  // namespace od
