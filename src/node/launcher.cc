// Reads the variables of the launchers.
#include "node/launcher.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "node/identity.h"
#include "node/launch_variables.h"

namespace od::node {
namespace {

std::uint64_t hash_text(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = mix_hash(hash, static_cast<unsigned char>(c));
  return mix_hash(hash, text.size());
}

// A socket that all ranks of the node have inherited from their process manager has a number that
// no other open socket of this machine has.
std::optional<std::uint64_t> inherited_socket(std::optional<int> fd) {
  struct stat status;
  if (!fd || fstat(*fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return mix_hash(status.st_dev, status.st_ino);
}

// Who has made the connection to the process manager: the process manager of this node.
std::optional<std::uint64_t> manager(std::optional<int> fd) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (!fd || getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
    return std::nullopt;
  }
  return mix_hash(4, static_cast<std::uint64_t>(peer.pid));
}

// The name that PMIx gives to a job, and the server of this node that has given it.
std::optional<std::uint64_t> pmix_key(const Variables& variables) {
  const auto name = variables.text("PMIX_NAMESPACE");
  if (!name) return std::nullopt;
  std::uint64_t key = hash_text(1, *name);
  for (const char* const server :
       {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2"}) {
    if (const auto address = variables.text(server)) return hash_text(key, *address);
  }
  return key;
}

std::optional<std::uint64_t> hydra_key(const Variables& variables) {
  std::optional<std::uint64_t> key = inherited_socket(variables.number("HYDI_CONTROL_FD"));
  if (const auto job = variables.text("I_MPI_HYDRA_UUID"); !key && job) key = hash_text(2, *job);
  // Proxies on other nodes hand nothing down but the connection of each rank.
  if (!key) key = manager(variables.number("PMI_FD"));
  if (!key) return std::nullopt;
  // Jobs that a job starts may have its process manager.
  for (const char* const name : {"PMI_SPAWNED", "PMI_JOBID", "PMI_ID_JOB"}) {
    if (const auto value = variables.text(name)) key = hash_text(*key, *value);
  }
  return key;
}

std::optional<std::uint64_t> slurm_key(const Variables& variables) {
  const auto job = variables.text("SLURM_JOB_ID");
  const auto step = variables.text("SLURM_STEP_ID");
  if (!job || !step) return std::nullopt;
  return hash_text(hash_text(3, *job), *step);
}

}  // namespace

LaunchView launch_view(const char* const* environment) {
  const Variables variables(environment);
  const auto take = [](std::optional<int> rank, std::optional<int> size,
                       std::optional<int> local_rank, std::optional<int> local_size,
                       std::optional<std::uint64_t> key) {
    LaunchView view;
    if (!rank || !size || !local_rank || !local_size || !key) return view;
    view.rank = *rank;
    view.size = *size;
    view.local_rank = *local_rank;
    view.local_size = *local_size;
    view.job_key = *key;
    view.known =
        view.rank < view.size && view.local_rank < view.local_size && view.local_size <= view.size;
    return view;
  };
  // The inner launcher first: under Slurm, mpirun's ranks have Slurm's variables as well.
  LaunchView view =
      take(variables.number("OMPI_COMM_WORLD_RANK"), variables.number("OMPI_COMM_WORLD_SIZE"),
           variables.number("OMPI_COMM_WORLD_LOCAL_RANK"),
           variables.number("OMPI_COMM_WORLD_LOCAL_SIZE"), pmix_key(variables));
  if (!view.known) {
    view = take(variables.number("PMI_RANK"), variables.number("PMI_SIZE"),
                variables.number("MPI_LOCALRANKID"), variables.number("MPI_LOCALNRANKS"),
                hydra_key(variables));
  }
  if (!view.known) {
    view =
        take(variables.number("SLURM_PROCID"), variables.number("SLURM_STEP_NUM_TASKS"),
             variables.number("SLURM_LOCALID"), slurm_local_size(variables), slurm_key(variables));
  }
  return view;
}

}  // namespace od::node
