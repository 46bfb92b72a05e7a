// Barriers and sums in turn, short sums first and then long ones, each result compared.
//
// --loops=N of each length.
#include "odtest.h"

enum { kShort = 1, kLong = 1000 };

static void loop(int count, int loops) {
  static double in[kLong], out[kLong];
  for (int i = 0; i < loops; i++) {
    for (int k = 0; k < count; k++) in[k] = odt.rank + i + k;
    MUST(MPI_Barrier(MPI_COMM_WORLD));
    MUST(MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    for (int k = 0; k < count; k++) {
      const double wanted = odt.size * (double)(i + k) + odt.size * (odt.size - 1) / 2.0;
      CHECK(out[k] == wanted, "loop %d, %d elements: element %d is %g, not %g", i, count, k, out[k],
            wanted);
    }
  }
}

int main(int argc, char** argv) {
  odt_start("loops", &argc, &argv);
  const int loops = (int)odt_number("loops", 100);
  loop(kShort, loops);
  loop(kLong, loops);
  return odt_finish();
}
