// The collectives, with a number and the name of each.
#ifndef OVERDRIVE_TESTS_COLLECTIVES_NAMES_H_
#define OVERDRIVE_TESTS_COLLECTIVES_NAMES_H_

#define COLLECTIVES(X) \
  X(barrier)           \
  X(bcast)             \
  X(gather)            \
  X(gatherv)           \
  X(scatter)           \
  X(scatterv)          \
  X(allgather)         \
  X(allgatherv)        \
  X(alltoall)          \
  X(alltoallv)         \
  X(alltoallw) X(reduce) X(allreduce) X(reduce_scatter) X(reduce_scatter_block) X(scan) X(exscan)
typedef enum {
#define ENUM(name) k_##name,
  COLLECTIVES(ENUM)
#undef ENUM
      kCollectives
} Collective;
static const char* const kNames[kCollectives] = {
#define NAME(name) #name,
    COLLECTIVES(NAME)
#undef NAME
};

#endif  // OVERDRIVE_TESTS_COLLECTIVES_NAMES_H_
