// Stands in for the loader of Level Zero.
#define STAND_IN_ZE
#include "stand_in.h"
