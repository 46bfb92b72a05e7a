// Tests of the logger: what reaches standard error, byte for byte. Starts threads.
#include "observe/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.h"

namespace od {
namespace {

// What `body` writes to standard error.
std::string captured(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  return text;
}

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { log_setup(-1, 0); }
};

TEST_F(LogTest, LevelsSelect) {
  log_setup(3, 1);
  EXPECT_EQ(captured([] { log(Level::kError, "no %s", "memfd"); }),
            "overdrive[3]: error: no memfd\n");
  EXPECT_EQ(captured([] { log(Level::kWarning, "x"); }), "overdrive[3]: warning: x\n");
  EXPECT_EQ(captured([] { log(Level::kInfo, "x"); }), "");
  log_setup(3, 2);
  EXPECT_EQ(captured([] { log(Level::kInfo, "x"); }), "overdrive[3]: x\n");
}

TEST_F(LogTest, BeforeSetupOnlyErrorsWithoutRank) {
  log_setup(-1, 0);
  EXPECT_EQ(captured([] { log(Level::kError, "x"); }), "overdrive: error: x\n");
  EXPECT_EQ(captured([] { log(Level::kWarning, "x"); }), "");
}

TEST_F(LogTest, AlwaysOneLine) {
  log_setup(0, 2);
  EXPECT_EQ(captured([] { log(Level::kInfo, "a\nb\n\n"); }), "overdrive[0]: a b\n");
  const std::string huge(5000, 'y');
  const std::string line = captured([&] { log(Level::kInfo, "%s", huge.c_str()); });
  EXPECT_EQ(line.size(), 1024u);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST_F(LogTest, KeepsErrno) {
  log_setup(0, 2);
  errno = ENOENT;
  captured([] {
    errno = EXDEV;
    log(Level::kInfo, "x");
    EXPECT_EQ(errno, EXDEV);
  });
}

TEST_F(LogTest, OncePerPlaceAndOnlyWhenEnabled) {
  const auto speak = [] { OD_LOG_ONCE(Level::kInfo, "once %d", 1); };
  log_setup(0, 0);
  EXPECT_EQ(captured(speak), "");
  log_setup(0, 2);  // a hidden message has not been said
  EXPECT_EQ(captured([&] {
              speak();
              speak();
            }),
            "overdrive[0]: once 1\n");
}

// Standard error goes into `write_end` while `body` runs.
void redirected(int write_end, const std::function<void()>& body) {
  const int saved = dup(STDERR_FILENO);
  dup2(write_end, STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
}

TEST_F(LogTest, WaitsUntilTheReaderOfAPipeOrSocketHasReadAll) {
  for (const bool socket : {false, true}) {
    int ends[2];
    ASSERT_EQ(socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends), 0);
    std::atomic<bool> read_all{false};
    std::thread reader([&] {
      usleep(50'000);
      char buffer[4096];
      read_all.store(true, std::memory_order_release);
      EXPECT_GT(read(ends[0], buffer, sizeof buffer), 0);
    });
    redirected(ends[1], [] {
      log(Level::kError, "x");
      errno = EXDEV;
      log_wait_until_read();
      EXPECT_EQ(errno, EXDEV);
    });
    EXPECT_TRUE(read_all.load(std::memory_order_acquire));
    reader.join();
    close(ends[0]);
    close(ends[1]);
  }
}

TEST_F(LogTest, WaitsForNobodyBehindAFile) {
  const int file = memfd_create("log", 0);
  ASSERT_GE(file, 0);
  const std::uint64_t begin = now_ns();
  redirected(file, [] {
    log(Level::kError, "x");
    lseek(STDERR_FILENO, 0, SEEK_SET);
    log_wait_until_read();
  });
  EXPECT_LT(now_ns() - begin, 500'000'000u);
  close(file);
}

TEST_F(LogTest, GivesUpAReaderThatDoesNotRead) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  redirected(ends[1], [] {
    log(Level::kError, "x");
    log_wait_until_read();
  });
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace od
