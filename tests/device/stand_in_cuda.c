// Stands in for CUDA's driver library.
#define STAND_IN_CUDA
#include "stand_in.h"
