// How much of a collective's time can be hidden, by the model of the published work:
//
//   T_overlap = min(T_comm - T_init, T_curc + T_comm * R_comm / R_crc)
//
// T_comm is the whole communication and T_init the part before the call returns. T_curc is the
// computation that touches nothing of what is received, R_comm the rate at which data comes, and
// R_crc the rate at which the computation after that uses it up; so the last term is how long that
// takes. What is measured is the time during which the communication went on and the program did
// not wait.
#ifndef OVERDRIVE_OVERLAP_MODEL_H_
#define OVERDRIVE_OVERLAP_MODEL_H_

#include <cstdint>

namespace od::overlap {

struct ModelTerms {
  double comm_ns = 0;
  double init_ns = 0;
  double unrelated_ns = 0;
  double related_bytes = 0;  // that the program has used up
  double related_ns = 0;     // in that time
  double bytes = 0;          // that are received
};

// Not below 0.
double overlap_ns(const ModelTerms& terms);

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_MODEL_H_
