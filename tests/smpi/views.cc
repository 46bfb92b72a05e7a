// The C++ wrapper: blocks and views that move, clean up after themselves and throw.
#include <cstddef>
#include <numeric>
#include <overdrive/smpi.hpp>
#include <utility>
#include <vector>

#include "odtest.h"

namespace smpi = overdrive::smpi;

// Everything is released at the end of it, before MPI_Finalize.
static void use_views() {
  MPI_Comm comm = MPI_COMM_WORLD;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  smpi::attach(comm);
  CHECK(smpi::near(comm, odt.rank), "not near to myself");
  const int next = (odt.rank + 1) % odt.size, before = (odt.rank + odt.size - 1) % odt.size;

  // Lending: the view is a span of the same elements.
  smpi::block<int> lent(1000);
  std::iota(lent.begin(), lent.end(), odt.rank);
  MPI_Request requests[2];
  {
    smpi::view<int> seen = smpi::irecv<int>(1000, before, 1, comm, &requests[0]);
    requests[1] = smpi::isend(lent.span(), next, 1, comm);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(seen.size() == 1000 && seen.source() == before && seen.tag() == 1, "%zu", seen.size());
    CHECK(std::accumulate(seen.begin(), seen.end(), 0L) == 499500L + 1000L * before, "sum");
    smpi::view<int> moved = std::move(seen);
    CHECK(!seen && moved[10] == before + 10, "moved");
  }
  lent.reclaim();
  CHECK(lent.lent() == 0, "%d", lent.lent());

  // Passing: the block changes hands and is written by its new owner.
  smpi::view<int> passed = smpi::irecv<int>(1000, before, 2, comm, &requests[0]);
  requests[1] = smpi::ipass(std::move(lent), next, 2, comm);
  CHECK(!lent, "still there");
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  smpi::block<int> mine = passed.own();
  CHECK(!passed && mine.size() == 1000 && mine[5] == before + 5, "own");
  mine[5] = 7;

  // The same by calls that wait, short, and a block that is received to be looked at only.
  smpi::block<int> given(10);
  std::iota(given.begin(), given.end(), 3 * odt.rank);
  smpi::view<int> waited = smpi::irecv<int>(10, before, 3, comm, &requests[0]);
  smpi::send(given.span(), next, 3, comm);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  CHECK(waited.size() == 10 && waited[9] == 3 * before + 9, "send");
  waited.release();
  CHECK(!waited, "released");
  given.reclaim();
  smpi::pass(std::move(given), next, 4, comm);
  CHECK(!given, "passed");
  smpi::view<int> taken = smpi::recv<int>(10, before, 4, comm);
  CHECK(taken.source() == before && taken.tag() == 4 && taken[1] == 3 * before + 1, "recv");

  // Collectives, and a view that is assigned over another.
  smpi::block<double> root_data(odt.rank == 0 ? 64 : 0);
  for (std::size_t i = 0; i < root_data.size(); ++i) root_data[i] = 0.5 * static_cast<double>(i);
  smpi::view<double> all = smpi::bcast<double>(root_data.data(), 64, 0, comm);
  CHECK(all[63] == 31.5, "%g", all[63]);
  std::vector<smpi::view<int>> parts = smpi::allgather(mine.span(), comm);
  for (int i = 0; i < odt.size; i++) {
    const int from = (i + odt.size - 1) % odt.size;
    CHECK(parts[static_cast<std::size_t>(i)][6] == from + 6, "part %d", i);
  }
  parts.clear();
  mine.reclaim();
  std::vector<int> numbers(static_cast<std::size_t>(3 * odt.size));
  std::iota(numbers.begin(), numbers.end(), 0);
  smpi::view<int> part = smpi::scatter<int>(numbers.data(), 3, 0, comm);
  CHECK(part.size() == 3 && part[2] == 3 * odt.rank + 2, "scatter");

  // The same without waiting.
  MPI_Request waiting[3];
  smpi::view<double> later = smpi::ibcast<double>(root_data.data(), 64, 0, comm, &waiting[0]);
  std::vector<smpi::view<int>> rows = smpi::iallgather(mine.span(), comm, &waiting[1]);
  smpi::view<int> piece = smpi::iscatter<int>(numbers.data(), 3, 0, comm, &waiting[2]);
  MPI_Waitall(3, waiting, MPI_STATUSES_IGNORE);
  CHECK(later.size() == 64 && later[63] == 31.5, "%g", later[63]);
  CHECK(piece.size() == 3 && piece[2] == 3 * odt.rank + 2, "iscatter");
  CHECK(rows[0].size() == 1000 && rows[0][6] == odt.size - 1 + 6, "iallgather");
  rows.clear();
  mine.reclaim();

  // Errors throw.
  int caught = 0;
  try {
    smpi::send(mine.span(), odt.size, 1, comm);
  } catch (const smpi::error& wrong) {
    CHECK(odt_class(wrong.code()) == MPI_ERR_RANK, "%s", wrong.what());
    caught++;
  }
  MPI_Comm other;
  MPI_Comm_dup(comm, &other);
  MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
  smpi::attach(other);
  smpi::detach(other);
  try {
    smpi::near(other, 0);
  } catch (const smpi::error& wrong) {
    CHECK(odt_class(wrong.code()) == MPI_ERR_COMM, "%s", wrong.what());
    caught++;
  }
  MPI_Comm_free(&other);
  CHECK(caught == 2, "%d", caught);
}

int main(int argc, char** argv) {
  odt_start("views", &argc, &argv);
  use_views();
  return odt_finish();
}
