// Checks a calibration file entry by entry.
#include "config/calibration.h"

#include <string_view>

namespace od::config {
namespace {

bool may_calibrate(std::string_view name) {
  return name.substr(0, 5) == "near_" || (name.substr(0, 4) == "far_" && name != "far_threshold");
}

const SettingInfo* find_setting(std::string_view name) {
  for (const SettingInfo& info : setting_infos()) {
    if (name == info.name) return &info;
  }
  return nullptr;
}

// Empty if the entry is a threshold with a value that makes sense.
std::string fault_of(const FileEntry& entry) {
  const std::string start = "line " + std::to_string(entry.line) + ": ";
  const SettingInfo* info = may_calibrate(entry.name) ? find_setting(entry.name) : nullptr;
  if (info == nullptr) return start + "'" + entry.name + "' is nothing that can be calibrated";
  if (!entry.table.empty() && entry.table != info->group) {
    return start + "'" + entry.name + "' does not belong in [" + entry.table + "]";
  }
  std::string reason = entry.reason;
  Settings scratch;
  if (reason.empty() && info->assign(scratch, entry.text, reason)) return {};
  return start + "'" + entry.text + "' cannot be the value of " + entry.name + ": it " + reason;
}

}  // namespace

Calibration judge_calibration(const FileContent& content, std::string (*fingerprint)()) {
  Calibration result;
  if (!content.error.empty()) {
    if (content.error_line != 0) result.why = "line " + std::to_string(content.error_line) + ": ";
    result.why += content.error;
    return result;
  }
  std::string measured_on;
  std::string count;
  for (const FileEntry& entry : content.entries) {
    if (entry.table != "calibration") {
      result.thresholds.push_back(entry);
    } else if (entry.name == "fingerprint") {
      measured_on = entry.text;
    } else if (entry.name == "thresholds") {
      count = entry.text;
    } else if (entry.name == "date") {
      result.date = entry.text;
    }
  }
  if (measured_on.empty()) {
    result.why = "it does not say on which machine it was measured";
    return result;
  }
  // Before the entries: another version may know other ones.
  if (const std::string here = fingerprint != nullptr ? fingerprint() : measured_on;
      measured_on != here) {
    result.stale = true;
    result.why = "it was measured on \"" + measured_on + "\", and this is \"" + here + '"';
    return result;
  }
  for (const FileEntry& entry : result.thresholds) {
    result.why = fault_of(entry);
    if (!result.why.empty()) return result;
  }
  if (count != std::to_string(result.thresholds.size()) || result.thresholds.empty()) {
    result.why = "it is incomplete";
    return result;
  }
  result.valid = true;
  return result;
}

}  // namespace od::config
