// Judges a calibration file: what `overdrive calibrate` has measured, and for which machine.
//
//   [calibration]
//   fingerprint = "..."      of the machine (topology/fingerprint.h)
//   date = "..."
//   thresholds = 5           how many follow: a file that was cut off is noticed
//   [copy]
//   near_pull_min = "2K"     only settings near_... and far_..., as in a settings file
//
// It is used as a whole or not at all: thresholds of half a measurement would fit nothing.
#ifndef OVERDRIVE_CONFIG_CALIBRATION_H_
#define OVERDRIVE_CONFIG_CALIBRATION_H_

#include <string>
#include <vector>

#include "config/settings.h"
#include "config/settings_file.h"

namespace od::config {

struct Calibration {
  bool valid = false;
  bool stale = false;  // not valid only because the fingerprint is another
  std::string why;     // not valid: the reason
  std::string date;
  std::vector<FileEntry> thresholds;
};

// `fingerprint` is that of this machine; null: any will do.
Calibration judge_calibration(const FileContent& content, std::string (*fingerprint)());

}  // namespace od::config

#endif  // OVERDRIVE_CONFIG_CALIBRATION_H_
