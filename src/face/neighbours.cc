// Reads a topology: grids, graphs and distributed graphs.
#include "face/neighbours.h"

#include <vector>

#include "face/face_mpi.h"

namespace od::face {
namespace {

int neighbour(int rank) { return rank == MPI_PROC_NULL ? -1 : rank; }

bool read_grid(MPI_Comm comm, std::vector<int>& around) {
  int dimensions = 0;
  if (OD_HOST(Cartdim_get)(comm, &dimensions) != MPI_SUCCESS) return false;
  for (int i = 0; i < dimensions; ++i) {
    int below = 0;
    int above = 0;
    if (OD_HOST(Cart_shift)(comm, i, 1, &below, &above) != MPI_SUCCESS) return false;
    around.push_back(neighbour(below));
    around.push_back(neighbour(above));
  }
  return true;
}

bool read_graph(MPI_Comm comm, int rank, std::vector<int>& around) {
  int count = 0;
  if (OD_HOST(Graph_neighbors_count)(comm, rank, &count) != MPI_SUCCESS) return false;
  around.resize(static_cast<std::size_t>(count));
  return count == 0 || OD_HOST(Graph_neighbors)(comm, rank, count, around.data()) == MPI_SUCCESS;
}

bool read_distributed(MPI_Comm comm, std::vector<int>& sources, std::vector<int>& destinations) {
  int in = 0;
  int out = 0;
  int weighted = 0;
  if (OD_HOST(Dist_graph_neighbors_count)(comm, &in, &out, &weighted) != MPI_SUCCESS) return false;
  // With room for one at least, because some hosts look at the addresses of empty lists.
  const auto room = [](int count) { return static_cast<std::size_t>(count > 0 ? count : 1); };
  sources.resize(room(in));
  destinations.resize(room(out));
  std::vector<int> in_weights(room(in));
  std::vector<int> out_weights(room(out));
  if (OD_HOST(Dist_graph_neighbors)(comm, in, sources.data(), in_weights.data(), out,
                                    destinations.data(), out_weights.data()) != MPI_SUCCESS) {
    return false;
  }
  sources.resize(static_cast<std::size_t>(in));
  destinations.resize(static_cast<std::size_t>(out));
  return true;
}

std::shared_ptr<const Neighbourhood> read(const Comm& comm) {
  // What the host has not, stays a null pointer here.
  if (OD_HOST(Topo_test) == nullptr || OD_HOST(Cartdim_get) == nullptr ||
      OD_HOST(Cart_shift) == nullptr || OD_HOST(Graph_neighbors_count) == nullptr ||
      OD_HOST(Graph_neighbors) == nullptr || OD_HOST(Dist_graph_neighbors_count) == nullptr ||
      OD_HOST(Dist_graph_neighbors) == nullptr) {
    return nullptr;
  }
  HostCallScope scope(HostCallKind::kLocal);
  const auto handle = abi::from_handle<MPI_Comm>(comm.handle);
  int kind = MPI_UNDEFINED;
  if (OD_HOST(Topo_test)(handle, &kind) != MPI_SUCCESS) return nullptr;
  std::vector<int> in;
  if (kind == MPI_CART && read_grid(handle, in)) return Neighbourhood::grid(comm.rank, in);
  if (kind == MPI_GRAPH && read_graph(handle, comm.rank, in)) {
    return Neighbourhood::graph(comm.rank, in, in);
  }
  std::vector<int> out;
  if (kind == MPI_DIST_GRAPH && read_distributed(handle, in, out)) {
    return Neighbourhood::graph(comm.rank, in, out);
  }
  return nullptr;
}

}  // namespace

const Neighbourhood* neighbours_of(Comm& comm) {
  if (!comm.neighbourhood_known) [[unlikely]] {
    comm.neighbourhood = read(comm);
    comm.neighbourhood_known = true;
  }
  return comm.neighbourhood.get();
}

}  // namespace od::face
