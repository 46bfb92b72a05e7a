// One misuse of views by rank 1 (or of a lent block by rank 0), which the debug mode must report:
// --what=write|use|twice|leak|lent|none.
#include <overdrive/smpi.h>

#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("misuse", &argc, &argv);
  const char* what = odt_option("what", "none");
  SMPI_Comm_attach(MPI_COMM_WORLD);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (odt.rank == 0) {
    char* block = NULL;
    SMPI_Alloc(12345, &block);  // allocated here
    odt_fill(block, 12345, 1);
    SMPI_Send(block, 12345, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    if (strcmp(what, "lent") == 0) block[100] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(what, "leak") != 0) {
      block[5] = 1;  // not lent any more, so this is right
      SMPI_Reclaim(block);
      block[6] = 1;
    }
    SMPI_Free(block);
  } else if (odt.rank == 1) {
    SMPI_View view, copy;
    const void* data = NULL;
    SMPI_Recv(&view, 12345, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);  // received here
    SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
    CHECK_DATA(data, 12345, 1);
    volatile char* bytes = (volatile char*)(uintptr_t)data;
    if (strcmp(what, "write") == 0) bytes[7] = 1;
    copy = view;
    if (strcmp(what, "leak") != 0 && strcmp(what, "lent") != 0) SMPI_View_release(&view);
    if (strcmp(what, "use") == 0) CHECK(bytes[8] >= 0 || bytes[8] < 0, "unreachable");
    if (strcmp(what, "twice") == 0) {
      const int code = SMPI_View_release(&copy);
      CHECK(odt_class(code) == MPI_ERR_ARG, "%s", odt_class_name(code));
    }
    if (strcmp(what, "lent") == 0) {
      odt_sleep_ms(20000);  // rank 0 ends the job
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  return odt_finish();
}
