// Files that other people could have put in our way: what is read must belong to the user, and what
// is written must not be somebody else's.
//
// A settings file decides what a job does, and some are looked for in directories that we know
// nothing about. So a file counts only if it is regular, belongs to the user or to root, cannot be
// written by anybody else, and is reached through symbolic links of the user, of root, or of the
// owner of a folder that only he can write. What is written is created, or is an only name of a
// regular file of the user.
#ifndef OVERDRIVE_CONFIG_TRUSTED_FILE_H_
#define OVERDRIVE_CONFIG_TRUSTED_FILE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace od::config {

// Whether the last part of a path may be a symbolic link.
enum class LastLink { kRefused, kFollowed };

struct FileText {
  bool exists = false;
  std::optional<std::string> text;
  std::string error;  // without text: what is wrong and what to do; empty if there is no such file
};

// Never waits, whatever the path names (a FIFO, a terminal, a device without end).
FileText read_trusted_file(const std::string& path, std::size_t max_bytes, LastLink last_link);

// A descriptor of the empty file for writing, or -1 and the reason. Ranks of several jobs may name
// the same file: the descriptor holds a lock of it (flock) until it is closed, for which this waits
// a second at most, so the file is the last writer's and never a mixture.
int open_trusted_output(const std::string& path, std::string& error);

// Writes a file in one go: whoever reads it sees the old one or this one. It is for its owner to
// change and for all to read whatever the umask, so that it counts as trusted. Returns what went
// wrong; empty: nothing.
std::string replace_file(const std::string& path, std::string_view text);

}  // namespace od::config

#endif  // OVERDRIVE_CONFIG_TRUSTED_FILE_H_
