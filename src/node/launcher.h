// What the launcher of a job tells each process through its environment: which rank it is, how many
// of the job's ranks are on this node, and what makes this job different from all others here.
//
// Known are Open MPI's mpirun (and everything else that serves PMIx), the process managers of the
// MPICH family and of Intel MPI, and Slurm's srun. Nothing here is trusted for more than finding
// each other: what ranks conclude from it is checked against MPI_COMM_WORLD and over sockets.
#ifndef OVERDRIVE_NODE_LAUNCHER_H_
#define OVERDRIVE_NODE_LAUNCHER_H_

#include <cstdint>

namespace od::node {

struct LaunchView {
  bool known = false;  // all of the following
  int rank = 0;        // in MPI_COMM_WORLD
  int size = 1;
  int local_rank = 0;  // among the job's ranks on this node
  int local_size = 1;
  // Equal for the ranks of this job on this node, and for nobody else in this network namespace at
  // this time.
  std::uint64_t job_key = 0;

  bool whole_job_is_local() const { return known && local_size == size; }
};

// `environment` is an array like environ. Looks at an inherited descriptor besides (the process
// manager's), without reading from it. Jobs that a job has started may have the same key as others
// of these: tell_spawned_apart() (boards.h).
LaunchView launch_view(const char* const* environment);

}  // namespace od::node

#endif  // OVERDRIVE_NODE_LAUNCHER_H_
