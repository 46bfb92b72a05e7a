// An exchange among the ranks of a job that all are on this node, through sockets: one rank is the
// centre. Waiting ranks sleep, which is what makes it fast where ranks share cores.
#ifndef OVERDRIVE_NODE_STAR_H_
#define OVERDRIVE_NODE_STAR_H_

#include <cstddef>
#include <vector>

namespace od::node {

class Star {
 public:
  // `sockets` by rank: at the centre one per rank (its own is -1), elsewhere only that of the
  // centre. Takes them over.
  Star(int rank, int centre, std::vector<int> sockets);
  ~Star();
  Star(const Star&) = delete;
  Star& operator=(const Star&) = delete;

  // Collective, blocking; not 0 when a rank has ended meanwhile. `recv` has room for all ranks.
  int allgather(const void* send, void* recv, std::size_t bytes_per_rank);
  int barrier();
  // From rank 0 to all.
  int broadcast(void* data, std::size_t bytes);

 private:
  bool centre() const { return rank_ == centre_; }

  const int rank_;
  const int centre_;
  std::vector<int> sockets_;
};

}  // namespace od::node

#endif  // OVERDRIVE_NODE_STAR_H_
