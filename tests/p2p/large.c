// Messages beyond 2 GiB: many elements of a large type, a strided type, and, where the host has
// them, the large-count functions. Needs --bytes (default a little over 2 GiB) of memory in each
// rank.
#include "odtest.h"

static size_t total;

static void verify(const char* buffer, uint64_t key) { CHECK_DATA(buffer, total, key); }

int main(int argc, char** argv) {
  odt_start("large", &argc, &argv);
  total = (size_t)atoll(odt_option("bytes", "2148532224"));  // 2 GiB + 1 MiB
  enum { kBlock = 4096 };
  total -= total % kBlock;
  char* buffer = odt_memory(total);
  MPI_Datatype block;
  MPI_Status status;
  MPI_Request request;
  const int blocks = (int)(total / kBlock);
  MUST(MPI_Type_contiguous(kBlock, MPI_BYTE, &block));
  MUST(MPI_Type_commit(&block));
  if (odt.rank == 0) {
    odt_fill(buffer, total, odt_key(0, 1, 1, 0));
    MUST(MPI_Send(buffer, blocks, block, 1, 1, MPI_COMM_WORLD));
    MUST(MPI_Isend(buffer, blocks, block, 1, 2, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, &status));
  } else if (odt.rank == 1) {
    int count = -1;
    MPI_Count elements = -1;
    MUST(MPI_Recv(buffer, blocks, block, 0, 1, MPI_COMM_WORLD, &status));
    MUST(MPI_Get_count(&status, block, &count));
    CHECK(count == blocks, "count %d, not %d", count, blocks);
    MUST(MPI_Get_elements_x(&status, MPI_BYTE, &elements));
    CHECK((size_t)elements == total, "%lld elements, not %zu", (long long)elements, total);
    MUST(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == MPI_UNDEFINED, "a count of bytes that does not fit is %d", count);
    verify(buffer, odt_key(0, 1, 1, 0));
    memset(buffer, 0, total);
    MUST(MPI_Probe(0, 2, MPI_COMM_WORLD, &status));
    MUST(MPI_Get_count(&status, block, &count));
    CHECK(count == blocks, "Probe: count %d, not %d", count, blocks);
    MUST(MPI_Irecv(buffer, blocks, block, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &request));
    MUST(MPI_Wait(&request, &status));
    verify(buffer, odt_key(0, 1, 1, 0));
  }
#if MPI_VERSION >= 4
  if (odt.rank == 0) {
    MUST(MPI_Send_c(buffer, (MPI_Count)total, MPI_BYTE, 1, 3, MPI_COMM_WORLD));
  } else if (odt.rank == 1) {
    MPI_Count count = -1;
    memset(buffer, 0, total);
    MUST(MPI_Recv_c(buffer, (MPI_Count)total, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &status));
    MUST(MPI_Get_count_c(&status, MPI_BYTE, &count));
    CHECK((size_t)count == total, "count %lld, not %zu", (long long)count, total);
    verify(buffer, odt_key(0, 1, 1, 0));
  }
#endif
  MUST(MPI_Type_free(&block));
  free(buffer);
  return odt_finish();
}
