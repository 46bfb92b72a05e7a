// The boards (roll_call.h) that launchers offer: Hydra's key-value space, and PMIx.
#ifndef OVERDRIVE_NODE_BOARDS_H_
#define OVERDRIVE_NODE_BOARDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "node/roll_call.h"

namespace od::node {

// The connection to the process managers of MPICH and Intel MPI (PMI 1), which the host has not
// opened yet or is not using: from before the host is initialised until the end of MPI_Init.
class HydraManager {
 public:
  // Says hello, where the environment names such a process manager and no other protocol.
  explicit HydraManager(const char* const* environment);
  // The name of the job's key-value space; empty: there is none, or nobody answers.
  const std::string& space() const { return space_; }
  // One line each way.
  bool ask(const std::string& question, std::string* answer) const;

 private:
  int fd_ = -1;
  std::string space_;
};

// The jobs that the ranks of a job start (MPI_Comm_spawn) have the process manager of that job, and
// the same variables all of them. What tells them apart is the name of their key-value space; where
// that cannot be had, the view is not known any more. Before the host is initialised.
void tell_spawned_apart(const char* const* environment, LaunchView& view);

// The key-value space of PMI 1. What is put before the host's own exchange travels with it.
class HydraBoard : public Board {
 public:
  // Puts up `build`; before the host is initialised.
  HydraBoard(const char* const* environment, int rank, std::uint64_t build);
  bool usable() const override { return usable_; }
  std::optional<std::uint64_t> look_up(int rank) override;

 private:
  HydraManager manager_;
  bool usable_ = false;
};

// PMIx. Its library comes with the host; the functions are those of the one that the host uses.
class PmixBoard : public Board {
 public:
  using Put = int (*)(unsigned char scope, const char* key, void* value);
  using Get = int (*)(const void* process, const char* key, const void* infos, std::size_t count,
                      void** value);
  PmixBoard(const char* const* environment, std::uint64_t build);
  // While the host is about to make public what it has put.
  void publish(Put put, Get get);
  bool usable() const override { return published_; }
  std::optional<std::uint64_t> look_up(int rank) override;

 private:
  std::optional<std::uint64_t> ask(int rank, bool at_once) const;

  const std::uint64_t build_;
  std::string job_;
  Get get_ = nullptr;
  bool published_ = false;
  bool gave_up_ = false;  // a rank has left nothing within the limit
};

}  // namespace od::node

#endif  // OVERDRIVE_NODE_BOARDS_H_
