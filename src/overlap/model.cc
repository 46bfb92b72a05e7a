// The formula: see model.h.
#include "overlap/model.h"

#include <algorithm>

namespace od::overlap {

double overlap_ns(const ModelTerms& terms) {
  const double left = std::max(0.0, terms.comm_ns - terms.init_ns);
  if (terms.related_ns <= 0 || terms.related_bytes <= 0 || terms.comm_ns <= 0) {
    return std::min(left, terms.unrelated_ns);
  }
  const double comm_rate = terms.bytes / terms.comm_ns;
  const double use_rate = terms.related_bytes / terms.related_ns;
  return std::min(left, terms.unrelated_ns + terms.comm_ns * comm_rate / use_rate);
}

}  // namespace od::overlap
