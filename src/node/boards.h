// The boards (roll_call.h) that launchers offer: Hydra's key-value space, and PMIx.
#ifndef OVERDRIVE_NODE_BOARDS_H_
#define OVERDRIVE_NODE_BOARDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "node/roll_call.h"

namespace od::node {

// The process managers of MPICH and Intel MPI (PMI 1), spoken to over the connection that the host
// has not opened yet or is not using: this object lives inside MPI_Init only. What is put before
// the host's own exchange travels with it.
class HydraBoard : public Board {
 public:
  // Puts up `build`; before the host's MPI_Init. Not usable where the environment names no such
  // process manager, or another protocol.
  HydraBoard(const char* const* environment, int rank, std::uint64_t build);
  bool usable() const override { return !space_.empty(); }
  std::optional<std::uint64_t> look_up(int rank) override;

 private:
  bool ask(const std::string& question, std::string* answer) const;

  int fd_ = -1;
  std::string space_;  // empty: not usable
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
