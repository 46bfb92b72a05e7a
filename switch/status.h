// What the switch says about itself: a table for people, JSON, and Prometheus' text format.
#ifndef OVERDRIVE_SWITCH_STATUS_H_
#define OVERDRIVE_SWITCH_STATUS_H_

#include <cstdint>
#include <string>

#include "switch/fabric.h"

namespace od::fabric {

std::string status_text(const Fabric& fabric, std::uint64_t uptime_ns);
std::string status_json(const Fabric& fabric, std::uint64_t uptime_ns);
std::string status_metrics(const Fabric& fabric, std::uint64_t uptime_ns);

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_STATUS_H_
