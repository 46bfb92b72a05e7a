// Rank 0 waits for a message that rank 1 sends only after --delay_ms.
#include "odtest.h"

int main(int argc, char** argv) {
  odt_start("stall", &argc, &argv);
  int value = 0;
  if (odt.rank == 0) {
    MUST(MPI_Recv(&value, 1, MPI_INT, 1, 321, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(value == 4, "got %d", value);
  } else if (odt.rank == 1) {
    odt_sleep_ms(odt_number("delay_ms", 1500));
    value = 4;
    MUST(MPI_Send(&value, 1, MPI_INT, 0, 321, MPI_COMM_WORLD));
  }
  return odt_finish();
}
