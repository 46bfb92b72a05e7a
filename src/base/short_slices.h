// Asks the kernel to let the calling thread run as soon as it wakes.
#ifndef OVERDRIVE_BASE_SHORT_SLICES_H_
#define OVERDRIVE_BASE_SHORT_SLICES_H_

namespace od {

// The program may keep every core busy. A thread that wakes then waits until the one that runs
// there has used up its slice, some milliseconds, unless its own slice is shorter. Linux 6.12 lets
// everybody ask for that; older ones take no notice. Its niceness and policy stay.
void ask_for_short_slices();

}  // namespace od

#endif  // OVERDRIVE_BASE_SHORT_SLICES_H_
