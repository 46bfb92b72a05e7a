// The pairs of MINLOC and MAXLOC as C structures: where value, index and padding lie.
#ifndef OVERDRIVE_COLL_OPS_PAIRS_H_
#define OVERDRIVE_COLL_OPS_PAIRS_H_

namespace od::coll::ops {

template <typename V, typename I>
struct Pair {
  using Value = V;
  using Index = I;
  V value;
  I index;
};

}  // namespace od::coll::ops

#endif  // OVERDRIVE_COLL_OPS_PAIRS_H_
