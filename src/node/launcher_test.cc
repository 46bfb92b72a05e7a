// Checks what is taken from the environments of the known launchers.
#include "node/launcher.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace od::node {
namespace {

LaunchView view_in(std::vector<std::string> variables) {
  std::vector<const char*> environment;
  for (const std::string& variable : variables) environment.push_back(variable.c_str());
  environment.push_back(nullptr);
  return launch_view(environment.data());
}

std::vector<std::string> open_mpi(const std::string& rank, const std::string& name) {
  return {"OMPI_COMM_WORLD_RANK=" + rank,
          "OMPI_COMM_WORLD_SIZE=4",
          "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2",
          "PMIX_NAMESPACE=" + name,
          "PMIX_SERVER_URI4=1.0;tcp4://127.0.0.1:4000",
          "SLURM_PROCID=0"};
}

TEST(LaunchView, OpenMpi) {
  const LaunchView view = view_in(open_mpi("3", "77"));
  ASSERT_TRUE(view.known);
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.size, 4);
  EXPECT_EQ(view.local_rank, 1);
  EXPECT_EQ(view.local_size, 2);
  EXPECT_FALSE(view.whole_job_is_local());
  EXPECT_EQ(view.job_key, view_in(open_mpi("2", "77")).job_key);
  EXPECT_NE(view.job_key, view_in(open_mpi("3", "78")).job_key);
}

TEST(LaunchView, WhatDoesNotFitIsUnknown) {
  EXPECT_FALSE(view_in({}).known);
  EXPECT_FALSE(view_in(open_mpi("4", "77")).known);
  EXPECT_FALSE(view_in(open_mpi("x", "77")).known);
  EXPECT_FALSE(launch_view(nullptr).known);
}

TEST(LaunchView, HydraIsKnownByItsSocket) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const auto with = [](int fd) {
    return view_in({"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2",
                    "HYDI_CONTROL_FD=" + std::to_string(fd)});
  };
  ASSERT_TRUE(with(sockets[0]).known);
  EXPECT_TRUE(with(sockets[0]).whole_job_is_local());
  EXPECT_EQ(with(sockets[0]).job_key, with(sockets[0]).job_key);
  EXPECT_NE(with(sockets[0]).job_key, with(sockets[1]).job_key);
  EXPECT_FALSE(with(1023).known);
  // On other nodes there is only the connection of each rank.
  const LaunchView remote = view_in({"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=0",
                                     "MPI_LOCALNRANKS=1", "PMI_FD=" + std::to_string(sockets[1])});
  EXPECT_TRUE(remote.known);
  EXPECT_FALSE(remote.whole_job_is_local());
  close(sockets[0]);
  close(sockets[1]);
}

TEST(LaunchView, SlurmCountsTheTasksOfTheNode) {
  const auto on_node = [](const char* node) {
    return view_in({"SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=11", "SLURM_LOCALID=1",
                    std::string("SLURM_NODEID=") + node, "SLURM_STEP_TASKS_PER_NODE=4(x2),3",
                    "SLURM_JOB_ID=12", "SLURM_STEP_ID=0"});
  };
  EXPECT_EQ(on_node("0").local_size, 4);
  EXPECT_EQ(on_node("1").local_size, 4);
  EXPECT_EQ(on_node("2").local_size, 3);
  EXPECT_FALSE(on_node("3").known);
}

}  // namespace
}  // namespace od::node
