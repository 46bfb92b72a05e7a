// What a measurement of this machine is valid for, in one line of text.
#ifndef OVERDRIVE_TOPOLOGY_FINGERPRINT_H_
#define OVERDRIVE_TOPOLOGY_FINGERPRINT_H_

#include <string>

namespace od::topology {

// Processor model, its caches, kernel release and version of Overdrive, such as
// "AMD EPYC; L1 48K, L2 1M, L3 32M; Linux 6.1.0-18-amd64; Overdrive 0.1.0". Equal on equal nodes:
// neither host name nor the number of processors is in it. Reads a few small files and the
// beginning of /proc/cpuinfo, whose length grows with the machine. `root` is empty for the real
// machine; tests give a directory.
std::string fingerprint(const std::string& root = {});

}  // namespace od::topology

#endif  // OVERDRIVE_TOPOLOGY_FINGERPRINT_H_
