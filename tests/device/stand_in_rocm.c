// Stands in for HIP's library.
#define STAND_IN_ROCM
#include "stand_in.h"
