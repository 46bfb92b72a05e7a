// Checks both boards against stand-ins for the launcher's side.
#include "node/boards.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

namespace od::node {
namespace {

// Answers as Hydra does, until the connection ends.
void serve(int socket, std::map<std::string, std::string>* space, const std::string& name) {
  char text[512];
  for (ssize_t bytes = 0; (bytes = recv(socket, text, sizeof text, 0)) > 0;) {
    const std::string line(text, static_cast<std::size_t>(bytes));
    const auto value = [&line](const std::string& name) {
      const std::size_t at = line.find(name + "=") + name.size() + 1;
      return line.substr(at, line.find_first_of(" \n", at) - at);
    };
    std::string answer = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
    if (value("cmd") == "get_my_kvsname") answer = "cmd=my_kvsname kvsname=" + name + "\n";
    if (value("cmd") == "put") {
      (*space)[value("key")] = value("value");
      answer = "cmd=put_result rc=0 msg=success\n";
    }
    if (value("cmd") == "get") {
      const auto found = space->find(value("key"));
      answer = found == space->end() ? "cmd=get_result rc=-1 msg=not_found value=unknown\n"
                                     : "cmd=get_result rc=0 value=" + found->second + "\n";
    }
    send(socket, answer.data(), answer.size(), 0);
  }
}

TEST(HydraBoard, LeavesAndLooksUpNumbers) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  std::map<std::string, std::string> space;
  std::thread manager(serve, sockets[1], &space, "kvs_7");
  const std::string fd = "PMI_FD=" + std::to_string(sockets[0]);
  const char* const environment[] = {fd.c_str(), "MPI_LOCALNRANKS=2", nullptr};
  {
    HydraBoard first(environment, 0, 12345678901234567890u);
    HydraBoard second(environment, 3, 5);
    EXPECT_TRUE(first.usable());
    EXPECT_EQ(second.look_up(0), 12345678901234567890u);
    EXPECT_EQ(first.look_up(3), 5u);
    EXPECT_EQ(first.look_up(1), std::nullopt);
  }
  close(sockets[0]);
  manager.join();
  close(sockets[1]);
}

// Two jobs that were started by a third one have everything in common but the name of their space.
TEST(HydraManager, TellsJobsApartThatAJobHasStarted) {
  const auto key_of = [](const std::string& space_name, bool spawned, LaunchView* view) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return;
    std::map<std::string, std::string> space;
    std::thread manager(serve, sockets[1], &space, space_name);
    const std::string fd = "PMI_FD=" + std::to_string(sockets[0]);
    const char* const environment[] = {fd.c_str(), "MPI_LOCALNRANKS=2",
                                       spawned ? "PMI_SPAWNED=1" : nullptr, nullptr};
    *view = LaunchView{.known = true, .rank = 1, .size = 2, .local_rank = 1, .local_size = 2};
    view->job_key = 5;
    tell_spawned_apart(environment, *view);
    close(sockets[0]);
    manager.join();
    close(sockets[1]);
  };
  LaunchView first, again, second, usual, silent;
  key_of("kvs_1", true, &first);
  key_of("kvs_1", true, &again);
  key_of("kvs_2", true, &second);
  key_of("kvs_2", false, &usual);
  EXPECT_TRUE(first.known);
  EXPECT_EQ(first.job_key, again.job_key);
  EXPECT_NE(first.job_key, second.job_key);
  EXPECT_NE(first.job_key, 5u);
  EXPECT_TRUE(usual.known);
  EXPECT_EQ(usual.job_key, 5u);
  key_of("", true, &silent);
  EXPECT_FALSE(silent.known);
}

TEST(HydraBoard, IsNotUsableElsewhere) {
  const char* const no_hydra[] = {"PMI_FD=0", nullptr};
  const char* const no_fd[] = {"PMI_FD=x", "MPI_LOCALNRANKS=2", nullptr};
  const char* const other[] = {"PMI_FD=0", "MPI_LOCALNRANKS=2", "PMI_VERSION=2", nullptr};
  EXPECT_FALSE(HydraBoard(no_hydra, 0, 1).usable());
  EXPECT_FALSE(HydraBoard(no_fd, 0, 1).usable());
  EXPECT_FALSE(HydraBoard(other, 0, 1).usable());
  EXPECT_FALSE(HydraBoard(nullptr, 0, 1).usable());
}

std::uint64_t stored = 0;

int put(unsigned char, const char*, void* value) {
  std::memcpy(&stored, static_cast<char*>(value) + 8, sizeof stored);
  return 0;
}

int slow_questions = 0;

// Rank 2 is known here, rank 3 has to be asked on its own node: PMIX_ERR_NOT_FOUND at once, and
// PMIX_ERR_TIMEOUT for all others.
int get(const void* process, const char*, const void* info, std::size_t, void** value) {
  std::uint32_t rank = 0;
  std::memcpy(&rank, static_cast<const char*>(process) + 256, sizeof rank);
  if (std::string(static_cast<const char*>(info)) == "pmix.immediate") {
    if (rank != 2) return -46;
  } else {
    ++slow_questions;
    int seconds = 0;
    std::memcpy(&seconds, static_cast<const char*>(info) + 512 + 4 + 4 + 8, sizeof seconds);
    EXPECT_EQ(seconds, 5);
    if (rank != 3) return -24;
  }
  char* const made = static_cast<char*>(std::calloc(1, 64));
  const std::uint16_t type = 15;
  std::memcpy(made, &type, sizeof type);
  std::memcpy(made + 8, &stored, sizeof stored);
  *value = made;
  return 0;
}

TEST(PmixBoard, LeavesAndLooksUpNumbers) {
  const char* const environment[] = {"PMIX_NAMESPACE=job", nullptr};
  PmixBoard board(environment, 99);
  EXPECT_FALSE(board.usable());
  board.publish(put, get);
  ASSERT_TRUE(board.usable());
  EXPECT_EQ(stored, 99u);
  EXPECT_EQ(board.look_up(2), 99u);
  EXPECT_EQ(slow_questions, 0);
  EXPECT_EQ(board.look_up(3), 99u);
  EXPECT_EQ(slow_questions, 1);
  EXPECT_EQ(board.look_up(1), std::nullopt);
  EXPECT_EQ(board.look_up(4), std::nullopt);
  EXPECT_EQ(slow_questions, 2) << "the limit passes once";
  EXPECT_EQ(board.look_up(2), 99u);
  PmixBoard none(nullptr, 99);
  none.publish(put, get);
  EXPECT_FALSE(none.usable());
}

}  // namespace
}  // namespace od::node
