// What somebody else could have put in our way is neither read nor overwritten.
#include "config/trusted_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "config/test_files.h"

namespace od::config {
namespace {

constexpr std::size_t kMiB16 = 16 << 20;
constexpr uid_t kStranger = 54321;

class TrustedFileTest : public FilesTest {
 protected:
  static std::string error_of(const std::string& path, LastLink last = LastLink::kFollowed,
                              std::size_t most = kMiB16) {
    const FileText file = read_trusted_file(path, most, last);
    EXPECT_EQ(file.text.has_value(), file.error.empty() && file.exists) << path;
    return file.error;
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
  std::string path(const std::string& name) const { return directory_ + '/' + name; }
  std::string write_output(const std::string& path) const {
    std::string error;
    const int fd = open_trusted_output(path, error);
    EXPECT_EQ(fd >= 0, error.empty());
    if (fd >= 0) close(fd);
    return error;
  }
};

TEST_F(TrustedFileTest, ReadsWhatIsOnesOwn) {
  const std::string file = write("own", "text");
  EXPECT_EQ(read_trusted_file(file, kMiB16, LastLink::kRefused).text, "text");
  EXPECT_EQ(read_trusted_file(write("empty", ""), kMiB16, LastLink::kRefused).text, "");
  EXPECT_FALSE(read_trusted_file(path("nothing"), kMiB16, LastLink::kRefused).exists);
  EXPECT_FALSE(read_trusted_file(file + "/below", kMiB16, LastLink::kRefused).exists);
}

TEST_F(TrustedFileTest, OnlyRegularFilesOfSensibleSize) {
  EXPECT_EQ(error_of("/dev/zero"), "is not a regular file");
  EXPECT_EQ(error_of("/dev/tty").empty(), false);
  EXPECT_EQ(error_of(directory_), "is not a regular file");
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of(path("fifo")), "is not a regular file");
  const std::string large = write("large", "");
  ASSERT_EQ(truncate(large.c_str(), 1 << 30), 0);
  EXPECT_EQ(error_of(large), "is larger than 16 MiB");
  EXPECT_EQ(error_of(write("exact", "12345678"), LastLink::kFollowed, 8), "");
  EXPECT_EQ(error_of(write("above", "123456789"), LastLink::kFollowed, 8), "is larger than 0 MiB");
}

TEST_F(TrustedFileTest, NobodyElseMayWriteIt) {
  const std::string file = write("file", "text");
  ASSERT_EQ(chmod(file.c_str(), 0664), 0);
  EXPECT_TRUE(has(error_of(file), "chmod go-w"));
  ASSERT_EQ(chmod(file.c_str(), 0602), 0);
  EXPECT_TRUE(has(error_of(file), "can be written by others (mode 602)"));
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(error_of(file), "");
}

TEST_F(TrustedFileTest, LinksOfTheUserAreFollowedWhereAllowed) {
  write("file", "text");
  ASSERT_EQ(symlink("file", path("link").c_str()), 0);
  ASSERT_EQ(symlink("link", path("second").c_str()), 0);
  EXPECT_EQ(error_of(path("second")), "");
  EXPECT_TRUE(has(error_of(path("link"), LastLink::kRefused), "symbolic link"));
  ASSERT_EQ(symlink(directory_.c_str(), path("folder").c_str()), 0);
  EXPECT_EQ(error_of(path("folder/folder/../file"), LastLink::kRefused), "");
  ASSERT_EQ(symlink("loop", path("loop").c_str()), 0);
  EXPECT_NE(error_of(path("loop")), "");
}

TEST_F(TrustedFileTest, FilesAndLinksOfOthersDoNotCount) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string file = write("file", "text");
  ASSERT_EQ(chown(file.c_str(), kStranger, kStranger), 0);
  EXPECT_TRUE(has(error_of(file), "belongs to another user (uid 54321)"));
  write("own", "text");
  ASSERT_EQ(symlink("own", path("link").c_str()), 0);
  ASSERT_EQ(lchown(path("link").c_str(), kStranger, kStranger), 0);
  EXPECT_TRUE(has(error_of(path("link")), "symbolic link 'link' of another user"));
  // In a folder that only he can write his links are what he means them to be.
  ASSERT_EQ(chown(directory_.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(error_of(path("link")), "");
  ASSERT_EQ(chmod(directory_.c_str(), 01777), 0);
  EXPECT_TRUE(has(error_of(path("link")), "symbolic link"));
}

TEST_F(TrustedFileTest, OutputReplacesOnlyWhatIsOnesOwn) {
  const std::string file = write("out", "old text");
  EXPECT_EQ(write_output(file), "");
  EXPECT_EQ(read_trusted_file(file, kMiB16, LastLink::kRefused).text, "");
  EXPECT_EQ(write_output(path("new")), "");
  EXPECT_NE(write_output(path("nowhere/new")), "");
  EXPECT_NE(write_output(directory_), "");
  EXPECT_NE(write_output(directory_ + '/'), "");
  EXPECT_NE(write_output("/dev/null"), "");
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_NE(write_output(path("fifo")), "");
  const std::string victim = write("victim", "precious");
  ASSERT_EQ(symlink("victim", path("link").c_str()), 0);
  ASSERT_EQ(link(victim.c_str(), path("second-name").c_str()), 0);
  EXPECT_TRUE(has(write_output(path("link")), "symbolic link"));
  EXPECT_TRUE(has(write_output(path("second-name")), "hard links"));
  EXPECT_EQ(read_trusted_file(victim, kMiB16, LastLink::kRefused).text, "precious");
  if (geteuid() != 0) return;
  const std::string foreign = write("foreign", "precious");
  ASSERT_EQ(chown(foreign.c_str(), kStranger, kStranger), 0);
  EXPECT_TRUE(has(write_output(foreign), "belongs to another user"));
  ASSERT_EQ(symlink(directory_.c_str(), path("folder").c_str()), 0);
  ASSERT_EQ(lchown(path("folder").c_str(), kStranger, kStranger), 0);
  EXPECT_TRUE(has(write_output(path("folder/new2")), "symbolic link 'folder' of another user"));
}

// Ranks of the same number in two jobs write their statistics to one file.
TEST_F(TrustedFileTest, OutputOfTwoProcessesIsNotMixed) {
  const std::string file = path("out");
  std::string error;
  const int first = open_trusted_output(file, error);
  ASSERT_GE(first, 0) << error;
  const pid_t other = fork();
  ASSERT_GE(other, 0);
  if (other == 0) {
    close(first);
    const int second = open_trusted_output(file, error);
    _exit(second >= 0 && ::write(second, "short", 5) == 5 && close(second) == 0 ? 0 : 1);
  }
  // Without a wait the other one writes now, and this text replaces its own.
  usleep(50'000);
  EXPECT_EQ(::write(first, "much longer", 11), 11);
  close(first);
  int status = -1;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_trusted_file(file, kMiB16, LastLink::kRefused).text, "short");
}

TEST_F(TrustedFileTest, OutputThatStaysInUseIsAnError) {
  std::string error;
  const int first = open_trusted_output(path("out"), error);
  ASSERT_GE(first, 0) << error;
  EXPECT_TRUE(has(write_output(path("out")), "another process is writing it"));
  close(first);
  EXPECT_EQ(write_output(path("out")), "");
}

// Whoever reads it sees the old one or the new one, and nobody else may change it.
TEST_F(TrustedFileTest, AFileIsReplacedInOneGo) {
  const std::string file = path("kept");
  const mode_t before = umask(0);
  EXPECT_EQ(replace_file(file, "old"), "");
  umask(before);
  EXPECT_EQ(read_trusted_file(file, kMiB16, LastLink::kRefused).text, "old");
  EXPECT_EQ(replace_file(file, std::string(100'000, 'x')), "");
  EXPECT_EQ(read_trusted_file(file, kMiB16, LastLink::kRefused).text, std::string(100'000, 'x'));
  // Nothing is left where that fails.
  ASSERT_EQ(mkdir(path("folder").c_str(), 0755), 0);
  EXPECT_EQ(replace_file(path("folder"), "text"), "Is a directory");
  EXPECT_EQ(replace_file(path("missing/kept"), "text"), "No such file or directory");
  const std::string left = path("folder") + '.' + std::to_string(getpid());
  EXPECT_NE(access(left.c_str(), F_OK), 0);
  ASSERT_EQ(rmdir(path("folder").c_str()), 0);
}

}  // namespace
}  // namespace od::config
