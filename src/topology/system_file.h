// Reads one small file of /proc or /sys.
#ifndef OVERDRIVE_TOPOLOGY_SYSTEM_FILE_H_
#define OVERDRIVE_TOPOLOGY_SYSTEM_FILE_H_

#include <string>

namespace od::topology {

// The content without trailing blanks and line breaks; empty if there is no such file.
std::string read_system_file(const std::string& path);

}  // namespace od::topology

#endif  // OVERDRIVE_TOPOLOGY_SYSTEM_FILE_H_
